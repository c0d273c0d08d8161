"""Networks thinned every way the paper does (section 4.3 and its appendix): CIFAR-10 and IMDB in a plane of weights.

SGLD runs in the plane of a curve between two trained networks. The plain stream takes in every move, SPMCMC the best of
each m. Each stream is kept whole, or thinned with both growths, and beyond the paper with the monotone rule and with
coordinates that follow the stream. At some steps the average prediction of the kept networks is compared with that of a
much longer chain.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper import Options, Report, Unit
from experiments.paper.chains import GROWTHS, KERNELS
from experiments.paper.columns import Columns
from experiments.paper.network_problems import Problem, device_of, images, require_data, reviews
from experiments.paper.network_scales import CIFAR10, IMDB, Scale
from experiments.paper.network_stages import Stages
from steinstream.ensemble import EnsemblePrediction
from steinstream.preconditioning import Preconditioner, Streaming
from steinstream.thinner import Thinner

STREAMS = ("SGLD", "SPMCMC")
MEASURED = (100, 200, 500, 1000, 2000)  # steps of the paper
RULES = ("paper", "monotone")
COORDINATES = ("identity", "followed")


def on_cifar10(options: Options) -> NetworkStudy:
    """CIFAR-10, ResNet-20 with filter response normalisation."""
    require_data(options, "cifar10", "cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html")
    return NetworkStudy("CIFAR-10, ResNet-20", options, CIFAR10[options.scale].of(options.moves), images)


def on_imdb(options: Options) -> NetworkStudy:
    """IMDB, convolution and LSTM."""
    require_data(options, "imdb", "aclImdb_v1.tar.gz from ai.stanford.edu/~amaas/data/sentiment")
    return NetworkStudy("IMDB, CNN-LSTM", options, IMDB[options.scale].of(options.moves), reviews)


@dataclass
class NetworkStudy:
    """A problem at a scale."""

    title: str
    options: Options
    scale: Scale
    problem_of: Callable[[Options, Scale], Problem]
    stages: Any = None

    def prepare(self, folder: Path, report: Report) -> None:
        """Train, and record the chains with all that their networks predict."""
        problem = self.problem_of(self.options, self.scale)
        self.scale = replace(self.scale, minibatch=min(self.scale.minibatch, len(problem.labels)))
        self.stages = Stages(problem, self.scale, self.options.seed, folder)
        rounds = [self.stages.networks(), [self.stages.curve()], self.stages.chains()]
        total, done = sum(cost for jobs in rounds for _, cost, _ in jobs), 0.0
        for jobs in rounds:
            _side_by_side(jobs, done, total, self._workers(len(jobs)), report)
            done += sum(cost for _, cost, _ in jobs)

    def _workers(self, jobs: int) -> int:
        """Threads to work in; the cores are shared out among them."""
        import torch

        cores = self.options.jobs or os.cpu_count() or 1
        workers = 1 if device_of(self.options) != "cpu" else min(jobs, cores)
        torch.set_num_threads(max(1, cores // (workers + 1)))  # two that wait for each other are slower than one
        return workers

    def units(self) -> list[Unit]:
        """One a chain, stream and kernel."""
        keys = product(range(self.scale.chains), STREAMS, KERNELS)
        return [Unit("-".join(map(str, key)).lower(), partial(self._thin, key)) for key in keys]

    def _thin(self, key: tuple[int, str, str], checkpoint: Path, report: Report) -> Columns:
        """All variants: minutes, so there is nothing to save on the way."""
        number, stream, kernel = key
        recording, rows = self.stages.recording(number), []
        variants = self.variants()
        for place, (method, rule, preconditioner) in enumerate(variants):
            thinner = Thinner(
                self.stages.plane.dim, kernel=KERNELS[kernel], growth=GROWTHS[method], rule=rule,
                preconditioner=Streaming() if preconditioner == "followed" else Preconditioner.identity(),
                candidates=self.scale.candidates if stream == "SPMCMC" else 1, history=None, validate_scores=False,
            )  # fmt: skip
            labels = {"chain": number, "stream": stream, "kernel": kernel, "method": method, "rule": rule}
            labels |= {"coordinates": preconditioner}
            rows += [
                labels | row for row in self._followed(thinner, recording, partial(_share, report, place, variants))
            ]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _followed(self, thinner: Thinner, recording: Any, report: Callable[[float], None]) -> list[dict[str, Any]]:
        """What the kept networks predict together, as they come and go."""
        (draws, scores), online, measured = recording.draws, EnsemblePrediction(), set(self.steps().tolist())
        labels, truth, rows = self._labels, self.stages.truth.mean, []
        for number, (draw, score) in enumerate(zip(draws, scores, strict=True)):
            change = thinner.push(draw, score)
            for _, added in change.added:
                online.add(recording.prediction(added))
            for _, dropped in change.dropped:
                online.drop(recording.prediction(dropped))
            if number % 50 == 0:
                report(number / len(draws))
            if number + 1 in measured:
                measures = online.measures(labels=labels, truth=truth)
                rows.append({"step": number + 1, "kept": change.size, "ksd": change.ksd} | measures)
        return rows

    @property
    def _labels(self) -> NDArray[np.int64]:
        return np.asarray(self.stages.problem.test_labels.cpu().numpy())

    def steps(self) -> NDArray[np.int64]:
        """Where it is measured: about 20 times a decade, in whole groups of candidates, and where the paper does."""
        group, moves = self.scale.candidates, self.scale.moves
        grid = np.geomspace(2 * group, moves, int(20 * np.log10(max(moves / (2 * group), 1.0))) + 2)
        whole = np.round(grid / group).astype(np.int64) * group
        return np.unique([*whole[whole <= moves], *(step for step in MEASURED if step <= moves)])

    def variants(self) -> list[tuple[str, str, str]]:
        """Method, rule, coordinates."""
        unthinned, *thinned = GROWTHS
        return [(unthinned, "paper", "identity"), *product(thinned, RULES, COORDINATES)]

    def draw(self, results: Columns) -> dict[str, Any]:
        """For each kernel the four measures against networks kept, and the variants; the plane with the chains."""
        from experiments.paper import network_plots

        truth = EnsemblePrediction()
        truth.add(self.stages.truth.mean)
        levels = truth.measures(labels=self._labels)
        figures = {"plane.png": network_plots.plane(self.title, self.stages)}
        for kernel in KERNELS:
            figures[f"figure-{kernel}.png"] = network_plots.measures(self.title, results, kernel, levels)
            figures[f"variants-{kernel}.png"] = network_plots.variants(self.title, results, kernel)
        return figures

    def summary(self, results: Columns) -> str:
        """What was run, what the plane is like, every measure at the paper's steps, networks needed."""
        from experiments.paper import network_summary

        return network_summary.summary(self.title, self.scale, self.stages, results, self._labels)


def _share(report: Report, place: int, variants: list[Any], share: float) -> None:
    report(min(0.999, (place + share) / len(variants)))


def _side_by_side(
    jobs: list[tuple[str, float, Callable[[Report], None]]], done: float, total: float, workers: int, report: Report
) -> None:
    """Run jobs in threads, and tell how much of the whole is done. Any of them ends all."""
    shares = dict.fromkeys((name for name, _, _ in jobs), 0.0)
    ended: list[BaseException] = []

    def one(name: str, work: Callable[[Report], None]) -> None:
        def tell(share: float, doing: str = "") -> None:
            if ended:
                raise ended[0]
            shares[name] = share

        work(tell)
        shares[name] = 1.0

    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(one, name, work) for name, _, work in jobs}
        try:
            while running:
                finished, running = wait(running, timeout=0.25, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                now = done + sum(cost * shares[name] for name, cost, _ in jobs)
                active = [name for name, share in shares.items() if 0.0 < share < 1.0]
                report(now / total, ", ".join(active))
        except BaseException as problem:
            ended.append(problem)
            for future in running:
                future.cancel()
            raise

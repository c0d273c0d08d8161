"""Bayesian neural networks in a plane of weights: CIFAR-10 and IMDB (section 4.3 of the paper and its appendix).

SGLD runs in the plane of a curve between two trained networks. The plain stream adds every move, SPMCMC the best of
each group of m moves. Each stream is kept completely or thinned with both growths of the paper and, beyond the paper,
with the monotone rule and a preconditioner that adapts to the stream. Evenly spaced networks and the default settings
of steinstream are measured too. At some steps the average prediction of the kept networks is compared with that of a
much longer chain, the ground truth.
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

from experiments.paper import ExperimentOptions
from experiments.paper.networks.description import NetworkDescription, Plane
from experiments.paper.networks.measurement import PAPER_STEPS, Measure, baselines, measure_against, thinned
from experiments.paper.networks.problems import NetworkProblem, device_of, images, require_data, reviews
from experiments.paper.networks.scales import CIFAR10, CIFAR10_AUTHORS, IMDB, IMDB_AUTHORS, NetworkScale
from experiments.paper.networks.stages import Job, Stages
from experiments.paper.networks.summary import MEASURES, OTHERS, introduction
from experiments.paper.settings import GROWTHS, KERNELS, RULES, paper_thinner
from experiments.results import ResultTable
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import Preconditioner, Streaming

ABSOLUTE = ("accuracy", "expected_calibration_error")  # measures that the ground truth has too
STREAMS = ("SGLD", "SPMCMC")
COLUMNS = ("chain", "stream", "kernel", "method", "rule", "preconditioner", "step", "size", "kept", "ksd", *MEASURES)
PRECONDITIONERS = {"identity": Preconditioner.identity(), "streaming": Streaming()}


def on_cifar10(options: ExperimentOptions) -> NetworkExperiment:
    """Return the experiment on CIFAR-10 with a ResNet-20 with filter response normalisation."""
    require_data(options, "cifar10", "cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html")
    scale = {"tempered": CIFAR10, "authors": CIFAR10_AUTHORS}[options.posterior][options.scale]
    title = "CIFAR-10, authors' posterior" if scale.authors else "CIFAR-10, ResNet-20"
    return NetworkExperiment(title, options, scale.with_moves(options.moves), images)


def on_imdb(options: ExperimentOptions) -> NetworkExperiment:
    """Return the experiment on IMDB with a convolution and an LSTM, or with the TextCNN of the authors."""
    require_data(options, "imdb", "aclImdb_v1.tar.gz from ai.stanford.edu/~amaas/data/sentiment")
    scale = {"tempered": IMDB, "authors": IMDB_AUTHORS}[options.posterior][options.scale]
    title = "IMDB, authors' posterior" if scale.authors else "IMDB, CNN-LSTM"
    return NetworkExperiment(title, options, scale.with_moves(options.moves), reviews)


@dataclass
class NetworkExperiment:
    """Experiment with a network problem at a given scale."""

    title: str
    options: ExperimentOptions
    scale: NetworkScale
    create_problem: Callable[[ExperimentOptions, NetworkScale], NetworkProblem]
    stages: Any = None

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Train the networks, interpolate them if the scale does, and record the chains."""
        problem = self.create_problem(self.options, self.scale)
        self.scale = replace(self.scale, minibatch=min(self.scale.minibatch, len(problem.labels)))
        self.stages = Stages(problem, self.scale, self.options.seed, folder)
        rounds = self.stages.rounds(self._workers)
        total, done = sum(job.cost for jobs in rounds for job in jobs), 0.0
        for jobs in rounds:
            _run_jobs(jobs, done, total, self._set_threads(len(jobs)), progress)
            done += sum(job.cost for job in jobs)
        self._description().save(folder)

    @property
    def _workers(self) -> int:
        """Number of jobs that run in parallel."""
        return 1 if device_of(self.options) != "cpu" else self.options.jobs or os.cpu_count() or 1

    def _set_threads(self, jobs: int) -> int:
        """Divide the cores among the jobs and return the number of jobs that run in parallel."""
        import torch

        cores, workers = self.options.jobs or os.cpu_count() or 1, min(jobs, self._workers)
        torch.set_num_threads(max(1, cores // (workers + 1)))  # threads that wait for each other are slower than one
        return workers

    def units(self) -> list[WorkUnit]:
        """Return a work unit per chain, stream and kernel, and one per chain for the other methods."""
        keys = product(range(self.scale.chains), STREAMS, KERNELS)
        units = [WorkUnit("-".join(map(str, key)).lower(), partial(self._thin, key)) for key in keys]
        others = (WorkUnit(f"{number}-others", partial(self._baselines, number)) for number in range(self.scale.chains))
        return [*units, *others]

    def _thin(self, key: tuple[int, str, str], checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        """Run all variants. This takes only minutes; the checkpoint is not used."""
        number, stream, kernel = key
        chain, variants, rows = self.stages.compared_chain(number), self.variants(), []
        for index, (method, rule, preconditioner) in enumerate(variants):
            progress(index / len(variants))
            thinner = paper_thinner(
                self.stages.plane.dim,
                kernel=KERNELS[kernel],
                growth=GROWTHS[method],
                rule=rule,
                preconditioner=PRECONDITIONERS[preconditioner],
                candidates=self.scale.candidates if stream == "SPMCMC" else 1,
                history=None,
                validate_scores=False,
            )
            labels = {"chain": number, "stream": stream, "kernel": kernel, "method": method, "rule": rule}
            labels |= {"preconditioner": preconditioner}
            rows += [labels | row for row in thinned(thinner, chain, self.steps().tolist(), self._measure)]
        return _table(rows)

    def _baselines(self, number: int, checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        """Measure the methods that the paper does not compare."""
        labels = {"chain": number, "stream": OTHERS, "kernel": "", "rule": "", "preconditioner": ""}
        rows = baselines(self.stages.compared_chain(number), self._measure, progress)
        return _table([{**labels, **row} for row in rows])

    @property
    def _measure(self) -> Measure:
        return measure_against(self.stages.ground_truth.mean, self._labels)

    @property
    def _labels(self) -> NDArray[np.int64]:
        return np.asarray(self.stages.problem.test_labels.cpu().numpy())

    def steps(self) -> NDArray[np.int64]:
        """Return the measured steps: about 20 per decade, in complete groups of candidates, and those of the paper."""
        group, moves = self.scale.candidates, self.scale.moves
        grid = np.geomspace(2 * group, moves, int(20 * np.log10(max(moves / (2 * group), 1.0))) + 2)
        whole = np.round(grid / group).astype(np.int64) * group
        return np.unique([*whole[whole <= moves], *(step for step in PAPER_STEPS if step <= moves)])

    def variants(self) -> list[tuple[str, str, str]]:
        """Return method, rule and preconditioner of each variant."""
        unthinned, *thinned = GROWTHS
        return [(unthinned, "paper", "identity"), *product(thinned, RULES, PRECONDITIONERS)]

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return the figures: per kernel the measures and the variants, and the plane with the chains."""
        return self._description().draw(results)

    def summary(self, results: ResultTable) -> str:
        """Return the settings, the properties of the plane and all measures as Markdown."""
        return self._description().summary(results)

    def _description(self) -> NetworkDescription:
        levels = self._measure(self.stages.ground_truth.mean)
        return NetworkDescription(
            self.title,
            introduction(self.title, self.scale, self.stages, self._labels),
            {name: float(levels[name]) for name in ABSOLUTE},
            Plane.of(self.stages),
        )


def _table(rows: list[dict[str, Any]]) -> ResultTable:
    """Return rows with the same names as columns."""
    return {name: np.array([row[name] for row in rows]) for name in COLUMNS}


def _run_jobs(jobs: list[Job], done: float, total: float, workers: int, progress: ProgressCallback) -> None:
    """Run jobs in threads and report the completed cost. An exception in one job ends all of them."""
    fractions = dict.fromkeys((job.name for job in jobs), 0.0)
    errors: list[BaseException] = []

    def run(job: Job) -> None:
        def report(fraction: float, status: str = "") -> None:
            if errors:
                raise errors[0]
            fractions[job.name] = fraction

        job.work(report)
        fractions[job.name] = 1.0

    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(run, job) for job in jobs}
        try:
            while running:
                finished, running = wait(running, timeout=0.25, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                now = done + sum(job.cost * fractions[job.name] for job in jobs)
                active = [name for name, fraction in fractions.items() if 0.0 < fraction < 1.0]
                progress(now / total, ", ".join(active))
        except BaseException as error:
            errors.append(error)
            for future in running:
                future.cancel()
            raise

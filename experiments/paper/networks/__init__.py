"""Bayesian neural networks in a plane of weights: CIFAR-10 and IMDB (section 4.3 of the paper and its appendix).

SGLD runs in the plane of a curve between two trained networks. The plain stream adds every move, SPMCMC the best of
each group of m moves. Each stream is kept completely or thinned with both growths of the paper and, beyond the paper,
with the monotone rule and a preconditioner that adapts to the stream. At some steps the average prediction of the
kept networks is compared with that of a much longer chain, the ground truth.
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
from experiments.paper.networks.problems import NetworkProblem, device_of, images, require_data, reviews
from experiments.paper.networks.scales import CIFAR10, IMDB, NetworkScale
from experiments.paper.networks.stages import Job, Stages
from experiments.paper.settings import GROWTHS, KERNELS, RULES, paper_thinner
from experiments.results import ResultTable
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import EnsemblePrediction, Preconditioner, Streaming, Thinner

STREAMS = ("SGLD", "SPMCMC")
PAPER_STEPS = (100, 200, 500, 1000, 2000)  # steps at which the paper reports results
PRECONDITIONERS = {"identity": Preconditioner.identity(), "streaming": Streaming()}


def on_cifar10(options: ExperimentOptions) -> NetworkExperiment:
    """Return the experiment on CIFAR-10 with a ResNet-20 with filter response normalisation."""
    require_data(options, "cifar10", "cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html")
    scale = CIFAR10[options.scale].with_moves(options.moves)
    return NetworkExperiment("CIFAR-10, ResNet-20", options, scale, images)


def on_imdb(options: ExperimentOptions) -> NetworkExperiment:
    """Return the experiment on IMDB with a convolution and an LSTM."""
    require_data(options, "imdb", "aclImdb_v1.tar.gz from ai.stanford.edu/~amaas/data/sentiment")
    scale = IMDB[options.scale].with_moves(options.moves)
    return NetworkExperiment("IMDB, CNN-LSTM", options, scale, reviews)


@dataclass
class NetworkExperiment:
    """Experiment with a network problem at a given scale."""

    title: str
    options: ExperimentOptions
    scale: NetworkScale
    create_problem: Callable[[ExperimentOptions, NetworkScale], NetworkProblem]
    stages: Any = None

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Train the networks, record the chains and compute the predictions of their networks."""
        problem = self.create_problem(self.options, self.scale)
        self.scale = replace(self.scale, minibatch=min(self.scale.minibatch, len(problem.labels)))
        self.stages = Stages(problem, self.scale, self.options.seed, folder)
        rounds = [self.stages.network_jobs(), [self.stages.curve_job()], self.stages.chain_jobs()]
        total, done = sum(job.cost for jobs in rounds for job in jobs), 0.0
        for jobs in rounds:
            _run_jobs(jobs, done, total, self._set_threads(len(jobs)), progress)
            done += sum(job.cost for job in jobs)

    def _set_threads(self, jobs: int) -> int:
        """Divide the cores among the jobs and return the number of jobs that run in parallel."""
        import torch

        cores = self.options.jobs or os.cpu_count() or 1
        workers = 1 if device_of(self.options) != "cpu" else min(jobs, cores)
        torch.set_num_threads(max(1, cores // (workers + 1)))  # threads that wait for each other are slower than one
        return workers

    def units(self) -> list[WorkUnit]:
        """Return one work unit per chain, stream and kernel."""
        keys = product(range(self.scale.chains), STREAMS, KERNELS)
        return [WorkUnit("-".join(map(str, key)).lower(), partial(self._thin, key)) for key in keys]

    def _thin(self, key: tuple[int, str, str], checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        """Run all variants. This takes only minutes; the checkpoint is not used."""
        number, stream, kernel = key
        chain, rows = self.stages.compared_chain(number), []
        variants = self.variants()
        for index, (method, rule, preconditioner) in enumerate(variants):
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
            measured = self._measure(thinner, chain, partial(_report_variant, progress, index, len(variants)))
            rows += [labels | row for row in measured]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _measure(self, thinner: Thinner, chain: Any, progress: Callable[[float], None]) -> list[dict[str, Any]]:
        """Thin a chain and measure the average prediction of the kept networks at some steps."""
        (draws, scores), average, measured = chain.draws, EnsemblePrediction(), set(self.steps().tolist())
        labels, truth, rows = self._labels, self.stages.ground_truth.mean, []
        for number, (draw, score) in enumerate(zip(draws, scores, strict=True)):
            step = thinner.push(draw, score)
            for _, added in step.added:
                average.add(chain.prediction(added))
            for _, dropped in step.dropped:
                average.drop(chain.prediction(dropped))
            if number % 50 == 0:
                progress(number / len(draws))
            if number + 1 in measured:
                measures = average.measures(labels=labels, truth=truth)
                rows.append({"step": number + 1, "kept": step.size, "ksd": step.ksd} | measures)
        return rows

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
        from experiments.paper.networks import plots

        truth = EnsemblePrediction()
        truth.add(self.stages.ground_truth.mean)
        levels = truth.measures(labels=self._labels)
        figures = {"plane.png": plots.plane(self.title, self.stages)}
        for kernel in KERNELS:
            figures[f"figure-{kernel}.png"] = plots.measures(self.title, results, kernel, levels)
            figures[f"variants-{kernel}.png"] = plots.variants(self.title, results, kernel)
        return figures

    def summary(self, results: ResultTable) -> str:
        """Return the settings, the properties of the plane and all measures as Markdown."""
        from experiments.paper.networks.summary import summary

        return summary(self.title, self.scale, self.stages, results, self._labels)


def _report_variant(progress: ProgressCallback, index: int, count: int, fraction: float) -> None:
    progress(min(0.999, (index + fraction) / count))


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

"""The experiments cifar10 and imdb on synthetic data: complete, stopped at any time, and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import steinstream as ss
from experiments.paper import ExperimentOptions, networks
from experiments.paper.networks.scales import CIFAR10, IMDB
from experiments.paper.networks.summary import networks_needed
from experiments.results import read_table, select
from experiments.runner import Runner, Stopped
from steinstream.ensemble import accuracy, agreement, total_variation
from steinstream.errors import InputError


def small(kind="imdb"):
    """Two short chains."""
    create = networks.on_imdb if kind == "imdb" else networks.on_cifar10
    experiment = create(ExperimentOptions("quick", jobs=1))
    sizes = {"chains": 2, "moves": 60, "truth": 120, "part": 20, "train": 40, "test": 30, "minibatch": 20}
    ends = replace(experiment.scale.ends, epochs=3)
    experiment.scale = replace(experiment.scale, **sizes, ends=ends, width=2, filters=4)
    return experiment


def run(experiment, folder, stopped=lambda: False):
    runner = Runner(experiment, folder, {"experiment": "test"})
    runner.run(1, lambda fraction, status: None, stopped)
    return runner


def test_a_run_stopped_at_any_time_resumes_to_the_same_numbers(tmp_path):
    whole = run(small(), tmp_path / "whole").results()
    cuts = 0
    for patience in (30, 60, 90, 120, 10**9):  # number of calls after which the run is stopped
        asked = iter(range(10**9))
        try:
            runner = run(small(), tmp_path / "cut", lambda patience=patience, asked=asked: next(asked) > patience)
        except Stopped:
            cuts += 1
    assert cuts >= 1
    pieces = runner.results()
    assert all(np.array_equal(whole[name], pieces[name]) for name in whole)


def test_the_measures_are_those_of_the_kept_networks(tmp_path):
    experiment = small()
    results = run(experiment, tmp_path / "out").results()
    stages = experiment.stages
    labels = stages.problem.test_labels.numpy()
    posterior, test = stages.posterior(), stages.problem.test_inputs
    chain = stages.compared_chain(1)
    draws, scores = chain.draws
    assert draws.shape == (60, 2)
    minibatch = posterior.minibatch(experiment.scale.minibatch, posterior.control_variates(stages.mode))
    generators = np.random.default_rng(0).spawn(200)
    again = np.array([minibatch(draws[30], generator) for generator in generators])
    assert (np.abs(scores[30] - again.mean(axis=0)) < 6 * again.std(axis=0) + 1e-6).all()  # scores in the coordinates z
    used = stages.ground_truth.draws[0][12::4]  # the first tenth is burn-in
    truth = np.mean([posterior.predict(z, test) for z in used], axis=0)
    np.testing.assert_allclose(stages.ground_truth.mean, truth, atol=1e-6)
    for stream, method, growth in (("SGLD", "every draw", "none"), ("SPMCMC", "KSDT-SQRT", "sqrt")):
        settings = {**ss.PAPER, "growth": growth, "candidates": 5 if stream == "SPMCMC" else 1}
        thinner = ss.Thinner(2, **settings, validate_scores=False)
        thinner.extend(draws, scores)
        mean = np.mean([posterior.predict(z, test) for z in thinner.kept.draws], axis=0)
        variant = {"kernel": "imq", "rule": "paper", "preconditioner": "identity"}
        row = select(results, chain=1, stream=stream, method=method, step=60, **variant)
        assert row["kept"] == len(thinner.kept) and row["ksd"] == thinner.ksd
        assert row["agreement"] == pytest.approx(agreement(mean, truth))
        assert row["total_variation"] == pytest.approx(total_variation(mean, truth), abs=1e-5)
        assert row["accuracy"] == pytest.approx(accuracy(mean, labels))


def test_networks_needed_for_an_agreement():
    unthinned = {"kept": np.array([10.0, 20.0, 40.0]), "agreement": np.array([0.8, 0.95, 0.9])}
    assert (networks_needed(unthinned, 0.7), networks_needed(unthinned, 0.9), networks_needed(unthinned, 0.96)) == (
        10.0,
        20.0,
        np.inf,
    )


def test_cifar10_quick_resumes_after_a_kill(tmp_path, environment):
    command = [sys.executable, "-m", "experiments", "cifar10", "--quick", "--moves", "100", "-o", "out"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes)
    limit = time.monotonic() + 200
    while not (tmp_path / "out" / "chain-0" / "000000000.npz").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=900)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.npz")}
    assert len(before) >= 4
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    for name in ("plane.png", "figure-imq.png", "figure-rbf.png", "variants-imq.png", "summary.md"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    results = read_table(tmp_path / "out" / "results.parquet")
    assert set(results["chain"].tolist()) == set(range(5)) and set(results["stream"].tolist()) == {"SGLD", "SPMCMC"}
    assert "Networks for the same agreement" in ran.stdout


def test_errors_are_reported_before_the_run(run_experiment, tmp_path):
    with pytest.raises(InputError, match="cifar10 requires data; only --quick uses synthetic data"):
        networks.on_cifar10(ExperimentOptions("medium"))
    with pytest.raises(InputError, match="imdb requires data"):
        networks.on_imdb(ExperimentOptions("full"))
    with pytest.raises(InputError, match="'abacus' cannot be used"):
        networks.on_imdb(ExperimentOptions("quick", device="abacus"))
    ran = run_experiment("alpha", "--device", "cpu")
    assert ran.returncode == 2 and "--device has no effect for alpha" in ran.stderr
    ran = run_experiment("cifar10", "--glove", tmp_path)
    assert ran.returncode == 2 and "--glove has no effect for cifar10" in ran.stderr
    ran = run_experiment("cifar10", "--data", tmp_path)
    assert ran.returncode == 2 and "does not contain CIFAR-10" in ran.stderr and "Traceback" not in ran.stderr


def test_the_full_scale_is_that_of_the_paper():
    for scale in (CIFAR10["full"], IMDB["full"]):
        assert (scale.moves, scale.truth, scale.chains, scale.candidates, scale.stride) == (2000, 20_000, 5, 5, 1)
        assert scale.train is None and scale.test is None and scale.halvings == 0 and scale.width == 16

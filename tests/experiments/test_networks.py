"""The experiments cifar10 and imdb on synthetic data: complete, stopped at any time, and killed."""

from __future__ import annotations

import shutil
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
from experiments.paper.networks.measurement import DEFAULT, FEATURES, PAPER
from experiments.paper.networks.scales import CIFAR10, CIFAR10_AUTHORS, IMDB, IMDB_AUTHORS
from experiments.paper.networks.summary import networks_needed
from experiments.results import read_table, select
from experiments.runner import Runner, Stopped
from steinstream.ensemble import accuracy, agreement, total_variation
from steinstream.errors import InputError
from steinstream.integrations.torch import SubspacePosterior


def small(nodes=None, posterior="tempered"):
    """Two short chains, with the network itself, or with an interpolant of a network that is trained well."""
    experiment = networks.on_imdb(ExperimentOptions("quick", jobs=1, posterior=posterior))
    scale = replace(experiment.scale, nodes=nodes, chains=2, moves=60, truth=120, part=20, test=30, minibatch=20)
    if nodes is None:
        ends, curve = (replace(config, epochs=3) for config in (scale.ends, scale.curve))
        scale = replace(scale, ends=ends, curve=curve, train=100, filters=4, temperature=1.0)
    experiment.scale = scale
    return experiment


def run(experiment, folder, stopped=lambda: False):
    runner = Runner(experiment, folder, {"experiment": "test"})
    runner.run(1, lambda fraction, status: None, stopped)
    return runner


@pytest.mark.parametrize("nodes", [None, (7, 7)])
def test_a_run_stopped_at_any_time_resumes_to_the_same_numbers(tmp_path, nodes):
    whole = run(small(nodes), tmp_path / "whole").results()
    if nodes is not None:  # resume after the training
        (tmp_path / "cut" / "runs").mkdir(parents=True)
        shutil.copy(tmp_path / "whole" / "settings.json", tmp_path / "cut")
        shutil.copytree(tmp_path / "whole" / "networks", tmp_path / "cut" / "networks")
    cuts = 0
    for patience in (5, 10, 15, 20, 10**9):  # number of calls after which the run is stopped
        asked = iter(range(10**9))
        try:
            runner = run(small(nodes), tmp_path / "cut", lambda patience=patience, asked=asked: next(asked) > patience)
        except Stopped:
            cuts += 1
    assert cuts >= 1
    pieces = runner.results()
    assert all(np.array_equal(whole[name], pieces[name], equal_nan=name == "ksd") for name in whole)


@pytest.mark.parametrize("nodes", [None, (7, 7)])
def test_the_measures_are_those_of_the_kept_networks(tmp_path, nodes):
    experiment = small(nodes)
    results = run(experiment, tmp_path / "out").results()
    stages = experiment.stages
    labels = stages.problem.test_labels.numpy()
    posterior, test = stages.posterior(), stages.inputs["test"]
    chain = stages.compared_chain(1)
    draws, scores = chain.draws
    assert draws.shape == (60, 2)
    minibatch = posterior.minibatch(
        experiment.scale.minibatch, posterior.control_variates(np.array(stages.sgld.origin))
    )
    generators = np.random.default_rng(0).spawn(200)
    again = np.array([minibatch(draws[30], generator) for generator in generators])
    assert (np.abs(scores[30] - again.mean(axis=0)) < 6 * again.std(axis=0) + 1e-6).all()  # scores in the coordinates z
    used = stages.ground_truth.draws[0][12:]  # the first tenth is burn-in
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
        assert row["agreement"] == pytest.approx(agreement(mean, truth), abs=0.04)  # one input may be a tie
        assert row["total_variation"] == pytest.approx(total_variation(mean, truth), abs=1e-5)
        assert row["accuracy"] == pytest.approx(accuracy(mean, labels), abs=0.04)
    features = chain.features
    assert features.shape == (60, 200)  # two classes of 100 training inputs
    for method, settings, options in ((DEFAULT, {}, {}), (FEATURES, {}, {"features": features}), (PAPER, ss.PAPER, {})):
        thinner = ss.Thinner(2, **settings, size=10)
        thinner.extend(draws, scores, **options)
        mean = np.mean([posterior.predict(z, test) for z in thinner.kept.draws], axis=0)
        row = select(results, chain=1, stream="others", method=method, size=10)
        assert row["kept"] == 10
        assert row["total_variation"] == pytest.approx(total_variation(mean, truth), abs=1e-5)


def test_the_posterior_of_the_authors_has_their_step_and_their_prior(tmp_path):
    experiment = small(posterior="authors")
    run(experiment, tmp_path / "out")
    stages = experiment.stages
    assert type(stages.network().model).__name__ == "TextCNN"
    exact, z = stages.posterior(), np.array([0.3, 0.9])
    likelihood = SubspacePosterior(
        stages.network(), stages.plane, stages.problem.inputs, stages.problem.labels, prior_variance=np.inf
    )
    wanted = likelihood.score(z) / 100 - z / 10  # mean log likelihood of 100 examples, prior N(0, 10 I)
    np.testing.assert_allclose(exact.score(z), wanted, rtol=1e-5, atol=1e-7)
    draws, scores = stages.ground_truth.draws
    noise = np.diff(draws, axis=0) - 0.15 * scores[:-1]  # half of the learning rate 0.3
    assert 0.8 < noise.std() / 0.3 < 1.2  # standard deviation 0.3 of the noise


def test_imdb_quick_means_something_and_its_summary_is_complete(tmp_path):
    experiment = networks.on_imdb(ExperimentOptions("quick", jobs=1, moves=100))
    runner = run(experiment, tmp_path / "out")
    results = runner.results()
    assert 0.6 < results["accuracy"].mean() < 0.99  # of two classes
    assert 0.8 < results["agreement"].mean() < 0.999
    draws = np.concatenate([experiment.stages.compared_chain(number).draws[0] for number in range(5)])
    assert (np.abs(draws) < 2.5).all()  # the trained networks are at (1, 0) and (-1, 0), the start is (0, 1)
    summary = experiment.summary(results)
    table = summary[summary.index("Networks for the same agreement") : summary.index("At the last step:")]
    for method in (DEFAULT, FEATURES):
        assert f"| | SGLD | {method} | | | 100 | 22 |" in table and f"| | SGLD | {method} | | | 100 | 10 |" in table
    assert "| 10 | KSDT-SQRT | 10 |" in summary  # the settings of the paper with size=N


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
    while not (tmp_path / "out" / "chain-0" / "000000000.npz").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=900)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.npz")}
    assert len(before) >= 4
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    for name in ("plane.png", "comparison.png", "figure-imq.png", "figure-rbf.png", "variants-imq.png", "summary.md"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    results = read_table(tmp_path / "out" / "results.parquet")
    assert set(results["chain"].tolist()) == set(range(5))
    assert set(results["stream"].tolist()) == {"SGLD", "SPMCMC", "others"}
    assert "Networks for the same agreement" in ran.stdout and "Interpolant: $9 \\times 9$ nodes" in ran.stdout
    assert 0.4 < results["accuracy"].mean() < 0.99  # of ten classes
    assert 0.8 < results["agreement"].mean() < 0.999


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
    for scale in (CIFAR10["full"], IMDB["full"], CIFAR10_AUTHORS["full"], IMDB_AUTHORS["full"]):
        assert (scale.moves, scale.truth, scale.chains, scale.candidates, scale.nodes) == (2000, 20_000, 5, 5, None)
        assert scale.train is None and scale.test is None and scale.halvings == 0 and scale.width == 16

"""``reproduce cifar10`` and ``imdb`` on made-up data: whole, stopped anywhere, and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

from experiments.paper import Options, Stopped, networks
from experiments.paper.columns import matching, read
from experiments.paper.laboratory import Laboratory
from experiments.paper.network_scales import CIFAR10, IMDB
from experiments.paper.network_summary import needed

import steinstream as ss
from steinstream.ensemble import accuracy, agreement, total_variation
from steinstream.errors import InputError


def small(kind="imdb"):
    """Two short chains."""
    made = networks.on_imdb if kind == "imdb" else networks.on_cifar10
    study = made(Options("quick", jobs=1))
    study.scale = replace(study.scale, chains=2, moves=60, truth=120, part=20, train=40, test=30, minibatch=20)
    study.scale = replace(study.scale, first=replace(study.scale.first, epochs=3), width=2, filters=4)
    return study


def run(study, folder, stopped=lambda: False):
    laboratory = Laboratory(study, folder, {"experiment": "test"})
    laboratory.run(1, lambda share, doing: None, stopped)
    return laboratory


def test_wherever_it_is_stopped_it_goes_on_to_the_same_numbers(tmp_path):
    whole = run(small(), tmp_path / "whole").results()
    cuts = 0
    for patience in (30, 60, 90, 120, 10**9):  # questions answered with "go on"
        asked = iter(range(10**9))
        try:
            laboratory = run(small(), tmp_path / "cut", lambda patience=patience, asked=asked: next(asked) > patience)
        except Stopped:
            cuts += 1
    assert cuts >= 1
    pieces = laboratory.results()
    assert all(np.array_equal(whole[name], pieces[name]) for name in whole)


def test_the_measures_are_those_of_the_kept_networks(tmp_path):
    study = small()
    results = run(study, tmp_path / "out").results()
    stages = study.stages
    labels = stages.problem.test_labels.numpy()
    posterior, test = stages.posterior(), stages.problem.test_inputs
    chain = stages.recording(1)
    draws, scores = chain.draws
    assert draws.shape == (60, 2)
    minibatch = posterior.minibatch(study.scale.minibatch, posterior.controls(stages.centre))
    generators = np.random.default_rng(0).spawn(200)
    again = np.array([minibatch(draws[30], generator) for generator in generators])
    assert (np.abs(scores[30] - again.mean(axis=0)) < 6 * again.std(axis=0) + 1e-6).all()  # they are scores in z
    used = stages.truth.draws[0][12::4]  # a tenth is burn-in
    truth = np.mean([posterior.predict(z, test) for z in used], axis=0)
    np.testing.assert_allclose(stages.truth.mean, truth, atol=1e-6)
    for stream, method, growth in (("SGLD", "every draw", "none"), ("SPMCMC", "KSDT-SQRT", "sqrt")):
        thinner = ss.Thinner(2, growth=growth, candidates=5 if stream == "SPMCMC" else 1, validate_scores=False)
        thinner.extend(draws, scores)
        mean = np.mean([posterior.predict(z, test) for z in thinner.kept.draws], axis=0)
        row = matching(
            results,
            chain=1,
            stream=stream,
            kernel="imq",
            method=method,
            rule="paper",
            preconditioner="identity",
            step=60,
        )
        assert row["kept"] == len(thinner.kept) and row["ksd"] == thinner.ksd
        assert row["agreement"] == pytest.approx(agreement(mean, truth))
        assert row["total_variation"] == pytest.approx(total_variation(mean, truth), abs=1e-5)
        assert row["accuracy"] == pytest.approx(accuracy(mean, labels))


def test_networks_needed_for_an_agreement():
    unthinned = {"kept": np.array([10.0, 20.0, 40.0]), "agreement": np.array([0.8, 0.95, 0.9])}
    assert (needed(unthinned, 0.7), needed(unthinned, 0.9), needed(unthinned, 0.96)) == (10.0, 20.0, np.inf)


def test_cifar10_quick_is_killed_and_goes_on(tmp_path):
    command = [sys.executable, "-m", "steinstream", "reproduce", "cifar10", "--quick", "--moves", "100", "-o", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    limit = time.monotonic() + 200
    while not (tmp_path / "out" / "chain-0" / "000000000.npz").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.npz")}
    assert len(before) >= 4
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    for name in ("plane.png", "figure-imq.png", "figure-rbf.png", "variants-imq.png", "summary.md"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    results = read(tmp_path / "out" / "results.parquet")
    assert set(results["chain"].tolist()) == set(range(5)) and set(results["stream"].tolist()) == {"SGLD", "SPMCMC"}
    assert "Networks for the same agreement" in ran.stdout


def test_what_is_wrong_is_said_before_anything_begins(steinstream, tmp_path):
    with pytest.raises(InputError, match="cifar10 needs its data; only --quick makes some up"):
        networks.on_cifar10(Options("medium"))
    with pytest.raises(InputError, match="imdb needs its data"):
        networks.on_imdb(Options("full"))
    with pytest.raises(InputError, match="'abacus' cannot be used"):
        networks.on_imdb(Options("quick", device="abacus"))
    ran = steinstream("reproduce", "alpha", "--device", "cpu")
    assert ran.returncode == 2 and "alpha takes no data" in ran.stderr
    ran = steinstream("reproduce", "cifar10", "--data", tmp_path)
    assert ran.returncode == 2 and "holds no CIFAR-10" in ran.stderr and "Traceback" not in ran.stderr


def test_the_full_scale_is_the_papers():
    for scale in (CIFAR10["full"], IMDB["full"]):
        assert (scale.moves, scale.truth, scale.chains, scale.candidates, scale.stride) == (2000, 20_000, 5, 5, 1)
        assert scale.train is None and scale.test is None and scale.halvings == 0 and scale.width == 16

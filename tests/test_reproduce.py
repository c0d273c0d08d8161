"""The paper's experiments run, stop, go on, and say what is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from experiments.paper import NAMES, Options, Stopped, experiment

import steinstream as ss

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

from experiments.paper import chains, goodwin, laboratory, tape
from experiments.paper.columns import matching, read

from steinstream.samplers import RandomWalk
from steinstream.targets import Functions


@pytest.fixture
def walk(tmp_path):
    """A random walk that starts far out, as two csv files without header, as public chains come."""
    sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.2)
    _, block = sampler.sample(sampler.init(np.array([40.0, -40.0]), seed=0), 2000)
    np.savetxt(tmp_path / "theta.csv", block.draws, delimiter=",")
    np.savetxt(tmp_path / "gradient.csv", block.scores, delimiter=",")
    return block


def test_the_list_names_every_experiment(steinstream):
    ran = steinstream("reproduce", "--list")
    assert ran.returncode == 0
    assert [line.split()[0] for line in ran.stdout.splitlines()] == list(NAMES)


def test_a_chain_of_the_users_replaces_ours(steinstream, walk, tmp_path):
    ran = steinstream(
        "reproduce", "goodwin-rwm", "--chain", "theta.csv", "--scores", "gradient.csv", "-o", "out", "--jobs", 2
    )
    assert ran.returncode == 0, ran.stderr
    for name in ("results.parquet", "figure-imq.png", "figure-rbf.png", "summary.md", "settings.json"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    results = read(tmp_path / "out" / "results.parquet")
    about = json.loads((tmp_path / "out" / "chain.json").read_text())
    assert 10 < about["burn_in"] < 500
    np.testing.assert_allclose(about["mean"], walk.draws[about["burn_in"] :].mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(about["sd"], walk.draws[about["burn_in"] :].std(axis=0), rtol=1e-9)
    for stream, part, kernel in (("first", "whole", "imq"), ("best", "settled", "rbf")):
        rows = slice(about["burn_in"] if part == "settled" else 0, None)
        x, s = walk.draws[rows], walk.scores[rows]
        thinner = ss.Thinner(2, kernel=chains.KERNELS[kernel], growth="sqrt", candidates=10 if stream == "best" else 1)
        thinner.extend(x, s) if stream == "best" else thinner.extend(x[::10], s[::10])
        curve = matching(results, stream=stream, part=part, kernel=kernel, method="KSDT-SQRT")
        assert curve["ksd"][-1] == thinner.ksd
        assert curve["kept"][-1] == len(thinner)
    again = steinstream("reproduce", "goodwin-rwm", "--chain", "theta.csv", "--scores", "gradient.csv", "-o", "out")
    assert again.returncode == 0 and again.stdout.splitlines()[:-1] == ran.stdout.splitlines()[:-1]


def test_what_is_wrong_is_said(steinstream, walk, tmp_path):
    chain = ["--chain", "theta.csv", "--scores", "gradient.csv"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    ran = steinstream("reproduce", "goodwin-rwm", *chain, "-o", "full")
    assert ran.returncode == 2 and "exists and is no experiment's folder" in ran.stderr
    ran = steinstream("reproduce", "adaptivity", *chain)
    assert ran.returncode == 2 and "makes its own draws" in ran.stderr
    np.savetxt(tmp_path / "short.csv", walk.draws[:15], delimiter=",")
    np.savetxt(tmp_path / "short-gradient.csv", walk.scores[:15], delimiter=",")
    ran = steinstream("reproduce", "goodwin-rwm", "--chain", "short.csv", "--scores", "short-gradient.csv")
    assert ran.returncode == 2 and "has 15 draws, and one step takes 10" in ran.stderr
    ran = steinstream("reproduce", "goodwin-rwm", *chain, "--negate-scores", "-o", "negated")
    assert ran.returncode == 2 and "look negated" in ran.stderr
    np.savez(tmp_path / "empty.npz", z=np.zeros(3))
    ran = steinstream("reproduce", "goodwin-rwm", "--observations", "empty.npz")
    assert ran.returncode == 2 and "no array y" in ran.stderr
    ran = steinstream("reproduce", "goodwin-rmw")
    assert ran.returncode == 2 and "goodwin-rwm" in ran.stderr


def test_another_experiments_folder_is_left_alone(tmp_path):
    laboratory.Laboratory(experiment("alpha", Options("quick")), tmp_path / "out", {"experiment": "alpha", "seed": 0})
    with pytest.raises(ss.SteinstreamError, match="holds an experiment with seed 0, and now it is 1"):
        laboratory.Laboratory(
            experiment("alpha", Options("quick")), tmp_path / "out", {"experiment": "alpha", "seed": 1}
        )


def test_a_killed_reproduction_goes_on_where_it_was(tmp_path, monkeypatch):
    """Killed while it samples and again while it thins: in the end the same numbers as in one go."""
    command = [sys.executable, "-m", "steinstream", "reproduce", "goodwin-rwm", "--moves", "40000", "--jobs", "1"]
    for cut, wait in (
        (signal.SIGKILL, "chain/000000000.npz"),
        (signal.SIGINT, "runs/best-every-draw-imq-whole.parquet"),
    ):
        process = subprocess.Popen(
            [*command, "-o", "cut"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        limit = time.monotonic() + 120
        while not (tmp_path / "cut" / wait).exists() and time.monotonic() < limit:
            time.sleep(0.01)
        process.send_signal(cut)
        process.communicate(timeout=60)
        assert process.returncode == (-9 if cut == signal.SIGKILL else 130)
    before = (tmp_path / "cut" / "chain" / "000000000.npz").stat().st_mtime_ns
    for folder in ("cut", "whole"):
        assert subprocess.run([*command, "-o", folder], cwd=tmp_path, capture_output=True, timeout=300).returncode == 0
    assert (tmp_path / "cut" / "chain" / "000000000.npz").stat().st_mtime_ns == before
    one, other = (read(tmp_path / folder / "results.parquet") for folder in ("cut", "whole"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_unit_goes_on_from_its_checkpoint(tmp_path, walk, monkeypatch):
    monkeypatch.setattr(chains, "_SAVE", 0.0)
    monkeypatch.setattr(tape, "_BLOCK", 137)
    options = Options("quick", chain=ss.io.open_chain(tmp_path / "theta.csv", scores=tmp_path / "gradient.csv"))
    study = goodwin.random_walk(options)
    study.prepare(tmp_path, lambda share: None)
    for unit in study.units():
        whole = unit.work(tmp_path / "none.npz", lambda share: None)
        (tmp_path / "none.npz").unlink()

        def stop_late(share):
            if share > 0.5:
                raise Stopped

        with pytest.raises(Stopped):
            unit.work(tmp_path / "state.npz", stop_late)
        resumed = unit.work(tmp_path / "state.npz", lambda share: None)
        assert all(np.array_equal(whole[name], resumed[name]) for name in whole), unit.name
        (tmp_path / "state.npz").unlink()


def test_a_tape_is_the_samplers_chain_wherever_it_is_read_from(tmp_path):
    sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    recorded = tape.Tape(sampler, np.zeros(3), 5, moves=1000, part=300)
    recorded.record(tmp_path / "tape", lambda share: None)
    state, block = sampler.sample(sampler.init(np.zeros(3), 5), 1000)
    assert recorded.accepted == state.accepted
    for first in (0, 1, 299, 300, 777):
        draws, scores = (np.concatenate(parts) for parts in zip(*recorded.blocks(first), strict=True))
        assert np.array_equal(draws, block.draws[first:]) and np.array_equal(scores, block.scores[first:])


@pytest.mark.parametrize("name", ["adaptivity", "alpha", "theory"])
def test_toy_problems(name, tmp_path, monkeypatch):
    from importlib import import_module

    module = import_module(f"experiments.paper.{name}")
    monkeypatch.setitem(module._STEPS, "quick", 300)
    monkeypatch.setitem(module._REPEATS, "quick", 2)
    lab = laboratory.Laboratory(experiment(name, Options("quick")), tmp_path / name, {"experiment": name})
    lab.run(2, lambda share, status: None, lambda: False)
    written = lab.finish()
    assert all(path.stat().st_size > 100 for path in written)
    results = lab.results()
    assert np.isfinite(results["ksd"]).all() and len(np.unique(results["repeat"])) == 2


def test_kept_draws_grow_with_the_modes_under_the_monotone_rule(monkeypatch, tmp_path):
    from experiments.paper import adaptivity

    monkeypatch.setitem(adaptivity._REPEATS, "quick", 4)
    units = {unit.name: unit for unit in experiment("adaptivity", Options("quick")).units()}
    kept = {
        modes: units[f"imq-monotone-{modes:02d}"].work(tmp_path, lambda share: None)["kept"] for modes in (1, 4, 10)
    }
    sizes = {modes: column.max() for modes, column in kept.items()}
    assert 10 <= sizes[1] < 20 < sizes[4] < 33 < sizes[10] < 65

"""The experiments of the paper run, stop, resume, and report errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import steinstream as ss

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from experiments.paper import NAMES, ExperimentOptions, chain_experiment, create_experiment, goodwin, stored_chain
from experiments.paper.settings import KERNELS
from experiments.results import read_table, select
from experiments.runner import Runner, Stopped
from steinstream.diagnostics.convergence import autocorrelation_time
from steinstream.samplers import RandomWalk
from steinstream.targets import Functions, Goodwin


@pytest.fixture
def walk(tmp_path):
    """A random walk that starts far out, as two csv files without header, like the public chains."""
    sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.2)
    _, block = sampler.sample(sampler.init(np.array([40.0, -40.0]), seed=0), 2000)
    np.savetxt(tmp_path / "theta.csv", block.draws, delimiter=",")
    np.savetxt(tmp_path / "gradient.csv", block.scores, delimiter=",")
    return block


def test_the_list_contains_every_experiment(run_experiment):
    ran = run_experiment("--list")
    assert ran.returncode == 0
    assert [line.split()[0] for line in ran.stdout.splitlines()] == list(NAMES)


def test_a_chain_of_the_user_is_thinned(run_experiment, walk, tmp_path):
    command = ["goodwin-rwm", "--chain", "theta.csv", "--scores", "gradient.csv", "-o", "out"]
    ran = run_experiment(*command, "--jobs", 2)
    assert ran.returncode == 0, ran.stderr
    for name in ("results.parquet", "figure-imq.png", "figure-rbf.png", "summary.md", "settings.json"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    results = read_table(tmp_path / "out" / "results.parquet")
    about = json.loads((tmp_path / "out" / "chain.json").read_text())
    assert 10 < about["burn_in"] < 500
    np.testing.assert_allclose(about["mean"], walk.draws[about["burn_in"] :].mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(about["sd"], walk.draws[about["burn_in"] :].std(axis=0), rtol=1e-9)
    for stream, part, kernel in (("first", "whole", "imq"), ("best", "settled", "rbf")):
        rows = slice(about["burn_in"] if part == "settled" else 0, None)
        x, s = walk.draws[rows], walk.scores[rows]
        settings = {**ss.PAPER, "kernel": KERNELS[kernel], "candidates": 10 if stream == "best" else 1}
        thinner = ss.Thinner(2, **settings)
        thinner.extend(x, s) if stream == "best" else thinner.extend(x[::10], s[::10])
        curve = select(results, stream=stream, part=part, kernel=kernel, method="KSDT-SQRT")
        assert curve["ksd"][-1] == thinner.ksd
        assert curve["kept"][-1] == len(thinner)
    again = run_experiment(*command)
    assert again.returncode == 0 and again.stdout.splitlines()[:-1] == ran.stdout.splitlines()[:-1]


def test_errors_are_reported_with_a_remedy(run_experiment, walk, tmp_path):
    chain = ["--chain", "theta.csv", "--scores", "gradient.csv"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    ran = run_experiment("goodwin-rwm", *chain, "-o", "full")
    assert ran.returncode == 2 and "exists and is not a folder of an experiment" in ran.stderr
    ran = run_experiment("adaptivity", *chain)
    assert (
        ran.returncode == 2 and "--chain has no effect for adaptivity" in ran.stderr and "its own draws" in ran.stderr
    )
    np.savetxt(tmp_path / "short.csv", walk.draws[:15], delimiter=",")
    np.savetxt(tmp_path / "short-gradient.csv", walk.scores[:15], delimiter=",")
    ran = run_experiment("goodwin-rwm", "--chain", "short.csv", "--scores", "short-gradient.csv")
    assert ran.returncode == 2 and "has 15 draws, and one step uses 10" in ran.stderr
    ran = run_experiment("goodwin-rwm", *chain, "--negate-scores", "-o", "negated")
    assert ran.returncode == 2 and "look negated" in ran.stderr
    np.savez(tmp_path / "empty.npz", z=np.zeros(3))
    ran = run_experiment("goodwin-rwm", "--observations", "empty.npz")
    assert ran.returncode == 2 and "no array y" in ran.stderr
    ran = run_experiment("calcium", "--step", "0.1")
    assert ran.returncode == 2 and "--step has no effect for calcium" in ran.stderr
    ran = run_experiment("goodwin-rmw")
    assert ran.returncode == 2 and "goodwin-rwm" in ran.stderr


def test_the_step_is_that_of_the_sampler_and_is_in_the_title():
    slow = goodwin.mala(ExperimentOptions("quick", step=0.00012))
    assert slow.chains[0].sampler.step == 0.00012 and slow.title == "Goodwin oscillator, MALA, step 0.00012"
    assert goodwin.mala(ExperimentOptions("quick")).chains[0].sampler.step == 0.003


def test_a_folder_of_another_experiment_is_not_changed(tmp_path):
    experiment = create_experiment("alpha", ExperimentOptions("quick"))
    Runner(experiment, tmp_path / "out", {"experiment": "alpha", "seed": 0})
    with pytest.raises(ss.SteinstreamError, match="contains an experiment with seed 0, not 1"):
        Runner(experiment, tmp_path / "out", {"experiment": "alpha", "seed": 1})


def test_an_interrupted_run_resumes_to_the_same_numbers(tmp_path, environment):
    """Killed while sampling and interrupted while thinning: the results equal those of a run without interruption."""
    command = [sys.executable, "-m", "experiments", "goodwin-rwm", "--moves", "40000", "--jobs", "1"]
    for cut, wait in (
        (signal.SIGKILL, "chain/000000000.npz"),
        (signal.SIGINT, "runs/best-every-draw-imq-whole.parquet"),
    ):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*command, "-o", "cut"], cwd=tmp_path, env=environment, **pipes)
        while not (tmp_path / "cut" / wait).exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        process.send_signal(cut)
        process.communicate(timeout=900)
        assert process.returncode == (-9 if cut == signal.SIGKILL else 130)
    before = (tmp_path / "cut" / "chain" / "000000000.npz").stat().st_mtime_ns
    for folder in ("cut", "whole"):
        ran = subprocess.run([*command, "-o", folder], cwd=tmp_path, env=environment, capture_output=True, timeout=600)
        assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "cut" / "chain" / "000000000.npz").stat().st_mtime_ns == before
    one, other = (read_table(tmp_path / folder / "results.parquet") for folder in ("cut", "whole"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_work_unit_resumes_from_its_checkpoint(tmp_path, walk, monkeypatch):
    monkeypatch.setattr(chain_experiment, "_CHECKPOINT_INTERVAL", 0.0)
    monkeypatch.setattr(stored_chain, "_BLOCK", 137)
    chain = ss.io.open_chain(tmp_path / "theta.csv", scores=tmp_path / "gradient.csv")
    experiment = goodwin.random_walk(ExperimentOptions("quick", chain=chain))
    experiment.prepare(tmp_path, lambda fraction: None)
    for unit in experiment.units():
        whole = unit.work(tmp_path / "none.npz", lambda fraction: None)
        (tmp_path / "none.npz").unlink()

        def stop_late(fraction):
            if fraction > 0.5:
                raise Stopped

        with pytest.raises(Stopped):
            unit.work(tmp_path / "state.npz", stop_late)
        resumed = unit.work(tmp_path / "state.npz", lambda fraction: None)
        assert all(np.array_equal(whole[name], resumed[name]) for name in whole), unit.name
        (tmp_path / "state.npz").unlink()


def test_a_recorded_chain_can_be_read_from_any_draw(tmp_path):
    sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    recorded = stored_chain.SampledChain(sampler, np.zeros(3), 5, moves=1000, part=300)
    recorded.record(tmp_path / "chain", lambda fraction: None)
    state, block = sampler.sample(sampler.init(np.zeros(3), 5), 1000)
    assert recorded.accepted == state.accepted
    for first in (0, 1, 299, 300, 777):
        draws, scores = (np.concatenate(parts) for parts in zip(*recorded.blocks(first), strict=True))
        assert np.array_equal(draws, block.draws[first:]) and np.array_equal(scores, block.scores[first:])


@pytest.mark.parametrize("name", ["adaptivity", "alpha", "theory"])
def test_experiments_with_mixtures_write_all_results(name, tmp_path, monkeypatch):
    from importlib import import_module

    module = import_module(f"experiments.paper.{name}")
    monkeypatch.setitem(module._STEPS, "quick", 300)
    monkeypatch.setitem(module._REPEATS, "quick", 2)
    runner = Runner(create_experiment(name, ExperimentOptions("quick")), tmp_path / name, {"experiment": name})
    runner.run(2, lambda fraction, status: None, lambda: False)
    written = runner.finish()
    assert all(path.stat().st_size > 100 for path in written)
    results = runner.results()
    assert np.isfinite(results["ksd"]).all() and len(np.unique(results["repeat"])) == 2


def test_the_kept_set_grows_with_the_modes_under_the_monotone_rule(monkeypatch, tmp_path):
    from experiments.paper import adaptivity

    monkeypatch.setitem(adaptivity._REPEATS, "quick", 4)
    units = {unit.name: unit for unit in create_experiment("adaptivity", ExperimentOptions("quick")).units()}
    kept = {
        modes: units[f"imq-monotone-{modes:02d}"].work(tmp_path, lambda fraction: None)["kept"] for modes in (1, 4, 10)
    }
    sizes = {modes: column.max() for modes, column in kept.items()}
    assert 10 <= sizes[1] < 20 < sizes[4] < 33 < sizes[10] < 65


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["goodwin"], ["'goodwin'", "Did you mean goodwin-rwm or goodwin-mala?"]),
        (["goodwin-rwm", "--seed", "-1"], ["--seed: -1", "at least 0"]),
        (["goodwin-rwm", "--negate-scores"], ["--negate-scores has no effect without --chain"]),
        (["goodwin-rwm", "--quick", "-o", "file.npz"], ["is a file"]),
        (["adaptivity", "--moves", "1000"], ["--moves has no effect for adaptivity"]),
        (["alpha", "--preconditioner", "auto"], ["--preconditioner has no effect for alpha"]),
    ],
)
def test_wrong_arguments_are_reported_with_one_message(run_experiment, tmp_path, arguments, words):
    (tmp_path / "file.npz").write_bytes(b"")
    ran = run_experiment(*arguments)
    assert ran.returncode == 2 and ran.stderr.startswith("error: ") and "Traceback" not in ran.stderr
    assert all(word in ran.stderr for word in words), ran.stderr


def test_an_estimated_preconditioner_is_used(run_experiment, walk, tmp_path):
    ran = run_experiment(
        "goodwin-rwm", "--chain", "theta.csv", "--scores", "gradient.csv", "--preconditioner", "auto", "-o", "fitted"
    )
    assert ran.returncode == 0, ran.stderr
    burn_in = json.loads((tmp_path / "fitted" / "chain.json").read_text())["burn_in"]
    preconditioner = ss.Preconditioner.estimate("auto", walk.draws[burn_in:])
    thinner = ss.Thinner(2, **{**ss.PAPER, "preconditioner": preconditioner})
    thinner.extend(walk.draws[::10], walk.scores[::10])
    results = read_table(tmp_path / "fitted" / "results.parquet")
    curve = select(results, stream="first", part="whole", kernel="imq", method="KSDT-SQRT")
    assert curve["ksd"][-1] == thinner.ksd


def test_draws_after_burn_in_are_evenly_spaced():
    class Counting:
        dim, moves = 1, 10_000

        def blocks(self, first=0):
            for begin in range(first, self.moves, 777):
                draws = np.arange(begin, min(begin + 777, self.moves), dtype=float)[:, None]
                yield draws, draws

    chosen, stride = chain_experiment.draws_after_burn_in(Counting(), 500, 4096)
    assert len(chosen) <= 4096 and chosen[0, 0] == 500 and stride == 4 and set(np.diff(chosen[:, 0])) == {4.0}


def test_several_chains_have_their_own_seeds_and_a_common_summary(run_experiment, tmp_path):
    np.save(tmp_path / "y.npy", Goodwin.simulated(0).y)
    command = ["goodwin-rwm", "--quick", "--moves", 2000, "--observations", "y.npy", "--jobs", 1]
    ran = run_experiment(*command, "--chains", 2, "-o", "two")
    assert ran.returncode == 0, ran.stderr
    again = run_experiment(*command, "--seed", 1, "-o", "one")
    assert again.returncode == 0, again.stderr
    two, one = (read_table(tmp_path / name / "results.parquet") for name in ("two", "one"))
    second = select(two, chain=1)
    assert all(np.array_equal(second[name], one[name]) for name in one)
    variant = {"kernel": "imq", "stream": "first", "part": "whole", "method": "KSDT-SQRT", "step": 200}
    mean = select(two, **variant)["ksd"].mean()
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("| IMQ | first of 10 | whole | KSDT-SQRT")]
    shown, error = line.split(" | ")[6].split(" ± ")
    assert float(shown) == pytest.approx(mean, rel=1e-3) and float(error) > 0
    assert "2 chains of 2,000 moves" in ran.stdout


def test_chain_json_has_the_autocorrelation_times(run_experiment, walk, tmp_path):
    ran = run_experiment("goodwin-rwm", "--chain", "theta.csv", "--scores", "gradient.csv", "-o", "times")
    assert ran.returncode == 0, ran.stderr
    about = json.loads((tmp_path / "times" / "chain.json").read_text())
    expected = autocorrelation_time(walk.draws[about["burn_in"] :])
    np.testing.assert_allclose(about["autocorrelation"], expected, rtol=1e-6)
    assert f"{expected[0]:,.0f} |" in ran.stdout


def test_the_batch_runner_builds_the_command_lines_of_all_experiments(tmp_path):
    from experiments import run_all

    fitted = ("goodwin-rwm", ["--full", "--preconditioner", "auto"])
    assert run_all.command_line("goodwin-rwm-fitted", "full", None) == fitted
    name, options = run_all.command_line("goodwin-published", "full", tmp_path)
    assert name == "goodwin-rwm" and str(tmp_path / run_all.PUBLISHED) in options and "--chain-stride" in options
    name, options = run_all.command_line("imdb", "full", tmp_path)
    assert name == "imdb" and options[::2] == ["--data", "--glove"]
    name, options = run_all.command_line("cifar10-authors", "full", tmp_path)
    assert name == "cifar10" and options == ["--posterior", "authors", "--data", str(tmp_path / "cifar10")]
    assert run_all.command_line("goodwin-rwm-chains", "full", None) == ("goodwin-rwm", ["--chains", "5"])
    slow = ("goodwin-mala", ["--full", "--step", "0.00012"])
    assert run_all.command_line("goodwin-mala-slow", "full", None) == slow
    for name in (*NAMES, "goodwin-published", "goodwin-rwm-chains", "goodwin-mala-slow", "imdb-authors"):
        experiment, options = run_all.command_line(name, "quick", tmp_path)
        assert experiment in NAMES and options[0] == "--quick"


def test_the_batch_runner_runs_existing_scripts_and_writes_to_committed_folders():
    from experiments import run_all

    assert all((run_all.HERE / path).exists() for path in run_all.SCRIPTS.values())
    assert all((run_all.HERE / f"{name}-fitted" / "results.parquet").exists() for name in run_all.FITTED)


@pytest.mark.parametrize("script", ["published/run.py", "goodwin-mala/steps.py"])
def test_a_script_of_the_paper_starts_from_any_folder(script, tmp_path):
    from experiments import run_all

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(run_all.HERE.parent / "src")
    command = [sys.executable, str(run_all.HERE / script), "--help"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and "--data" in ran.stdout, ran.stderr

"""A compiled model writes to named pipes: only the kept draws are stored, and nothing waits forever."""

from __future__ import annotations

import doctest
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError, SamplerError
from steinstream.integrations._draw_metadata import DrawMetadata
from steinstream.integrations.stan import LiveRun, as_command, sample, scores
from steinstream.io import open_chain
from tests.stan_runs import DATA, FAKE, constrain, gradient, log_density, program, whole
from tests.stan_runs import sample as sample_to_files

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "stan.md"


@pytest.fixture(autouse=True)
def pipes_are_gone(tmp_path, monkeypatch):
    """Require that every test deletes its pipes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def thinned(folder, chains, samples, **settings):
    """Thin the same chains from files."""
    parts = [whole(open_chain(sample_to_files(folder, chain + 1, samples=samples))) for chain in range(chains)]
    thinner = ss.Thinner(4, preconditioner=ss.Streaming(), **settings)
    x, s = (np.stack([part[i] for part in parts], axis=1).reshape(-1, 4) for i in (0, 1))
    ids = [(chain, draw) for draw in range(samples) for chain in range(chains)]
    return thinner.extend(x, s, ids=ids) and thinner.kept


def in_time(run, seconds=600):
    """``run.wait()`` with a time limit."""
    end = time.monotonic() + seconds
    while run.poll(1.0):
        assert time.monotonic() < end, "no progress"
    return run.kept


def assert_same(kept, expected):
    assert np.array_equal(kept.ids, expected.ids) and np.array_equal(kept.draws, expected.draws)
    assert kept.ksd == expected.ksd
    for name, value in zip(["mu", "sigma", "w"], constrain(kept.draws), strict=False):
        assert np.allclose(kept.variables[name].values, value, rtol=1e-13)


@pytest.mark.parametrize(
    ("chains", "settings"),
    [(1, {"size": 40}), (3, {"size": 40}), (2, {"growth": "sqrt"}), (2, {"candidates": 7, "size": 20})],
)
def test_the_result_is_that_of_files(chains, settings, tmp_path):
    with LiveRun(program(samples=500), chains=chains, **settings) as run:
        kept = run.wait()
    assert_same(kept, thinned(tmp_path, chains, 500, **settings))
    exact = gradient(log_density, kept.draws)
    assert np.abs(kept.scores - exact).max() < 1e-8 * np.abs(exact).max()
    # rows of the output file are held for kept draws, and for draws that wait for more candidates
    assert len(run._output_rows) <= len(kept) + settings.get("candidates", 1)


def test_convergence_and_divergences_of_the_chains_are_recorded():
    command = [*program(samples=500), "fake", "diverge=50"]
    source = sample(command, chains=2, size=40).settings["source"]
    assert source["tool"] == "stan" and source["draws"] == [500, 500] and source["divergences"] == 20
    assert 0.99 < source["rhat"] < 1.05 and source["ess"] > 100


class BridgeModel:
    """The interface of ``bridgestan.StanModel`` for the model of ``fake_stan.py``."""

    def param_names(self):
        return ["mu", "sigma", "w.1", "w.2", "w.3"]

    def param_unc_names(self):
        return ["mu", "sigma", "w.1", "w.2"]

    def param_unconstrain(self, theta):
        mu, sigma, first, second, third = theta
        return np.array([mu, np.log(sigma), np.log(first / (1 - first)) + np.log(2.0), np.log(second / third)])

    def log_density_gradient(self, theta, *, jacobian):
        assert jacobian
        return log_density(theta[None])[0], gradient(log_density, theta[None])[0]


@pytest.fixture
def fit(tmp_path):
    """Output files of two chains without their diagnostic files, and the unconstrained draws and scores."""
    diagnostic = [sample_to_files(tmp_path, chain, samples=100) for chain in (1, 2)]
    parts = [whole(open_chain(path)) for path in diagnostic]
    for path in diagnostic:
        path.unlink()
    return [tmp_path / "out-1.csv", tmp_path / "out-2.csv"], *(np.stack([part[i] for part in parts]) for i in (0, 1))


def test_scores_of_output_files_are_those_of_the_diagnostic_files(fit):
    files, draws, expected = fit
    fractions = []
    scored = scores(BridgeModel(), files, progress=fractions.append)
    assert fractions == sorted(fractions) and fractions[-1] == 1.0 and len(fractions) > 100
    np.testing.assert_allclose(scored.draws, draws, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(scored.scores, expected, rtol=1e-8, atol=1e-8)
    kept = scored.thin(size=20)
    assert kept.names == ("mu_unc", "sigma_unc", "w_unc.1", "w_unc.2") and set(kept.ids[:, 0]) == {0, 1}
    np.testing.assert_allclose(kept.variables["w"].values, constrain(kept.draws)[2])
    assert scores(BridgeModel(), files[0]).draws.shape == (1, 100, 4)


def test_scores_of_bridgestan_are_those_of_the_diagnostic_files(fit):
    """The compiled model of normal_simplex.stan, which is that of the program that stands for CmdStan here."""
    bridgestan = pytest.importorskip("bridgestan", reason="BridgeStan is not installed")
    library = os.environ.get("STEINSTREAM_TEST_BRIDGESTAN")
    if library is None:
        pytest.skip("STEINSTREAM_TEST_BRIDGESTAN is not the compiled model tests/integrations/normal_simplex.stan")
    files, draws, expected = fit
    model = bridgestan.StanModel(library)
    scored = scores(model, files)
    np.testing.assert_allclose(scored.draws, draws, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(scored.scores, expected, rtol=1e-8, atol=1e-8)
    kept = scored.thin(size=20)
    np.testing.assert_allclose(kept.variables["w"].values, constrain(kept.draws)[2])
    assert kept.names == ("mu_unc", "sigma_unc", "w_unc.1", "w_unc.2") and kept.settings["source"]["tool"] == "stan"


def test_scores_carry_the_convergence_of_the_fit(tmp_path):
    pandas = pytest.importorskip("pandas")
    for chain in (1, 2):
        sample_to_files(tmp_path, chain, samples=200, fake=["diverge=40"])
    source = scores(BridgeModel(), [tmp_path / "out-1.csv", tmp_path / "out-2.csv"]).thin(size=20).settings["source"]
    assert source["tool"] == "stan" and source["draws"] == [200, 200] and source["divergences"] == 10
    assert 0.9 < source["rhat"] < 1.2 and source["rhat_of"] in ("mu_unc", "sigma_unc", "w_unc.1", "w_unc.2")
    table = pandas.read_csv(tmp_path / "out-1.csv", comment="#")
    source = scores(BridgeModel(), table).thin(size=20).settings["source"]
    assert source["draws"] == [200] and source["divergences"] == 5
    files = ss.io.open_chains([str(tmp_path / "out-diagnostic-*.csv")])
    assert files.divergences() == 10


def test_scores_can_be_computed_from_tables_and_arrays(fit):
    pandas = pytest.importorskip("pandas")
    draws = fit[1][0]
    mu, sigma, w, _ = constrain(draws)
    table = np.column_stack([w, mu, sigma])
    frame = pandas.DataFrame(table, columns=["w[1]", "w[2]", "w[3]", "mu", "sigma"])
    array = np.column_stack([mu, sigma, w])
    for given in (frame, array, np.stack([array, array])):
        np.testing.assert_allclose(scores(BridgeModel(), given).draws.reshape(-1, 100, 4)[0], draws, atol=1e-8)
    with pytest.raises(InputError, match=r"no sigma, which are parameters of the model"):
        scores(BridgeModel(), frame.drop(columns="sigma"))
    with pytest.raises(InputError, match=r"shape \(100, 4\), but the model has 5 parameters"):
        scores(BridgeModel(), array[:, :4])
    with pytest.raises(InputError, match=r"Expected a bridgestan.StanModel, got str"):
        scores("model.stan", array)


def test_settings_can_be_given_as_a_config(tmp_path):
    kept = sample(program(samples=500), chains=2, config=ss.ThinConfig(size=40))
    assert_same(kept, thinned(tmp_path, 2, 500, size=40))


def test_the_preconditioner_can_be_estimated_in_a_warmup():
    kept = sample(program(samples=300), chains=2, size=20, preconditioner=ss.Warmup(draws=250), candidates=3)
    assert np.allclose(kept.variables["sigma"].values, np.exp(kept.draws[:, 1]), rtol=1e-13)


@pytest.mark.parametrize("preconditioner", [ss.Warmup(draws=100), ss.Streaming()])
@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_metadata_are_held_for_kept_and_pending_draws_only(rows, candidates, preconditioner):
    x = np.random.default_rng(0).normal(size=(300, 2))
    x[50, 0] = np.nan
    thinner = ss.Thinner(2, size=20, preconditioner=preconditioner, candidates=candidates, on_bad="skip")
    metadata = DrawMetadata()
    for at in range(0, 300, rows):
        ids = [(0, draw) for draw in range(at, min(at + rows, 300))]
        step = thinner.extend(x[at : at + rows], -x[at : at + rows], ids=ids)
        metadata.update(thinner, step, [(id, f"draw {id[1]}") for id in ids])
        if len(thinner):
            kept = thinner.kept.ids.tolist()
            assert metadata.select(kept) == [f"draw {draw}" for _, draw in kept]
            assert len(metadata) <= max(len(thinner), len(kept)) + candidates
    assert len(kept) == 20


def test_a_saved_warmup_is_skipped():
    kept = sample(program("num_warmup=77", "save_warmup=1", samples=200), chains=2, size=20)
    assert kept.settings["seen"] == 400
    assert np.allclose(kept.variables["w"].values, constrain(kept.draws)[2], rtol=1e-13)


def test_pipes_that_fill_at_different_rates_do_not_block():
    """A line of the output file is forty times as long as one of the diagnostic file."""
    with LiveRun([*program(samples=300), "fake", "wide=1000"], chains=2, size=20) as run:
        kept = in_time(run)
    assert kept.variables["yhat"].values.shape == (20, 1000)
    assert np.allclose(kept.variables["sigma"].values, np.exp(kept.draws[:, 1]), rtol=1e-13)


def test_a_fast_chain_waits_for_a_slow_one(tmp_path, monkeypatch):
    """The second chain pauses; only a limited number of draws of the first one is read."""
    monkeypatch.setattr("steinstream.integrations.stan._MAX_AHEAD", 50)
    gate, script = tmp_path / "gate", tmp_path / "model"
    pause = f'case "$*" in *id=2*) set -- "$@" fake mode=pause at=100 gate={gate};; esac'
    script.write_text(f'#!/bin/sh\n{pause}\nexec {sys.executable} {FAKE} "$@"\n')
    script.chmod(0o755)
    command = [str(script), *program(samples=2000)[2:]]
    with LiveRun(command, chains=2, size=40) as run:
        until = time.monotonic() + 600
        while run.thinner is None or run.thinner.seen < 200:
            assert run.poll(0.1) and time.monotonic() < until
        for _ in range(20):
            run.poll(0.01)
            assert run.ready[0] < 50 + (1 << 16) // 100  # at most one more reading of the pipe
        assert run.thinner.seen == 200 and len(run.kept) == 40
        gate.touch()
        kept = in_time(run)
    assert_same(kept, thinned(tmp_path, 2, 2000, size=40))


@pytest.mark.parametrize(("mode", "code"), [("die", "with exit code 134"), ("ok", "with exit code 0")])
def test_a_chain_that_ends_early_is_an_error_with_the_kept_draws(mode, code, tmp_path):
    with (
        pytest.raises(SamplerError, match=f"(?s)ended {code} after 300 of 500 draws.*bad_alloc") as died,
        LiveRun([*program(samples=500), "fake", f"mode={mode}", "at=300"], chains=1, size=30) as run,
    ):
        run.wait()
    expected = ss.Thinner(4, preconditioner=ss.Streaming(), size=30)
    x, s, _ = (part[:300] for part in whole(open_chain(sample_to_files(tmp_path, samples=500))))
    expected.extend(x, s)
    assert_same(died.value.kept, expected.kept)


def test_a_program_that_never_opens_its_pipes_is_an_error():
    with (
        pytest.raises(SamplerError, match=r"(?s)exit code 1 after 0 of .*variable does not exist") as died,
        LiveRun([*program(), "fake", "mode=crash"], chains=2) as run,
    ):
        in_time(run)
    assert died.value.kept is None


def test_a_program_without_output_is_an_error():
    with pytest.raises(SamplerError, match=r"exit code 0 after 0 of .* none"), LiveRun(["true"], chains=1) as run:
        in_time(run)


def test_the_error_names_the_signal_that_killed_a_chain(tmp_path):
    gate = f"gate={tmp_path / 'never'}"
    with LiveRun([*program(samples=500), "fake", "mode=pause", "at=200", gate], chains=1, size=30) as run:
        while run.thinner is None or run.thinner.seen < 200:
            assert run.poll(1.0)
        run.processes[0].kill()
        with pytest.raises(SamplerError, match="by signal 9 after 200 of 500") as died:
            run.wait()
    assert len(died.value.kept) == 30


def test_leaving_the_context_ends_the_processes(tmp_path):
    gate = f"gate={tmp_path / 'never'}"
    with LiveRun([*program(samples=500), "fake", "mode=pause", "at=200", gate], chains=2, size=30) as run:
        while run.thinner is None or run.thinner.seen < 400:
            assert run.poll(1.0)
    assert all(process.returncode == -signal.SIGTERM for process in run.processes)
    assert len(run.kept) == 30  # still available


def test_ctrl_c_ends_the_processes_and_deletes_the_pipes(tmp_path, pipes_are_gone):
    gate = f"gate={tmp_path / 'never'}"
    script = f"""
import sys, tempfile
tempfile.tempdir = {str(pipes_are_gone)!r}
from steinstream.integrations.stan import LiveRun
with LiveRun({[*program(samples=500), "fake", "mode=pause", "at=200", gate]!r}, chains=2, size=30) as run:
    while run.thinner is None or run.thinner.seen < 400:
        run.poll(1.0)
    print(*(process.pid for process in run.processes), flush=True)
    run.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        pids = [int(pid) for pid in running.stdout.readline().split()]
        assert len(pids) == 2
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=600)
    assert "KeyboardInterrupt" in errors and running.returncode != 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_no_files_are_written(pipes_are_gone, tmp_path):
    seen = set()
    gate = f"gate={tmp_path / 'gate'}"
    with LiveRun([*program(samples=300), "fake", "mode=pause", "at=0", gate], chains=2, size=20) as run:
        files = list(pipes_are_gone.rglob("*.csv"))
        assert len(files) == 4 and all(stat.S_ISFIFO(file.stat().st_mode) for file in files)
        (tmp_path / "gate").touch()
        while run.poll(1.0):
            seen |= {file for file in pipes_are_gone.rglob("*") if file.is_file()}
    assert not seen


@pytest.mark.parametrize(("fake", "error"), [("sign=-1", NegatedScoresError), ("nan=1", InputError)])
def test_wrong_gradients_are_errors(fake, error):
    with pytest.raises(error, match=r"look negated|draw 0 is nan"):
        sample([*program(samples=500), "fake", fake], chains=2, size=20)


def test_wrong_arguments_are_errors_before_anything_starts(tmp_path):
    for command, problem in [
        (["m", "sample", "num_chains=4"], "contains num_chains=4"),
        (["m", "id=3"], "contains id=3"),
        (["m", "output", "file=a.csv"], "contains file=a.csv"),
        (["m", "output", "diagnostic_file=a.csv"], "contains diagnostic_file=a.csv"),
    ]:
        with pytest.raises(InputError, match=problem):
            sample(command, chains=2)
    with pytest.raises(InputError, match="size must be"):
        sample(["m"], size=0)
    with pytest.raises(InputError, match="chains must be at least 1"):
        sample(["m"], chains=0)
    with pytest.raises(InputError, match="No chains are running"):
        LiveRun(["m"]).wait()
    with pytest.raises(InputError, match=r"Cannot start .*no-model: No such file"):
        sample(tmp_path / "no-model")


def test_arguments_keep_their_sections():
    command = ["./m", "sample", "output", "sig_figs=9", "data", "file=d.json"]
    expected = "./m sample output file={output} diagnostic_file={diagnostic} sig_figs=9 data file=d.json id=2"
    assert as_command(command, 1, 2) == expected.split()


def test_the_result_so_far_is_available_at_any_time():
    with LiveRun(program(samples=500), chains=1, size=20) as run:
        sizes = []
        while run.poll(1.0):
            if run.thinner is not None and len(run.thinner):
                sizes.append(len(run.kept))
    assert sizes and max(sizes) <= 20


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the CmdStan files are not in {DATA}")
def test_a_real_run_replayed_through_pipes(tmp_path):
    """The program copies files that CmdStan wrote to the pipes."""
    replay = tmp_path / "replay.py"
    replay.write_text(f"""
import gzip, sys, threading
words = dict(word.split("=", 1) for word in sys.argv if "=" in word)
def copy(kind, path):
    with open(path, "wb") as file:
        file.write(gzip.open(f"{DATA}/normal_simplex{{kind}}-{{words['id']}}.csv.gz").read())
both = ("", words["file"]), ("-diagnostic", words["diagnostic_file"])
copies = [threading.Thread(target=copy, args=each) for each in both]
for each in copies: each.start()
for each in copies: each.join()
""")
    kept = sample([sys.executable, str(replay)], chains=2, size=50)
    assert kept.settings["seen"] == 4000 and kept.settings["stan"]["model"] == "gam_model"
    chains = [open_chain(DATA / f"normal_simplex-diagnostic-{chain}.csv.gz") for chain in (1, 2)]
    for number, chain in enumerate(chains):
        mine = kept.ids[:, 0] == number
        draws, scores, _ = whole(chain)
        assert np.array_equal(kept.draws[mine], draws[kept.ids[mine, 1]])
        assert np.array_equal(kept.scores[mine], scores[kept.ids[mine, 1]])
        stored = chain.variables(kept.ids[mine] - [number, 0])
        assert all(np.array_equal(kept.variables[name].values[mine], stored[name].values) for name in stored)


def test_the_documentation_page(tmp_path, monkeypatch):
    if not PAGE.is_file():
        pytest.skip(f"{PAGE} does not exist")
    model = tmp_path / "model"
    model.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    model.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, globs={}, optionflags=doctest.ELLIPSIS)
    assert tried and not failed

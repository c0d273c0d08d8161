"""A compiled model runs into named pipes: nothing but the kept set is stored, and nobody waits for ever."""

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
from stan_runs import DATA, FAKE, constrain, gradient, log_density, program, sample, whole

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError, SamplerError
from steinstream.integrations._draw_metadata import Beside
from steinstream.integrations.stan import as_command, run
from steinstream.io import open_chain

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "stan.md"


@pytest.fixture(autouse=True)
def pipes_are_gone(tmp_path, monkeypatch):
    """Whatever happens, no pipe is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def thinned(folder, chains, samples, **settings):
    """What is kept of the same chains, had they been written to files."""
    parts = [whole(open_chain(sample(folder, chain + 1, samples=samples))) for chain in range(chains)]
    thinner = ss.Thinner(4, preconditioner=ss.Streaming(), **settings)
    x, s = (np.stack([part[i] for part in parts], axis=1).reshape(-1, 4) for i in (0, 1))
    ids = [(chain, draw) for draw in range(samples) for chain in range(chains)]
    return thinner.extend(x, s, ids=ids) and thinner.kept


def in_time(live, seconds=120):
    """``wait`` that fails where it would wait for ever."""
    end = time.monotonic() + seconds
    while live.poll(1.0):
        assert time.monotonic() < end, "nothing moves any more"
    return live.kept


def assert_same(kept, expected):
    assert np.array_equal(kept.ids, expected.ids) and np.array_equal(kept.draws, expected.draws)
    assert kept.ksd == expected.ksd
    for name, value in zip(["mu", "sigma", "w"], constrain(kept.draws), strict=False):
        assert np.allclose(kept.variables[name].values, value, rtol=1e-13)


@pytest.mark.parametrize(
    ("chains", "settings"),
    [(1, {"size": 40}), (3, {"size": 40}), (2, {"growth": "sqrt"}), (2, {"candidates": 7, "size": 20})],
)
def test_it_keeps_what_files_would_have_given(chains, settings, tmp_path):
    with run(program(samples=500), chains=chains, **settings) as live:
        kept = live.wait()
    assert_same(kept, thinned(tmp_path, chains, 500, **settings))
    exact = gradient(log_density, kept.draws)
    assert np.abs(kept.scores - exact).max() < 1e-8 * np.abs(exact).max()
    # Beside what is kept only the draws are held that wait for more candidates.
    assert len(live._beside) <= len(kept) + settings.get("candidates", 1)


def test_coordinates_may_wait_for_a_warmup(tmp_path):
    with run(program(samples=300), chains=2, size=20, preconditioner=ss.Warmup(draws=250), candidates=3) as live:
        kept = live.wait()
    assert np.allclose(kept.variables["sigma"].values, np.exp(kept.draws[:, 1]), rtol=1e-13)


@pytest.mark.parametrize("preconditioner", [ss.Warmup(draws=100), ss.Streaming()])
@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_what_stands_beside_kept_draws_is_held_and_nothing_else(rows, candidates, preconditioner):
    x = np.random.default_rng(0).normal(size=(300, 2))
    x[50, 0] = np.nan
    thinner = ss.Thinner(2, size=20, preconditioner=preconditioner, candidates=candidates, on_bad="skip")
    beside = Beside()
    for at in range(0, 300, rows):
        ids = [(0, draw) for draw in range(at, min(at + rows, 300))]
        step = thinner.extend(x[at : at + rows], -x[at : at + rows], ids=ids)
        beside.update(thinner, step, [(id, f"draw {id[1]}") for id in ids])
        if len(thinner):
            kept = thinner.kept.ids.tolist()
            assert beside.of(kept) == [f"draw {draw}" for _, draw in kept]
            assert len(beside) <= max(len(thinner), len(kept)) + candidates
    assert len(kept) == 20


def test_a_saved_warmup_is_left_out(tmp_path):
    with run(program("num_warmup=77", "save_warmup=1", samples=200), chains=2, size=20) as live:
        kept = live.wait()
    assert kept.settings["seen"] == 400
    assert np.allclose(kept.variables["w"].values, constrain(kept.draws)[2], rtol=1e-13)


def test_pipes_that_are_filled_at_different_speeds_do_not_block(tmp_path):
    """A line of the output is forty times as long as one of the diagnostic file: either pipe alone would fill up."""
    with run([*program(samples=300), "fake", "wide=1000"], chains=2, size=20) as live:
        kept = in_time(live)
    assert kept.variables["yhat"].values.shape == (20, 1000)
    assert np.allclose(kept.variables["sigma"].values, np.exp(kept.draws[:, 1]), rtol=1e-13)


def test_a_fast_chain_waits_for_a_slow_one(tmp_path, monkeypatch):
    """The second chain pauses; of the first no more is held than is allowed."""
    monkeypatch.setattr("steinstream.integrations.stan._AHEAD", 50)
    gate, script = tmp_path / "gate", tmp_path / "model"
    pause = f'case "$*" in *id=2*) set -- "$@" fake mode=pause at=100 gate={gate};; esac'
    script.write_text(f'#!/bin/sh\n{pause}\nexec {sys.executable} {FAKE} "$@"\n')
    script.chmod(0o755)
    command = [str(script), *program(samples=2000)[2:]]
    with run(command, chains=2, size=40) as live:
        until = time.monotonic() + 600  # compilation included, on a busy machine
        while live.thinner is None or live.thinner.seen < 200:
            assert live.poll(0.1) and time.monotonic() < until
        for _ in range(20):
            live.poll(0.01)
            assert live._samplers[0].ready < 50 + (1 << 16) // 100  # one more reading of a pipe
        assert live.thinner.seen == 200 and len(live.kept) == 40
        gate.touch()
        kept = in_time(live)
    assert_same(kept, thinned(tmp_path, 2, 2000, size=40))


@pytest.mark.parametrize(("mode", "code"), [("die", "with exit code 134"), ("ok", "with exit code 0")])
def test_a_chain_that_dies_is_reported_with_what_was_kept(mode, code, tmp_path):
    with (
        pytest.raises(SamplerError, match=f"(?s)ended {code} after 300 of 500 draws.*bad_alloc") as died,
        run([*program(samples=500), "fake", f"mode={mode}", "at=300"], chains=1, size=30) as live,
    ):
        live.wait()
    expected = ss.Thinner(4, preconditioner=ss.Streaming(), size=30)
    x, s, _ = (part[:300] for part in whole(open_chain(sample(tmp_path, samples=500))))
    expected.extend(x, s)
    assert_same(died.value.kept, expected.kept)


def test_a_program_that_never_opens_its_pipes_is_reported():
    with (
        pytest.raises(SamplerError, match=r"(?s)exit code 1 after 0 of .*variable does not exist") as died,
        run([*program(), "fake", "mode=crash"], chains=2) as live,
    ):
        in_time(live)
    assert died.value.kept is None


def test_a_program_that_says_nothing_is_reported():
    with pytest.raises(SamplerError, match=r"exit code 0 after 0 of .* none"), run(["true"], chains=1) as live:
        in_time(live)


def test_a_signal_is_named(tmp_path):
    gate = f"gate={tmp_path / 'never'}"
    with run([*program(samples=500), "fake", "mode=pause", "at=200", gate], chains=1, size=30) as live:
        while live.thinner is None or live.thinner.seen < 200:
            assert live.poll(1.0)
        live._samplers[0].process.kill()
        with pytest.raises(SamplerError, match="by signal 9 after 200 of 500") as died:
            live.wait()
    assert len(died.value.kept) == 30


def test_leaving_the_block_ends_the_samplers(tmp_path):
    gate = f"gate={tmp_path / 'never'}"
    with run([*program(samples=500), "fake", "mode=pause", "at=200", gate], chains=2, size=30) as live:
        while live.thinner is None or live.thinner.seen < 400:
            assert live.poll(1.0)
    assert all(sampler.process.returncode == -signal.SIGTERM for sampler in live._samplers)
    assert len(live.kept) == 30  # and what is kept stays


def test_ctrl_c_ends_the_samplers_and_removes_the_pipes(tmp_path, pipes_are_gone):
    gate = f"gate={tmp_path / 'never'}"
    script = f"""
import sys, tempfile
tempfile.tempdir = {str(pipes_are_gone)!r}
from steinstream.integrations._draw_metadata import Beside
from steinstream.integrations.stan import run
with run({[*program(samples=500), "fake", "mode=pause", "at=200", gate]!r}, chains=2, size=30) as live:
    while live.thinner is None or live.thinner.seen < 400:
        live.poll(1.0)
    print(*(sampler.process.pid for sampler in live._samplers), flush=True)
    live.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        pids = [int(pid) for pid in running.stdout.readline().split()]
        assert len(pids) == 2
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert "KeyboardInterrupt" in said and running.returncode != 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_nothing_is_written_but_pipes(pipes_are_gone, tmp_path):
    seen = set()
    gate = f"gate={tmp_path / 'gate'}"
    with run([*program(samples=300), "fake", "mode=pause", "at=0", gate], chains=2, size=20) as live:
        files = list(pipes_are_gone.rglob("*.csv"))
        assert len(files) == 4 and all(stat.S_ISFIFO(file.stat().st_mode) for file in files)
        (tmp_path / "gate").touch()
        while live.poll(1.0):
            seen |= {file for file in pipes_are_gone.rglob("*") if file.is_file()}
    assert not seen


@pytest.mark.parametrize(("fake", "error"), [("sign=-1", NegatedScoresError), ("nan=1", InputError)])
def test_wrong_gradients_are_refused(fake, error):
    with (
        pytest.raises(error, match=r"look negated|draw 0 is nan"),
        run([*program(samples=500), "fake", fake], chains=2, size=20) as live,
    ):
        live.wait()


def test_mistakes_are_found_before_anything_starts(tmp_path):
    for command, problem in [
        (["m", "sample", "num_chains=4"], "num_chains=4 stands"),
        (["m", "id=3"], "id=3 stands"),
        (["m", "output", "file=a.csv"], "file=a.csv stands"),
        (["m", "output", "diagnostic_file=a.csv"], "diagnostic_file=a.csv stands"),
    ]:
        with pytest.raises(InputError, match=problem):
            run(command, chains=2)
    with pytest.raises(InputError, match="size must be"):
        run(["m"], size=0)
    with pytest.raises(InputError, match="at least one"):
        run(["m"], chains=0)
    with pytest.raises(InputError, match="Nothing runs"):
        run(["m"]).wait()
    with pytest.raises(InputError, match=r"cannot start .*no-model: No such file"), run(tmp_path / "no-model"):
        pass


def test_arguments_keep_their_sections():
    command = ["./m", "sample", "output", "sig_figs=9", "data", "file=d.json"]
    assert as_command(command, 1, 2) == [
        "./m", "sample", "output", "file={output}", "diagnostic_file={diagnostic}", "sig_figs=9", "data", "file=d.json",
        "id=2",
    ]  # fmt: skip


def test_the_result_so_far_may_be_asked_for_at_any_time():
    with run(program(samples=500), chains=1, size=20) as live:
        sizes = []
        while live.poll(1.0):
            if live.thinner is not None and len(live.thinner):
                sizes.append(len(live.kept))
    assert sizes and max(sizes) <= 20


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the CmdStan files are not in {DATA}")
def test_a_real_run_replayed_through_pipes(tmp_path):
    """A program that copies the real files' text into the pipes, as CmdStan wrote it."""
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
    with run([sys.executable, str(replay)], chains=2, size=50) as live:
        kept = live.wait()
    assert kept.settings["seen"] == 4000 and kept.settings["stan"]["model"] == "gam_model"
    chains = [open_chain(DATA / f"normal_simplex-diagnostic-{chain}.csv.gz") for chain in (1, 2)]
    for number, chain in enumerate(chains):
        mine = kept.ids[:, 0] == number
        draws, scores, _ = whole(chain)
        assert np.array_equal(kept.draws[mine], draws[kept.ids[mine, 1]])
        assert np.array_equal(kept.scores[mine], scores[kept.ids[mine, 1]])
        stored = chain.variables(kept.ids[mine] - [number, 0])
        assert all(np.array_equal(kept.variables[name].values[mine], stored[name].values) for name in stored)


def test_the_page_runs(tmp_path, monkeypatch):
    if not PAGE.is_file():
        pytest.skip(f"there is no {PAGE}")
    model = tmp_path / "model"
    model.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    model.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, globs={}, optionflags=doctest.ELLIPSIS)
    assert tried and not failed

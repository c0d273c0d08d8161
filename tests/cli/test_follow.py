"""``steinstream follow``: a growing file is thinned as it grows, and a line is read only when it is complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli.follow import follow as command
from steinstream.errors import CheckpointError, InputError, NegatedScoresError
from steinstream.io import csv_follow, open_chain
from tests.stan_runs import constrain, program, sample, whole


def until(condition, what, seconds=600):
    """Wait for a condition; the limit is generous, for a machine that is busy or has to compile first."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


class Meanwhile(threading.Thread):
    """Do something in another thread, and fail the test if that fails."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.error = work, None

    def run(self):
        try:
            self.work()
        except BaseException as error:
            self.error = error
            os.kill(os.getpid(), signal.SIGINT)  # otherwise the test would wait forever

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.join(600)
        if self.error:
            raise self.error


def follow(*arguments):
    """Run the command in this process."""
    command.main([str(a) for a in arguments], standalone_mode=False)


def seen(kept):
    return ss.Kept.load(kept).settings["seen"] if kept.exists() else 0


def thinned(*paths, size=40, count=None):
    """Return what a live thinner keeps of chains whose draws are taken in turn."""
    chains = [[part[:count] for part in whole(open_chain(path))] for path in paths]
    thinner = ss.Thinner(chains[0][0].shape[1], size=size, preconditioner=ss.Streaming())
    for draw in range(max(len(chain[0]) for chain in chains)):
        for number, (x, s, _) in enumerate(chains):
            if draw < len(x):
                thinner.push(x[draw], s[draw], id=(number, draw))
    return thinner.kept


def assert_same(path, expected):
    kept = ss.Kept.load(path)
    assert np.array_equal(kept.ids, expected.ids) and np.array_equal(kept.draws, expected.draws)
    assert kept.ksd == expected.ksd
    for name, value in zip(["mu", "sigma", "w"], constrain(kept.draws), strict=False):
        assert np.allclose(kept.variables[name].values, value, rtol=1e-13)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile the engine first, so that no test waits for that."""
    x = np.random.default_rng(0).normal(size=(300, 2))
    ss.Thinner(2, size=20, preconditioner=ss.Streaming()).extend(x, -x)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [sample(folder, chain, samples=600) for chain in (1, 2)]


@pytest.fixture
def texts(made):
    """Diagnostic and output file of a finished run, as bytes."""
    return made[0].read_bytes(), made[0].with_name("out-1.csv").read_bytes()


def test_a_finished_file_gives_what_thin_gives(steinstream, made, tmp_path):
    ran = steinstream("follow", made[0], "-o", "kept.npz", "--size", 40)
    assert ran.returncode == 0, ran.stderr
    assert "kept 40 of 600 draws" in ran.stdout
    assert_same(tmp_path / "kept.npz", thinned(made[0]))
    assert steinstream("thin", made[0], "-o", "thin.npz", "--size", 40, "--preconditioner", "streaming").returncode == 0
    assert np.array_equal(ss.Kept.load(tmp_path / "thin.npz").ids, ss.Kept.load(tmp_path / "kept.npz").ids)


def test_it_is_followed_from_before_it_is_there_until_its_footer(made, texts, tmp_path):
    diagnostic, kept = tmp_path / "out-diagnostic-1.csv", tmp_path / "kept.npz"

    def write():
        with diagnostic.open("wb") as file, (tmp_path / "out-1.csv").open("wb") as output:
            for at in range(0, len(texts[0]), 7919):  # lines are cut anywhere
                file.write(texts[0][at : at + 7919])
                file.flush()
            output.write(texts[1])

    with Meanwhile(write):
        follow(diagnostic, "-o", kept, "--size", 40)
    assert_same(kept, thinned(made[0]))


def test_a_writer_may_pause_in_the_middle_of_a_number(made, texts, tmp_path):
    diagnostic, output, kept = tmp_path / "out-diagnostic-1.csv", tmp_path / "out-1.csv", tmp_path / "kept.npz"
    head = texts[0].index(b"\n", 60_000) - 3
    output.write_bytes(texts[1])
    diagnostic.write_bytes(texts[0][:head])

    def write():
        until(kept.exists, "what has come is written, though the writer pauses")
        early = ss.Kept.load(kept)
        whole_lines = texts[0][:head].count(b"\n") - texts[0][:head].count(b"#")
        assert early.settings["seen"] == whole_lines - 1  # without the names
        with diagnostic.open("ab") as file:
            file.write(texts[0][head:])

    with Meanwhile(write):
        follow(diagnostic, "-o", kept, "--size", 40, "--every", 0)
    assert_same(kept, thinned(made[0]))


def test_a_writer_that_dies_leaves_its_whole_lines(made, tmp_path, capsys):
    with pytest.raises(subprocess.CalledProcessError):
        sample(tmp_path, samples=600, fake=["mode=die", "at=300"])
    follow(tmp_path / "out-diagnostic-1.csv", "-o", tmp_path / "kept.npz", "--size", 40, "--until-idle", 0.1)
    assert_same(tmp_path / "kept.npz", thinned(made[0], count=300))
    assert "has 300 of 600 announced draws" in capsys.readouterr().err


def test_a_file_that_is_begun_anew_is_read_anew(made, tmp_path, capsys):
    gate, kept = tmp_path / "gate", tmp_path / "kept.npz"
    files = ["output", f"file={tmp_path / 'out-1.csv'}", f"diagnostic_file={tmp_path / 'out-diagnostic-1.csv'}"]
    with subprocess.Popen(
        [*program(samples=600), *files, "sig_figs=17", "fake", "mode=restart", "at=500", f"gate={gate}"],
        stdout=subprocess.DEVNULL,
    ) as writer:

        def write():
            until(
                lambda: kept.exists() and ss.Kept.load(kept).settings["seen"] == 500, "the first run's draws are seen"
            )
            gate.touch()

        with Meanwhile(write):
            follow(tmp_path / "out-diagnostic-1.csv", "-o", kept, "--size", 40, "--every", 0)
        writer.wait(600)
    assert "was restarted: 500 draws are discarded" in capsys.readouterr().err
    assert ss.Kept.load(kept).settings["seen"] == 600
    assert_same(kept, thinned(tmp_path / "out-diagnostic-1.csv"))


@pytest.mark.parametrize("late", [0, 1])
def test_what_is_kept_of_several_chains_does_not_depend_on_who_is_late(late, made, tmp_path):
    for path in made:
        (tmp_path / path.name).write_bytes(b"")
        (tmp_path / path.name.replace("-diagnostic", "")).write_bytes(
            path.with_name(path.name.replace("-diagnostic", "")).read_bytes()
        )

    def write():
        (tmp_path / made[1 - late].name).write_bytes(made[1 - late].read_bytes())
        text = made[late].read_bytes()
        with (tmp_path / made[late].name).open("ab", buffering=0) as file:
            for at in range(0, len(text), 40_000):
                file.write(text[at : at + 40_000])
                time.sleep(0.02)  # so that some reads fall between two writes

    with Meanwhile(write):
        follow(*(tmp_path / path.name for path in made), "-o", tmp_path / "kept.npz", "--size", 40)
    assert_same(tmp_path / "kept.npz", thinned(*made))


def test_a_chain_that_died_does_not_hold_up_the_others(made, texts, tmp_path):
    short = tmp_path / made[0].name
    lines = texts[0].splitlines(keepends=True)
    short.write_bytes(b"".join(lines[:200]) + lines[200][:40])
    (tmp_path / "out-1.csv").write_bytes(texts[1])
    follow(short, made[1], "-o", tmp_path / "kept.npz", "--size", 40, "--until-idle", 0.1)
    short.write_bytes(b"".join(lines[:200]))
    assert_same(tmp_path / "kept.npz", thinned(short, made[1]))


def test_ctrl_c_writes_what_is_kept_and_resume_goes_on(made, texts, tmp_path):
    diagnostic, kept, state = tmp_path / "out-diagnostic-1.csv", tmp_path / "kept.npz", tmp_path / "state.npz"
    lines = texts[0].splitlines(keepends=True)
    (tmp_path / "out-1.csv").write_bytes(texts[1])
    diagnostic.write_bytes(b"".join(lines[:300]) + lines[300][:10])
    how = ["-o", kept, "--size", 40, "--every", 0, "--checkpoint", state]

    def stop():
        until(kept.exists, "something is kept")
        os.kill(os.getpid(), signal.SIGINT)

    with Meanwhile(stop), pytest.raises(SystemExit) as ended:
        follow(diagnostic, *how)
    assert ended.value.code == 130 and state.exists()
    assert 0 < seen(kept) < 300
    diagnostic.write_bytes(texts[0])
    with pytest.raises(CheckpointError, match="--candidates 1, but 2 was given"):
        follow(diagnostic, *how, "--resume", "--candidates", 2)
    follow(diagnostic, *how, "--resume")
    assert_same(kept, thinned(made[0]))
    assert not state.exists()


def test_resume_refuses_a_file_that_was_begun_anew(made, texts, tmp_path):
    diagnostic, state = tmp_path / "out-diagnostic-1.csv", tmp_path / "state.npz"
    diagnostic.write_bytes(texts[0][:60_000])

    def stop():
        until(state.exists, "a checkpoint")
        os.kill(os.getpid(), signal.SIGINT)

    how = ["-o", tmp_path / "kept.npz", "--size", 40, "--every", 0, "--checkpoint", state]
    with Meanwhile(stop), pytest.raises(SystemExit):
        follow(diagnostic, *how)
    diagnostic.write_bytes(made[1].read_bytes())
    with pytest.raises(CheckpointError, match="was restarted since the checkpoint"):
        follow(diagnostic, *how, "--resume")


def test_plain_csv_can_be_followed(tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(300, 2))
    path, kept = tmp_path / "c.csv", tmp_path / "kept.npz"
    rows = ["a,b,score_a,score_b\n", *(f"{a!r},{b!r},{-a!r},{-b!r}\n" for a, b in x.tolist())]
    path.write_text("".join(rows[:100]) + rows[100][:7])

    def write():
        until(kept.exists, "the first part")
        with path.open("a") as file:
            file.write(rows[100][7:] + "".join(rows[101:]))
        clock.append(time.monotonic)  # from now on, the file may count as finished

    clock = [lambda: 0.0]
    monkeypatch.setattr(csv_follow, "time", SimpleNamespace(monotonic=lambda: clock[-1]()))
    with Meanwhile(write):
        follow(path, "-o", kept, "--size", 20, "--every", 0, "--until-idle", 0.1)
    found = ss.Kept.load(kept)
    thinner = ss.Thinner(2, size=20, preconditioner=ss.Streaming()).extend(x, -x)
    assert found.settings["seen"] == 300 and found.ksd == thinner.ksd and found.names == ("a", "b")


def test_patterns_stand_for_their_files(made, tmp_path):
    follow(made[0].with_name("out-diagnostic-*.csv"), "-o", tmp_path / "kept.npz", "--size", 40)
    assert_same(tmp_path / "kept.npz", thinned(*made))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_followed_until_its_writer_has_gone(made, texts, tmp_path):
    pipe, x = tmp_path / "pipe.csv", np.random.default_rng(0).normal(size=(300, 2))
    os.mkfifo(pipe)
    lines = ["a,b,score_a,score_b\n"] + [",".join(map(repr, [*row, *(-v for v in row)])) + "\n" for row in x.tolist()]

    def write():
        with pipe.open("w") as file:
            for at, line in enumerate(lines):
                file.write(line[:7])
                if at % 100 == 0:
                    file.flush()
                    time.sleep(0.15)
                file.write(line[7:])

    with Meanwhile(write):
        follow(pipe, "-o", tmp_path / "kept.npz", "--size", 40)
    thinner = ss.Thinner(2, size=40, preconditioner=ss.Streaming())
    thinner.extend(x, -x)
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(kept.draws, thinner.kept.draws) and kept.settings["seen"] == 300
    with pytest.raises(InputError, match="--checkpoint has no effect with a pipe"):
        follow(pipe, "-o", tmp_path / "kept.npz", "--checkpoint", tmp_path / "state.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_of_cmdstan_beside_its_output_is_not_waited_for_twice(made, texts, tmp_path):
    pipe = tmp_path / "out-diagnostic-1.csv"
    os.mkfifo(pipe)
    (tmp_path / "out-1.csv").write_bytes(texts[1])
    with Meanwhile(lambda: pipe.write_bytes(texts[0])):
        follow(pipe, "-o", tmp_path / "kept.npz", "--size", 40)
    assert np.array_equal(ss.Kept.load(tmp_path / "kept.npz").ids, thinned(made[0]).ids)


def test_the_output_file_may_lag_behind(made, texts, tmp_path):
    diagnostic, output, kept = tmp_path / "out-diagnostic-1.csv", tmp_path / "out-1.csv", tmp_path / "kept.npz"
    diagnostic.write_bytes(texts[0])
    output.write_bytes(texts[1][:5000])

    def write():
        until(kept.exists, "the set without variables")
        output.write_bytes(texts[1])

    with Meanwhile(write):
        follow(diagnostic, "-o", kept, "--size", 40, "--every", 0)
    assert_same(kept, thinned(made[0]))


def test_variables_that_never_come_are_nan(made, texts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["steinstream.cli.follow"], "_OUTPUT_DELAY", 0.2)
    diagnostic, kept = tmp_path / "out-diagnostic-1.csv", tmp_path / "kept.npz"
    diagnostic.write_bytes(texts[0])
    lines = texts[1].splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if line.startswith(b"lp__")) + 5
    (tmp_path / "out-1.csv").write_bytes(b"".join(lines[: first + 500]) + lines[first + 500][:30])
    follow(diagnostic, "-o", kept, "--size", 40)
    found = ss.Kept.load(kept)
    late = found.ids[:, 1] >= 500
    assert 0 < late.sum() < 40 and np.array_equal(np.isnan(found.variables["sigma"].values), late)
    assert np.allclose(found.variables["w"].values[~late], constrain(found.draws[~late])[2], rtol=1e-13)
    assert "some variables are NaN: " in capsys.readouterr().err


@pytest.mark.parametrize(("fake", "error"), [("sign=-1", NegatedScoresError), ("nan=1", InputError)])
def test_wrong_gradients_are_refused(fake, error, tmp_path):
    path = sample(tmp_path, samples=300, fake=[fake])
    with pytest.raises(error, match=r"look negated|draw 0 is nan"):
        follow(path, "-o", tmp_path / "kept.npz")
    assert not (tmp_path / "kept.npz").exists()


def test_a_line_that_is_no_row_is_named(texts, tmp_path):
    lines = texts[0].splitlines(keepends=True)
    path = tmp_path / "d.csv"
    path.write_bytes(b"".join(lines[:100]) + b"1,2\n" + b"".join(lines[100:]))
    with pytest.raises(InputError, match=r"d\.csv, line 101: 2 fields, expected 19"):
        follow(path, "-o", tmp_path / "kept.npz")
    path.write_bytes(b"".join(lines[:100]) + lines[100].replace(b",", b",x", 10) + b"".join(lines[101:]))
    with pytest.raises(InputError, match=r"line 101, column mu: 'x.*' is not a number"):
        follow(path, "-o", tmp_path / "kept.npz")


def test_files_that_cannot_be_followed_are_refused_at_once(made, tmp_path):
    for arguments, problem in [
        ([tmp_path / "a.csv.gz"], "is not a csv file"),
        ([tmp_path / "no" / "a.csv"], "cannot become one"),
        ([made[0], "--output-csv", made[1], "--output-csv", made[1]], "2 output files"),
        ([tmp_path / "none.csv", "--until-idle", 0], "no draws were found"),
        ([made[0], "--resume"], "--checkpoint FILE"),
        ([tmp_path / "none-*.csv"], "no file matches"),
    ]:
        with pytest.raises(InputError, match=problem):
            follow(*arguments, "-o", tmp_path / "kept.npz")


def test_a_real_process_is_followed_and_stopped(tmp_path):
    """All of it at once: a sampler that pauses in the middle of a line, and Ctrl-C at the command line."""
    diagnostic, kept = tmp_path / "out-diagnostic-1.csv", tmp_path / "kept.npz"
    files = ["output", f"file={tmp_path / 'out-1.csv'}", f"diagnostic_file={diagnostic}", "sig_figs=17"]
    paused = [*program(samples=600), *files, "fake", "mode=pause", "at=400", f"gate={tmp_path / 'gate'}"]
    run = [
        sys.executable,
        "-m",
        "steinstream",
        "follow",
        str(diagnostic),
        "-o",
        str(kept),
        "--size",
        "40",
        "--every",
        "0",
    ]
    with subprocess.Popen(paused, stdout=subprocess.DEVNULL) as writer:
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as follower:
            until(lambda: seen(kept) == 400, "400 draws are seen")
            follower.send_signal(signal.SIGINT)
            said, _ = follower.communicate(timeout=600)
        assert follower.returncode == 130 and "stopped: kept 40 of 400 draws" in said
        (tmp_path / "gate").touch()
        assert writer.wait(600) == 0
    follow(diagnostic, "-o", kept, "--size", 40)
    assert_same(kept, thinned(diagnostic))


@pytest.mark.skipif(os.name != "posix", reason="needs the locks of POSIX")
def test_two_processes_never_share_a_checkpoint(steinstream, chain, tmp_path):
    saving = ("--checkpoint", tmp_path / "run.npz")
    growing = tmp_path / "chain.csv"  # does not exist: the run waits for it
    command = [sys.executable, "-m", "steinstream", "follow", growing, "-o", tmp_path / "kept.npz", "--size", 20]
    with subprocess.Popen([*map(str, [*command, "--serve", *saving])], stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr.readline().startswith("dashboard: ")  # printed after the checkpoint was locked
        refused = steinstream("thin", chain, "-o", "other.npz", "--size", 20, *saving)
        first.kill()
    assert refused.returncode == 2 and "another process uses" in refused.stderr, refused.stderr
    assert not (tmp_path / "other.npz").exists()
    ran = steinstream("thin", chain, "-o", "other.npz", "--size", 20, *saving)
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.npz", "other.npz"]


def test_a_file_that_does_not_grow_names_the_option_that_ends_the_command(steinstream, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(300, 2))
    np.savetxt(tmp_path / "chain.csv", x, delimiter=",", header="a,b", comments="")
    module, pauses = sys.modules[command.callback.__module__], []
    monkeypatch.setattr(module, "_IDLE", 0.0)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module.time, "sleep", pause)
    ran = steinstream("follow", "chain.csv", "-o", "kept.npz", "--size", 20)
    assert ran.stderr.count("give --until-idle SECONDS") == 1
    assert len(ss.Kept.load(tmp_path / "kept.npz")) == 20

"""``steinstream thin`` gives the results of the library, whatever the format, and can be stopped and continued."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli._hooks import ThinHooks
from steinstream.cli.progress import Stop
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.validation import consecutive_ids
from tests.conftest import write_chain

thin_module = sys.modules["steinstream.cli.thin"]


def load(chain):
    with np.load(chain) as arrays:
        return arrays["draws"], arrays["scores"]


def assert_same(path, kept):
    written = ss.Kept.load(path)
    assert np.array_equal(written.draws, kept.draws) and np.array_equal(written.ids, kept.ids)
    assert written.ksd == kept.ksd


def test_thin_equals_the_library(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 50)
    assert ran.returncode == 0, ran.stderr
    assert_same(tmp_path / "kept.npz", ss.thin(*load(chain), size=50))
    with np.load(tmp_path / "kept.npz") as written:
        settings = json.loads(str(written["settings"]))
    assert settings["config"]["size"] == 50 and settings["steinstream"] == ss.__version__
    assert "kept 50 of 3 000 draws" in ran.stdout


def test_convergence_of_the_chains_is_recorded(steinstream, tmp_path):
    """R-hat of the chains, not of the kept draws, which all come from chains that disagree."""
    x = np.random.default_rng(2).normal(size=(2, 600, 2))
    x[1, :, 1] += 3.0
    np.savez(tmp_path / "chain.npz", draws=x, log_density=-0.5 * (x**2).sum(axis=-1))
    expected = RunningConvergence(2)
    for chain, draws in enumerate(x):
        expected.add(consecutive_ids(chain, 0, 600), draws)
    for options in (["--passes", 3], ["--gradient-free"]):
        assert steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 20, *options).returncode == 0
        source = ss.Kept.load(tmp_path / "kept.npz").settings["source"]
        assert source == {"tool": "file", **expected.summary()}
    assert source["draws"] == [600, 600] and source["rhat"] > 1.5 and source["rhat_of"] == "x1"


def test_paper_settings_are_those_of_the_library(steinstream, chain, tmp_path):
    assert steinstream("thin", chain, "-o", "kept.npz", "--paper").returncode == 0
    thinner = ss.Thinner(3, **ss.PAPER)
    thinner.extend(*load(chain))
    kept = ss.thin(*load(chain), **ss.PAPER)
    assert kept.ksd == thinner.ksd
    assert_same(tmp_path / "kept.npz", kept)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--growth linear --budget 0.01", {"growth": "linear", "budget": 0.01}),
        (
            "--growth power:0.5 --budget decaying --kernel rbf",
            {"growth": "power:0.5", "budget": "decaying", "kernel": ss.RBF()},
        ),
        (
            "--kernel imq:c=2,beta=-0.4 --preconditioner 2.5",
            {"kernel": ss.IMQ(c=2, beta=-0.4), "preconditioner": ss.Preconditioner.length_scale(2.5)},
        ),
        (
            "--candidates 10 --preconditioner scales --size 30",
            {"candidates": 10, "preconditioner": "scales", "size": 30},
        ),
        (
            "--preconditioner identity --budget share:0.5 --growth constant:20 --rule monotone",
            {"preconditioner": "identity", "budget": "share:0.5", "growth": "constant:20", "rule": "monotone"},
        ),
        ("--size 40 --passes auto", {"size": 40, "passes": "auto"}),
        (
            "--size 40 --start sample --preconditioner identity",
            {"size": 40, "start": "sample", "preconditioner": "identity"},
        ),
        ("--passes 3", {"passes": 3}),
        ("--size 50 --preconditioner streaming", {"size": 50, "preconditioner": "streaming"}),
        ("--size 30 --stream-weight 1", {"size": 30, "stream_weight": 1.0}),
        ("--size 30 --stream-weight 0.5", {"size": 30, "stream_weight": 0.5}),
        ("--size 30 --kernel imq:linear=1", {"size": 30, "kernel": ss.IMQ(linear=1.0)}),
        ("--paper --growth linear --size 60", {**ss.PAPER, "growth": "linear", "size": 60}),
    ],
)
def test_options_are_the_settings_of_the_library(steinstream, chain, tmp_path, options, settings):
    ran = steinstream("thin", chain, "-o", "kept.npz", *options.split())
    assert ran.returncode == 0, ran.stderr
    kept = ss.thin(*load(chain), **settings)
    assert_same(tmp_path / "kept.npz", kept)
    written = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(written.preconditioner.factor, kept.preconditioner.factor)
    assert (written.preconditioner.centre is None) == (kept.preconditioner.centre is None)
    passes = kept.settings["passes"]
    assert (f"and {passes} passes" in ran.stdout) == (passes > 1)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_preconditioner_is_read_from_a_file(steinstream, chain, tmp_path, suffix):
    if suffix == "npy":
        np.save(tmp_path / "c.npy", np.array([1.0, 0.1, 10.0]))
    else:
        ss.thin(*load(chain), size=20, preconditioner=[1.0, 0.1, 10.0]).save(tmp_path / "c.npz")
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 30, "--preconditioner", f"c.{suffix}")
    assert ran.returncode == 0, ran.stderr
    assert_same(tmp_path / "kept.npz", ss.thin(*load(chain), size=30, preconditioner=[1.0, 0.1, 10.0]))


def test_every_input_and_output_format_gives_the_same_set(steinstream, tmp_path, chain):
    pytest.importorskip("pyarrow")
    x, s = load(chain)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "s.npy", s)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", fmt="%.17g")
    with gzip.open(tmp_path / "s.csv.gz", "wt") as file:
        np.savetxt(file, s, delimiter=",", fmt="%.17g")
    everything = ss.thin(x, s, growth="none", preconditioner=ss.Preconditioner.identity())
    everything.save(tmp_path / "all.parquet")
    everything.save(tmp_path / "all.csv.gz")
    expected = ss.thin(x, s, size=40)
    inputs = [["x.npy", "--scores", "s.npy"], ["x.csv", "--scores", "s.csv.gz"], ["all.parquet"], ["all.csv.gz"]]
    for number, (source, output) in enumerate(zip(inputs, ["npz", "csv", "csv.gz", "parquet"], strict=True)):
        ran = steinstream("thin", *source, "-o", f"kept{number}.{output}", "--size", 40)
        assert ran.returncode == 0, ran.stderr
        kept = ss.io.open_chain(tmp_path / f"kept{number}.{output}")
        blocks = list(kept.blocks())
        assert np.array_equal(np.vstack([block.draws for block in blocks]), expected.draws)
        assert np.array_equal(np.vstack([block.ids for block in blocks]), expected.ids)


def test_an_earlier_set_can_be_the_initial_set(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "first.npz", "--size", 20)
    ran = steinstream("thin", chain, "-o", "kept.npz", "--paper", "--initial", "first.npz")
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "first.npz") as first:
        thinner = ss.Thinner(3, **ss.PAPER, initial=(first["draws"], first["scores"]))
    thinner.extend(*load(chain))
    assert_same(tmp_path / "kept.npz", thinner.kept)
    np.savez(tmp_path / "narrow.npz", draws=np.ones((5, 2)), scores=np.ones((5, 2)))
    ran = steinstream("thin", chain, "-o", "kept.npz", "--initial", "narrow.npz")
    assert ran.returncode == 2 and "narrow.npz has 2 dimensions, but the chain has 3" in ran.stderr


def test_invalid_draws_can_be_skipped_and_are_counted(steinstream, tmp_path):
    path = write_chain(tmp_path / "c.npz", draws=500)
    x, s = (part.copy() for part in load(path))
    x[3, 1], s[100, 2] = np.nan, np.inf
    np.savez(path, draws=x, scores=s)
    ran = steinstream("thin", path, "-o", "kept.npz", "--on-bad", "skip", "--size", 20)
    assert ran.returncode == 0 and "2 invalid draws skipped" in ran.stdout
    with np.load(tmp_path / "kept.npz") as written:
        assert np.isfinite(written["draws"]).all() and not {3, 100} & set(written["ids"][:, 1])


def test_negated_scores_can_be_negated_or_accepted(steinstream, tmp_path):
    write_chain(tmp_path / "minus.npz", sign=-1.0)
    write_chain(tmp_path / "plus.npz")
    for source, option in (("minus.npz", "--negate-scores"), ("plus.npz", "--no-validate-scores")):
        assert steinstream("thin", source, "-o", f"kept-{source}", option, "--size", 30).returncode == 0
    with np.load(tmp_path / "kept-minus.npz") as one, np.load(tmp_path / "kept-plus.npz") as two:
        assert np.array_equal(one["draws"], two["draws"])
    assert steinstream("thin", "minus.npz", "-o", "wrong.npz", "--no-validate-scores", "--size", 30).returncode == 0


def test_the_summary_has_the_bound_and_the_checks(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 50)
    bound = ss.Kept.load(tmp_path / "kept.npz").settings["bound"]
    assert f"(expected at most {bound:.3g} for independent draws)" in ran.stdout
    assert ran.stderr == "" and "checks fired. 50 kept draws" in ran.stdout.splitlines()[-1]


def test_failed_checks_are_printed_to_stderr_without_a_warning(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(6000, 2))
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x / 1000)
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 20)
    assert ran.returncode == 0 and "scores" in ran.stderr.lower() and "checks fired" not in ran.stdout
    assert "Warning" not in ran.stderr


def test_a_chain_shorter_than_one_step_is_refused(steinstream, tmp_path):
    write_chain(tmp_path / "short.npz", draws=50)
    ran = steinstream("thin", "short.npz", "-o", "kept.npz", "--candidates", 100)
    assert ran.returncode == 2 and "has 50 draws, but one step takes 100" in ran.stderr
    assert not (tmp_path / "kept.npz").exists()


# -- stop and resume ---------------------------------------------------------------------------------------------------


def raise_signal_after(monkeypatch, number, draws):
    """Send a signal to this process after some number of draws."""
    show = ThinHooks.on_block

    def on_block(self, thinner):
        show(self, thinner)
        if thinner.seen >= draws:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ThinHooks, "on_block", on_block)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_state_and_resume_gives_the_same_bits(steinstream, tmp_path, monkeypatch, number, code):
    write_chain(tmp_path / "chain.npz", draws=9000)
    options = ["chain.npz", "-o", "kept.npz", "--growth", "linear", "--checkpoint", "run.npz"]
    with monkeypatch.context() as patch:
        raise_signal_after(patch, number, 4000)
        ran = steinstream("thin", *options)
    seen = ss.Thinner.load(tmp_path / "run.npz").seen
    assert ran.returncode == code and 4000 <= seen < 9000
    assert f"stopped after {seen:,} draws; add --resume".replace(",", " ") in ran.stderr
    assert not (tmp_path / "kept.npz").exists()
    ran = steinstream("thin", *options, "--resume")
    assert ran.returncode == 0, ran.stderr
    assert f"continuing after {seen:,} draws".replace(",", " ") in ran.stderr
    assert_same(tmp_path / "kept.npz", ss.thin(*load(tmp_path / "chain.npz"), growth="linear"))
    assert not (tmp_path / "run.npz").exists()


def test_ctrl_c_without_a_checkpoint_writes_nothing(steinstream, chain, tmp_path, monkeypatch):
    raise_signal_after(monkeypatch, signal.SIGINT, 1)
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20)
    assert ran.returncode == 130 and "nothing was written" in ran.stderr and "Traceback" not in ran.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"chain.npz"}


def test_ctrl_c_ends_a_real_process_without_a_traceback(tmp_path):
    x = np.random.default_rng(1).normal(size=(400_000, 3))
    np.savez(tmp_path / "long.npz", draws=x, scores=-x)
    command = [
        sys.executable,
        "-m",
        "steinstream",
        "thin",
        "long.npz",
        "-o",
        "kept.npz",
        "--growth",
        "linear",
        "--serve",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("dashboard: ")  # from here on, the command is at work
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=600)
    assert process.returncode == 130 and "stopped" in error and "Traceback" not in error
    assert not (tmp_path / "kept.npz").exists()


class StopAfter(Stop):
    """A stop after some number of checks."""

    def __init__(self, checks):
        self.checks = checks

    @property
    def signal(self):
        self.checks -= 1
        return 2 if self.checks < 0 else 0


@pytest.mark.parametrize("options", [["--size", "40", "--passes", "auto"], ["--passes", "3", "--candidates", "2"]])
def test_a_run_stopped_anywhere_continues_to_the_same_bits(chain, tmp_path, monkeypatch, options):
    arguments = [str(chain), *options, "--checkpoint", str(tmp_path / "run.npz")]
    monkeypatch.setattr(thin_module, "_ROWS", 700)
    thin_module.thin.main([*arguments, "-o", str(tmp_path / "whole.npz")], standalone_mode=False)
    whole = (tmp_path / "whole.npz").read_bytes()
    passes = set()
    for checks in range(2, 40, 3):

        @contextmanager
        def stopped(checks=checks):
            yield StopAfter(checks)

        with monkeypatch.context() as patch:
            patch.setattr(thin_module, "stoppable", stopped)
            try:
                thin_module.thin.main([*arguments, "-o", str(tmp_path / "kept.npz")], standalone_mode=False)
                break  # it was not stopped
            except SystemExit as end:
                assert end.code == 130
        if not (tmp_path / "run.npz").exists():
            continue  # stopped during the first reading
        passes.add(ss.Thinner.load(tmp_path / "run.npz").current_pass.number)
        thin_module.thin.main([*arguments, "-o", str(tmp_path / "kept.npz"), "--resume"], standalone_mode=False)
        assert (tmp_path / "kept.npz").read_bytes() == whole
        (tmp_path / "kept.npz").unlink()
    assert passes >= ({1, 2, 3} if "3" in options else {1})


def test_a_checkpoint_is_written_while_the_run_goes_on(steinstream, chain, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["steinstream.cli._hooks"], "_SAVE_INTERVAL", 0.0)
    saved = []
    monkeypatch.setattr(ThinHooks, "save", lambda self, thinner: saved.append(thinner.seen))
    assert steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--checkpoint", "run.npz").returncode == 0
    assert saved == [2048, 3000]

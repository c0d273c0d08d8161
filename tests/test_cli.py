"""The command line does what the library does, streams what it reads, and can be stopped and continued."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import write_chain

import steinstream as ss


def test_thin_equals_the_library(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 50)
    assert ran.returncode == 0, ran.stderr
    with np.load(chain) as arrays:
        kept = ss.thin(arrays["draws"], arrays["scores"], size=50)
    with np.load(tmp_path / "kept.npz") as written:
        assert np.array_equal(written["draws"], kept.draws)
        assert np.array_equal(written["ids"], kept.ids)
        assert float(written["ksd"]) == kept.ksd
        settings = json.loads(str(written["settings"]))
    assert settings["growth"] == "constant:50.0" and settings["steinstream"] == ss.__version__
    assert "kept 50 of 3 000 draws" in ran.stdout


def test_paper_settings_are_the_thinner_without_settings(steinstream, chain, tmp_path):
    assert steinstream("thin", chain, "-o", "kept.npz", "--paper").returncode == 0
    with np.load(chain) as arrays:
        thinner = ss.Thinner(3)
        thinner.extend(arrays["draws"], arrays["scores"])
        assert ss.thin(arrays["draws"], arrays["scores"], **ss.PAPER).ksd == thinner.ksd
    with np.load(tmp_path / "kept.npz") as written:
        assert float(written["ksd"]) == thinner.ksd


@pytest.mark.parametrize(
    "options",
    [
        ["--growth", "linear", "--budget", "0.01"],
        ["--growth", "power:0.5", "--budget", "decaying", "--kernel", "rbf"],
        ["--kernel", "imq:c=2,beta=-0.4", "--scale", "2.5"],
        ["--candidates", "10", "--scale", "scales", "--size", "30"],
        ["--scale", "identity", "--budget", "share:0.5", "--growth", "constant:20"],
    ],
)
def test_settings_by_name(steinstream, chain, tmp_path, options):
    ran = steinstream("thin", chain, "-o", "kept.csv", *options)
    assert ran.returncode == 0, ran.stderr
    assert len(ss.io.open_chain(tmp_path / "kept.csv").names) == 3


def test_every_input_and_output_format_gives_the_same_set(steinstream, tmp_path, chain):
    pytest.importorskip("pyarrow")
    with np.load(chain) as arrays:
        x, s = arrays["draws"], arrays["scores"]
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


def test_an_earlier_set_can_be_the_initial_dictionary(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "first.npz", "--size", 20)
    ran = steinstream("thin", chain, "-o", "kept.npz", "--paper", "--initial", "first.npz")
    assert ran.returncode == 0, ran.stderr
    with np.load(chain) as arrays, np.load(tmp_path / "first.npz") as first, np.load(tmp_path / "kept.npz") as kept:
        thinner = ss.Thinner(3, preconditioner=ss.Preconditioner.identity(), initial=(first["draws"], first["scores"]))
        thinner.extend(arrays["draws"], arrays["scores"])
        assert np.array_equal(kept["ids"], thinner.kept.ids) and float(kept["ksd"]) == thinner.ksd


def test_ksd_of_a_kept_set_is_the_one_reported(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60)
    with np.load(tmp_path / "kept.npz") as written:
        value = float(written["ksd"])
    ran = steinstream("ksd", "kept.npz", "--cumulative", "curve.csv")
    assert ran.returncode == 0, ran.stderr
    assert f"KSD {value:.6g}" in ran.stdout
    curve = np.loadtxt(tmp_path / "curve.csv", delimiter=",", skiprows=1)
    assert curve.shape == (60, 2) and curve[-1, 1] == value


def test_ksd_measures_a_kept_set_as_it_was_thinned(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60, "--kernel", "rbf:h=2")
    kept = ss.Kept.load(tmp_path / "kept.npz")
    ran = steinstream("ksd", "kept.npz")
    assert f"KSD {kept.ksd:.6g}" in ran.stdout and "kernel: RBF(h=2.0)" in ran.stdout
    ran = steinstream("ksd", "kept.npz", "--kernel", "imq")
    other = ss.ksd(kept.draws, kept.scores, kernel=ss.IMQ(), preconditioner=kept.preconditioner)
    assert f"KSD {other:.6g}" in ran.stdout and "kernel: IMQ(" in ran.stdout


def test_ksd_of_a_file_whose_name_misleads(steinstream, tmp_path):
    (tmp_path / "odd.npz").write_text("a,score_a\n" + "".join(f"{x},{-x}\n" for x in (0.5, -1.0, 0.25)))
    ran = steinstream("ksd", "odd.npz", "--format", "csv", "--scale", "identity")
    assert ran.returncode == 0 and "3 draws" in ran.stdout, ran.stderr


def test_inspect_tells_what_there_is(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    x[:, 1::2] = x[:, ::2]
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    ran = steinstream("inspect", "c.npz")
    assert ran.returncode == 0, ran.stderr
    assert "4 chains x 500 draws, 2 parameters" in ran.stdout
    assert "sign as expected" in ran.stdout and "50% of draws repeat" in ran.stdout
    assert "all values are finite" in ran.stdout and "MB for" in ran.stdout
    assert "steinstream thin c.npz -o kept.npz" in ran.stdout


def test_inspect_sees_what_is_wrong(steinstream, tmp_path):
    write_chain(tmp_path / "c.npz", sign=-1.0)
    assert "look negated" in steinstream("inspect", "c.npz").stdout
    x = np.zeros((50, 2))
    x[7, 1] = np.nan
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    assert "1 of 50 draws not finite, the first is chain 0, draw 7" in steinstream("inspect", "c.npz").stdout


def test_bad_draws_can_be_skipped_and_are_counted(steinstream, tmp_path):
    path = write_chain(tmp_path / "c.npz", draws=500)
    with np.load(path) as arrays:
        x, s = arrays["draws"].copy(), arrays["scores"].copy()
    x[3, 1], s[100, 2] = np.nan, np.inf
    np.savez(path, draws=x, scores=s)
    ran = steinstream("thin", path, "-o", "kept.npz", "--on-bad", "skip", "--size", 20)
    assert ran.returncode == 0 and "2 bad ones skipped" in ran.stdout
    with np.load(tmp_path / "kept.npz") as written:
        assert np.isfinite(written["draws"]).all() and not {3, 100} & set(written["ids"][:, 1])


def test_help_needs_no_heavy_import():
    program = """
import sys
import steinstream, steinstream.cli
heavy = {"numpy", "numba", "xarray", "matplotlib", "torch", "pyarrow", "rich"} & sys.modules.keys()
raise SystemExit(", ".join(heavy) or None)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_demo_writes_kept_draws_and_a_picture(steinstream, tmp_path):
    pytest.importorskip("matplotlib")
    ran = steinstream("demo", "--draws", 12_000, "-o", "out")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "out" / "kept.npz") as written:
        assert len(written["draws"]) >= np.sqrt(12_000 * np.log(12_000))
        assert (np.abs(written["draws"].mean(axis=0) - np.log([1, 3, 0.5, 1])) < 0.1).all()
    for word in ("every draw", "KSDT-LINEAR", "KSDT-SQRT"):
        assert word in ran.stdout


def start_and_interrupt(tmp_path, number, *options):
    """Start a long run, send a signal once it is under way, return exit code and standard error."""
    rng = np.random.default_rng(1)
    if not (tmp_path / "long.npz").exists():
        x = rng.normal(size=(120_000, 3))
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
        *options,
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(4.0)
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    return process.returncode, error


def test_ctrl_c_leaves_a_valid_checkpoint_and_resume_gives_the_same_bits(steinstream, tmp_path):
    code, error = start_and_interrupt(tmp_path, signal.SIGINT, "--checkpoint", "run.npz")
    assert code == 130 and "goes on" in error and "Traceback" not in error
    assert not (tmp_path / "kept.npz").exists()
    seen = ss.Thinner.load(tmp_path / "run.npz").seen
    assert 0 < seen < 120_000
    with np.load(tmp_path / "long.npz") as arrays:
        short = {name: arrays[name][: seen + 3000] for name in ("draws", "scores")}
    np.savez(tmp_path / "long.npz", **short)  # no need to run it to its end
    state = ss.Thinner.load(tmp_path / "run.npz")
    del state.note["data"]  # or the shorter file would be taken for another one
    state.save(tmp_path / "run.npz")
    options = ["long.npz", "-o", "kept.npz", "--growth", "linear", "--checkpoint", "run.npz", "--resume"]
    ran = steinstream("thin", *options)
    assert ran.returncode == 0, ran.stderr
    assert f"going on after {seen:,}".replace(",", " ") in ran.stderr
    with np.load(tmp_path / "kept.npz") as written:
        preconditioner = ss.Preconditioner(written["preconditioner"])
        thinner = ss.Thinner(3, growth="linear", preconditioner=preconditioner)
        thinner.extend(short["draws"], short["scores"])
        assert np.array_equal(written["draws"], thinner.kept.draws)
        assert float(written["ksd"]) == thinner.ksd
    assert not (tmp_path / "run.npz").exists()


def test_a_termination_signal_saves_too(tmp_path):
    code, error = start_and_interrupt(tmp_path, signal.SIGTERM, "--checkpoint", "run.npz")
    assert code == 143 and "goes on" in error
    assert ss.Thinner.load(tmp_path / "run.npz").seen > 0


def test_ctrl_c_without_a_checkpoint_says_so(tmp_path):
    code, error = start_and_interrupt(tmp_path, signal.SIGINT)
    assert code == 130 and "nothing is written" in error and "Traceback" not in error


def test_help_shows_examples_on_lines_of_their_own(steinstream):
    from steinstream.cli import commands

    ran = steinstream("--help")
    assert "\\" not in ran.stdout and "\n  steinstream demo " in ran.stdout
    for name in commands.commands:
        ran = steinstream(name, "--help")
        assert ran.returncode == 0
        assert "\\b" not in ran.stdout and f"  Example: steinstream {name}" in ran.stdout, name

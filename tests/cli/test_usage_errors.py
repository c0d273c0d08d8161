"""Errors in the use of the command line: one message with its remedy, exit code 2, and no file is changed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import steinstream as ss
from steinstream.cli import commands, main
from steinstream.errors import InputError
from tests.conftest import write_chain


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a good chain and many files that are not chains."""
    folder = tmp_path_factory.mktemp("desk")
    write_chain(folder / "chain.npz", draws=300)
    x = np.random.default_rng(0).normal(size=(300, 3))
    np.save(folder / "x.npy", x)
    np.save(folder / "narrow.npy", -x[:, :2])
    np.savez(folder / "noscores.npz", draws=x)
    np.savez(folder / "others.npz", theta=x, grad=-x)
    np.savez(folder / "narrow.npz", draws=x, scores=-x[:, :2])
    np.savez(folder / "flat.npz", draws=x[0], scores=-x[0])
    np.savez(folder / "words.npz", draws=x.astype(str), scores=-x)
    np.savez(folder / "complex.npz", draws=x + 1j, scores=-x)
    np.savez(folder / "nan.npz", draws=np.where(np.arange(300)[:, None] == 7, np.nan, x), scores=-x)
    np.savez(folder / "negated.npz", draws=x, scores=x)
    (folder / "empty.npz").touch()
    (folder / "empty.csv").touch()
    (folder / "notes.txt").write_text("remember the milk\n")
    (folder / "words.csv").write_text("hello world\nnot a chain\n")
    (folder / "noscores.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "renamed.npz").write_text("a,b\n1,2\n")
    (folder / "results").mkdir()
    return folder


@pytest.fixture
def refused(desk, monkeypatch, capsys):
    """Run a command that must end with one message and its remedy, without changing a file; return the message."""

    def run(line):
        monkeypatch.chdir(desk)
        monkeypatch.setattr(sys, "argv", ["steinstream", *shlex.split(line)])
        before = {path: path.stat().st_mtime_ns for path in desk.rglob("*")}
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("error: ") and "Traceback" not in said.err
        assert len(said.err.splitlines()) <= 2
        assert {path: path.stat().st_mtime_ns for path in desk.rglob("*")} == before
        return said.err

    return run


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # the command
        ("thn chain.npz -o k.npz", ["unknown command thn", "Did you mean thin?"]),
        ("chain.npz", ["unknown command chain.npz", "steinstream thin chain.npz -o kept.npz"]),
        ("frobnicate", ["unknown command frobnicate", "The commands are demo, inspect, thin"]),
        ("--verison", ["unknown option --verison", "--version"]),
        # the options
        ("thin", ["CHAIN is missing", "steinstream thin chain.npz -o kept.npz --size 200"]),
        ("merge chain.npz", ["--output is missing", "Example: steinstream merge"]),
        ("thin chain.npz -o", ["option '-o' requires an argument", "Type it after -o"]),
        ("thin chain.npz -o k.npz --siez 20", ["unknown option --siez", "Did you mean --size"]),
        ("thin chain.npz -o k.npz --size -3", ["size must be a whole number of at least 1, got -3"]),
        ("thin chain.npz -o k.npz --size 2.5", ["--size: '2.5'", "a whole number"]),
        ("thin chain.npz -o k.npz --size many", ["--size: 'many'", "a whole number"]),
        ("thin chain.npz -o k.npz --rule papr", ["--rule: 'papr'", "Did you mean paper?"]),
        ("thin chain.npz -o k.npz --kernel gauss", ["kernel 'gauss'", "rbf"]),
        ("thin chain.npz -o k.npz --kernel imq:c=-1", ["IMQ's c must be positive, got -1"]),
        ("thin chain.npz -o k.npz --growth cubic", ["'cubic'", "sqrt"]),
        ("thin chain.npz -o k.npz --budget -1", ["must not be negative, got -1"]),
        ("thin chain.npz -o k.npz --preconditioner wide", ["preconditioner 'wide'", "covariance"]),
        ("thin chain.npz -o k.npz --passes few", ["passes", "whole number", "'few'"]),
        ("thin chain.npz -o k.npz --stream-weight -1", ["stream_weight must be", "-1"]),
        ("thin chain.npz -o k.npz --method stien_thinning", ["'stien_thinning'", "Did you mean stein_thinning?"]),
        ("thin chain.npz -o k.npz --method stride", ["number of draws to keep", "--size N"]),
        ("thin chain.npz -o k.npz --format npx", ["format npx", "Did you mean npz?"]),
        ("thin chain.npz -o k.npz --resume", ["--resume", "--checkpoint FILE"]),
        ("thin chain.npz -o k.npz --draws-name drwas", ["no array drwas", "Did you mean draws?"]),
        ("ksd chain.npz extra.npz", ["extra.npz", "steinstream ksd --help"]),
        ("plan chain.npz", ["--radius is missing", "--radius 0.1"]),
        ("plan chain.npz --radius small", ["--radius: 'small'", "Give a number."]),
        ("plan chain.npz --radius 0", ["radius", "0.0", "above 0"]),
        ("plan chain.npz --radius 1 --sizes any", ["unknown option --sizes"]),
        ("plan chain.npz --radius 1 --growth sqrt --bound-for any", ["1 / log n", "--bound-for planned"]),
        ("ksd nan.npz", ["draw 7 is nan in coordinate 0", "steinstream thin --on-bad skip"]),
        ("compare chain.npz --sizes few", ["--sizes must be whole numbers", "'few'", "50,200,500"]),
        ("demo --draws 10", ["--draws: 10", "at least 1000"]),
        ("demo --seed -1", ["--seed: -1", "at least 0"]),
        ("completion tcsh", ["'tcsh'", "'bash', 'zsh', 'fish'"]),
        # options without effect
        ("thin chain.npz -o k.npz --paper --kernel rbf", ["--paper sets --kernel IMQ", "but RBF"]),
        (
            "thin chain.npz -o k.npz --paper --preconditioner covariance",
            ["--paper sets --preconditioner identity, but covariance"],
        ),
        ("thin chain.npz -o k.npz --paper --kernel rbf --method stride --size 5", ["--paper sets --kernel IMQ"]),
        ("thin chain.npz -o k.npz --burn-in 300", ["burn-in leaves no draws", "has 300", "Use a smaller", "--burn-in"]),
        ("thin chain.npz -o k.npz --burn-in 1.5", ["a share below 1, got 1.5", "--burn-in 10%"]),
        ("thin chain.npz -o k.npz --burn-in 100%", ["a share below 1, got 100%"]),
        ("thin chain.npz -o k.npz --burn-in -3", ["a share below 1, got -3"]),
        ("thin chain.npz -o k.npz --paper --stream-weight 1", ["--paper sets --stream-weight 0.0, but 1.0 was given"]),
        ("thin chain.npz -o - --json", ["-o - and --json both write to standard output"]),
        ("thin - chain.npz -o k.npz", ["- is standard input, which cannot be read together with files", "alone"]),
        ("thin chain.npz -o k.npz --fan-in 4", ["--fan-in has no effect without --workers or --client"]),
        ("thin chain.npz -o k.npz --spare 3 --workers 0", ["--spare has no effect without --size"]),
        ("thin chain.npz -o k.npz --seed 7", ["--seed has no effect without --method"]),
        ("report chain.npz --format csv", ["--format has no effect without --chain"]),
        ("merge chain.npz -o k.npz --spare 3", ["--spare has no effect without --fan-in and --size"]),
        # the input
        ("thin chian.npz -o k.npz", ["chian.npz", "no such file", "Did you mean chain.npz?"]),
        ("thin results -o k.npz", ["results is a folder", "Give a file in it"]),
        ("thin empty.npz -o k.npz", ["empty.npz: the chain is empty: 0 bytes", "sampler"]),
        ("thin empty.csv -o k.npz", ["empty.csv: the chain is empty", "sampler"]),
        ("inspect empty.npz", ["empty.npz: the chain is empty"]),
        ("thin notes.txt -o k.npz", ["notes.txt has an unknown format", ".parquet", "--format"]),
        ("ksd {long}.npz", ["aaa.npz"]),
        ("ksd notes.txt", ["notes.txt has an unknown format", "--format"]),
        ("thin words.csv -o k.npz", ["words.csv"]),
        (
            "ksd noscores.csv",
            ["KSD needs scores, and noscores.csv has none", "steinstream scores, or", "--scores FILE"],
        ),
        ("ksd noscores.npz", ["KSD needs scores, and noscores.npz has none", "--scores FILE"]),
        ("plan noscores.npz --radius 1", ["a plan for KSD needs scores, and noscores.npz has none"]),
        (
            "thin noscores.npz -o k.npz --paper",
            ["KSD alone (--stream-weight 0, --paper) needs scores, and noscores.npz"],
        ),
        ("thin noscores.npz -o k.npz --negate-scores", ["--negate-scores has no effect because noscores.npz has no"]),
        ("thin noscores.npz -o k.npz --parameters x0,x7", ["no parameter x7", "--parameters"]),
        ("thin noscores.npz -o k.npz --initial chain.npz --size 5 --scores-name gradient", ["gradient"]),
        ("thin chain.npz -o k.npz --initial noscores.npz", ["noscores.npz has no scores, but the chain has scores"]),
        ("thin others.npz -o k.npz", ["no array draws; it has theta, grad", "--draws-name"]),
        ("ksd x.npy", ["KSD needs scores, and x.npy has none"]),
        ("thin x.npy --scores narrow.npy -o k.npz", ["(300, 2)", "(300, 3)", "its own score"]),
        ("thin narrow.npz -o k.npz", ["(300, 2)", "(300, 3)", "its own score"]),
        ("thin flat.npz -o k.npz", ["shape (3,)", "(n, 1)"]),
        ("thin words.npz -o k.npz", ["dtype <U", "real numbers"]),
        ("thin complex.npz -o k.npz", ["complex128", "real numbers"]),
        ("thin nan.npz -o k.npz", ["draw 7 is nan in coordinate 0", "--on-bad skip"]),
        ("thin negated.npz -o k.npz", ["look negated", "--negate-scores"]),
        ("thin renamed.npz -o k.npz", ["renamed.npz cannot be read as npz", "another format"]),
        ("merge chain.npz -o k.npz", ["chain.npz"]),
        ("refine chain.npz -o k.npz --order", ["chain.npz"]),
        ("follow chain.npz -o k.npz", ["chain.npz cannot be followed", "Thin it"]),
        ("follow 'none-*.csv' -o k.npz", ["none-*.csv: no file matches this"]),
        # the output
        ("thin chain.npz -o {long}.npz", ["ile name too long"]),
        ("thin chain.npz -o k.npz --checkpoint {long}.npz", ["ile name too long"]),
        ("ksd chain.npz --cumulative nowhere/c.csv", ["nowhere does not exist", "Create the folder"]),
        ("plan chain.npz --radius 1 -o nowhere/c.npz", ["nowhere does not exist", "Create the folder"]),
        ("thin chain.npz -o k.xyz", ["k.xyz", "Use one of .npz"]),
        ("thin chain.npz -o kept", ["the extension of kept", "Use one of .npz"]),
        ("thin chain.npz -o results", ["the extension of results", "Use one of .npz"]),
        ("thin chain.npz -o nowhere/k.npz", ["no folder", "nowhere", "the folder first"]),
        ("thin chain.npz -o chain.npz", ["chain.npz is also an input file", "-o"]),
        ("thin x.npy chain.npz -o k.npz --scores x.npy", ["goes with one chain"]),
        ("merge chain.npz x.npz -o ./chain.npz", ["is also an input file"]),
        ("demo -o chain.npz", ["chain.npz, or a part of this path, is a file", "Choose the name of a folder"]),
        ("demo -o chain.npz/results", ["is a file", "Choose the name of a folder"]),
        ("compare chain.npz -o x.npy", ["x.npy, or a part of this path, is a file", "Choose the name of a folder"]),
        ("demo -o /proc/nothing", ["cannot write /proc/nothing"]),
    ],
)
def test_a_mistake_gets_one_message_and_its_remedy(refused, line, words):
    if "report" in line:
        pytest.importorskip("matplotlib")
    said = refused(line.replace("{long}", 300 * "a"))
    for word in words:
        assert word in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_output_that_cannot_be_written_ends_with_one_message(steinstream, chain, tmp_path):
    command = [sys.executable, "-m", "steinstream", "thin", str(chain), "-o", str(tmp_path / "k.npz"), "--size", "9"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 2 and ran.stderr.startswith("error: no space left on device."), ran.stderr
    assert len(ran.stderr.splitlines()) == 2 and len(ss.Kept.load(tmp_path / "k.npz")) == 9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_referred_to_the_command_that_reads_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for command in ("inspect", "thin", "ksd"):
        output = ["-o", str(tmp_path / "k.npz")] if command == "thin" else []
        with pytest.raises(InputError, match=r"pipe\.csv is a pipe.* steinstream follow"):
            commands.main([command, str(tmp_path / "pipe.csv"), *output], standalone_mode=False)


@pytest.mark.parametrize(
    ("missing", "line", "extra"),
    [
        ("pyarrow", "thin chain.npz -o kept.parquet", "steinstream[parquet]"),
        ("h5netcdf", "thin chain.npz -o kept.nc", "steinstream[netcdf]"),
        ("zarr", "thin chain.npz -o kept.zarr", "steinstream[zarr]"),
        ("distributed", "thin chain.npz -o kept.npz --client tcp://127.0.0.1:1", "steinstream[dask]"),
        ("goodpoints", "thin chain.npz -o kept.npz --method kernel_thinning --size 16", "[kernel-thinning]"),
        ("goodpoints", "compare chain.npz --methods kernel_thinning --sizes 16,32", "[kernel-thinning]"),
    ],
)
def test_a_missing_extra_is_named_with_the_way_to_get_it(refused, monkeypatch, missing, line, extra):
    for name in {missing, *(name for name in sys.modules if name.startswith(f"{missing}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    said = refused(line)
    assert missing in said and "pip install" in said and extra in said


@pytest.mark.parametrize("text", ["Unable to allocate 18.3 GiB for an array.", ""])
def test_too_little_memory_is_one_message(monkeypatch, capsys, text):
    def fail(**_):
        raise MemoryError(text)

    command = click.Command("thin")
    monkeypatch.setattr(command, "main", fail)
    with pytest.raises(SystemExit) as ended:
        main(command)
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and printed.startswith("error: not enough memory") and "Traceback" not in printed
    assert "Choose fewer parameters" in printed and ("18.3 GiB" in printed) == bool(text)


@pytest.mark.parametrize("name", ["none.npy", "none.npz", "none.nc", "none.zarr"])
@pytest.mark.parametrize("line", ["thin chain.npz -o k.npz", "ksd chain.npz", "plan chain.npz --radius 0.5"])
def test_a_missing_preconditioner_has_one_message(desk, monkeypatch, line, name):
    monkeypatch.chdir(desk)
    with pytest.raises(InputError, match=f"The preconditioner {name} does not exist"):
        commands.main([*shlex.split(line), "--preconditioner", name], standalone_mode=False)


def test_a_file_that_is_given_twice_is_refused(steinstream, tmp_path):
    write_chain(tmp_path / "a.npz", draws=200)
    (tmp_path / "link.npz").symlink_to("a.npz")
    for command in (["thin", "a.npz", "link.npz"], ["thin", "*.npz"], ["merge", "a.npz", "./a.npz"]):
        ran = steinstream(*command, "-o", "out.npz")
        assert ran.returncode == 2 and "is given twice" in ran.stderr and not (tmp_path / "out.npz").exists()


def test_remedies_name_options_and_both_limits(steinstream, tmp_path):
    write_chain(tmp_path / "c.npz", draws=200)
    ran = steinstream("thin", "c.npz", "-o", "k.npz", "--serve", "--port", 70000)
    assert "Give a whole number from 0 to 65535." in ran.stderr
    ran = steinstream("thin", "c.npz", "-o", "k.npz", "--burn-in", 200)
    assert "Use a smaller --burn-in." in ran.stderr and "burn_in" not in ran.stderr
    ran = steinstream("merge", "c.npz", "-o", "k.npz", "--fan-in", 0)
    assert "Give a whole number of at least 2." in ran.stderr
    for option, kinds in {"--budget": "constant, share or share:ETA", "--growth": "linear or sqrt"}.items():
        ran = steinstream("plan", "c.npz", "--radius", 0.5, option, "unknown")
        assert ran.returncode == 2 and f"{kinds}." in ran.stderr and "decaying" not in ran.stderr


@pytest.mark.parametrize("option", ["--until-idle", "--every"])
def test_nan_seconds_are_refused(steinstream, tmp_path, option):
    (tmp_path / "c.csv").write_text("a,score_a\n" + "1.0,-1.0\n" * 5)
    ran = steinstream("follow", "c.csv", "-o", "k.npz", "--until-idle", 0.1, option, "nan")
    assert ran.returncode == 2 and f"error: {option}: nan is not a number." in ran.stderr


def test_a_message_about_standard_input_names_no_temporary_file(steinstream):
    ran = steinstream("thin", "-", "-o", "k.npz", input="")
    assert ran.returncode == 2 and "error: standard input: the chain is empty" in ran.stderr

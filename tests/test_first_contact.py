"""What somebody meets in the first minutes: help with examples that work, completion, mistakes that are explained."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import numpy as np
import pytest
from conftest import write_chain

import steinstream as ss
from steinstream.cli import commands, main
from steinstream.cli.help import SECTIONS
from steinstream.errors import InputError

ROOT = Path(__file__).parent.parent


# -- mistakes at the command line ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a good chain and all kinds of files that are none."""
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
    (folder / "words.csv").write_text("hello world\nthis is no chain\n")
    (folder / "noscores.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "renamed.npz").write_text("a,b\n1,2\n")
    (folder / "results").mkdir()
    return folder


@pytest.fixture
def refused(desk, monkeypatch, capsys):
    """Run a command in the folder: it must end with one message and its remedy, and leave every file as it is."""

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
        ("thn chain.npz -o k.npz", ["no command thn", "Did you mean thin?"]),
        ("chain.npz", ["no command chain.npz", "steinstream thin chain.npz -o kept.npz"]),
        ("frobnicate", ["no command frobnicate", "There are demo, inspect, thin"]),
        ("--verison", ["no option --verison", "--version"]),
        # the options
        ("thin", ["CHAIN is missing", "steinstream thin chain.npz -o kept.npz --size 200"]),
        ("thin chain.npz", ["--output is missing", "For example: steinstream thin"]),
        ("thin chain.npz -o", ["option '-o' requires an argument", "behind -o"]),
        ("thin chain.npz -o k.npz --siez 20", ["no option --siez", "Did you mean --size"]),
        ("thin chain.npz -o k.npz --size -3", ["--size: -3 is out of range", "a whole number of at least 1"]),
        ("thin chain.npz -o k.npz --size 2.5", ["--size: '2.5'", "a whole number of at least 1"]),
        ("thin chain.npz -o k.npz --size many", ["--size: 'many'", "a whole number of at least 1"]),
        ("thin chain.npz -o k.npz --rule papr", ["--rule: 'papr'", "Did you mean paper?"]),
        ("thin chain.npz -o k.npz --kernel gauss", ["kernel 'gauss'", "rbf"]),
        ("thin chain.npz -o k.npz --kernel imq:c=-1", ["IMQ's c must be positive, got -1"]),
        ("thin chain.npz -o k.npz --growth cubic", ["'cubic'", "sqrt"]),
        ("thin chain.npz -o k.npz --budget -1", ["must not be negative, got -1"]),
        ("thin chain.npz -o k.npz --scale wide", ["coordinates 'wide'", "covariance"]),
        ("thin chain.npz -o k.npz --passes few", ["passes", "whole number", "'few'"]),
        ("thin chain.npz -o k.npz --anchor deep", ["anchor 'deep'", "auto"]),
        ("thin chain.npz -o k.npz --method stien_thinning", ["'stien_thinning'", "Did you mean stein_thinning?"]),
        ("thin chain.npz -o k.npz --method stride", ["how many draws", "--size N"]),
        ("thin chain.npz -o k.npz --format npx", ["format npx", "Did you mean npz?"]),
        ("thin chain.npz -o k.npz --resume", ["--resume", "--checkpoint FILE"]),
        ("thin chain.npz -o k.npz --draws-name drwas", ["no array drwas", "Did you mean draws?"]),
        ("ksd chain.npz extra.npz", ["extra.npz", "steinstream ksd --help"]),
        ("plan chain.npz", ["--radius is missing", "--radius 0.1"]),
        ("plan chain.npz --radius small", ["--radius: 'small'", "Give a number."]),
        ("plan chain.npz --radius 0", ["radius", "0.0", "above 0"]),
        ("compare chain.npz --sizes few", ["--sizes is 'few'", "50,200,500"]),
        ("demo --draws 10", ["--draws: 10", "at least 1000"]),
        ("demo --seed -1", ["--seed: -1", "at least 0"]),
        ("completion tcsh", ["'tcsh'", "'bash', 'zsh', 'fish'"]),
        # options that mean nothing where they stand
        ("thin chain.npz -o k.npz --paper --kernel rbf", ["--paper means --kernel imq, not rbf"]),
        ("thin chain.npz -o k.npz --paper --scale covariance", ["--paper means --scale identity, not covariance"]),
        ("thin chain.npz -o k.npz --paper --kernel rbf --method stride --size 5", ["--paper means --kernel imq"]),
        ("thin chain.npz -o k.npz --linear 5", ["--linear means nothing without --weights"]),
        ("thin chain.npz -o k.npz --burn-in 9 --weights stein", ["--burn-in means nothing without --weights chain"]),
        ("thin chain.npz -o k.npz --burn-in 9 --method stride --size 5", ["--burn-in means nothing"]),
        ("thin chain.npz -o k.npz --fan-in 4", ["--fan-in means nothing without --workers or --scheduler"]),
        ("thin chain.npz -o k.npz --spare 3 --workers 0", ["--spare means nothing without --size"]),
        ("thin chain.npz -o k.npz --seed 7", ["--seed means nothing without --method"]),
        ("thin x.npy -o k.npz --proxy gaussian --scores-name s", ["--scores-name means nothing to a proxy"]),
        ("refine chain.npz -o k.npz --order --linear 5", ["--linear means nothing without --weights"]),
        ("refine chain.npz -o k.npz --order --scores x.npy", ["--scores means nothing without --chain"]),
        ("report chain.npz --format csv", ["--format means nothing without --chain"]),
        ("merge chain.npz -o k.npz --spare 3", ["--spare means nothing without --fan-in and --size"]),
        # the input
        ("thin chian.npz -o k.npz", ["chian.npz", "no such file", "Did you mean chain.npz?"]),
        ("thin results -o k.npz", ["results is a folder", "Give a file in it"]),
        ("thin empty.npz -o k.npz", ["empty.npz: the chain is empty: 0 bytes", "sampler"]),
        ("thin empty.csv -o k.npz", ["empty.csv: the chain is empty", "sampler"]),
        ("inspect empty.npz", ["empty.npz: the chain is empty"]),
        ("thin notes.txt -o k.npz", ["notes.txt has a suffix", ".parquet", "--format"]),
        ("ksd {long}.npz", ["aaa.npz"]),
        ("ksd notes.txt", ["notes.txt has a suffix", "--format"]),
        ("thin words.csv -o k.npz", ["words.csv has no scores", "--scores FILE"]),
        ("thin noscores.csv -o k.npz", ["noscores.csv has no scores", "--scores FILE"]),
        ("thin noscores.npz -o k.npz", ["no array scores; it has draws", "--scores FILE"]),
        ("thin others.npz -o k.npz", ["no array draws; it has theta, grad", "--draws-name"]),
        ("thin x.npy -o k.npz", ["x.npy holds one array and no scores", "--scores FILE"]),
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
        ("ksd chain.npz --cumulative nowhere/c.csv", ["no folder", "nowhere", "Make the folder"]),
        ("plan chain.npz --radius 1 -o nowhere/c.npz", ["no folder", "nowhere", "Make the folder"]),
        ("thin chain.npz -o k.xyz", ["k.xyz", "Let it end in one of .npz"]),
        ("thin chain.npz -o kept", ["what kept should be", "Let it end in"]),
        ("thin chain.npz -o results", ["what results should be", "Let it end in"]),
        ("thin chain.npz -o nowhere/k.npz", ["no folder", "nowhere", "Make the folder"]),
        ("thin chain.npz -o chain.npz", ["chain.npz is the input too", "-o"]),
        ("thin x.npy chain.npz -o k.npz --scores x.npy", ["goes with one chain"]),
        ("merge chain.npz x.npz -o ./chain.npz", ["is the input too"]),
        ("demo -o chain.npz", ["chain.npz is a file", "Name a folder"]),
        ("demo -o chain.npz/results", ["is a file", "Name a folder"]),
        ("compare chain.npz -o x.npy", ["x.npy is a file", "Name a folder"]),
        ("demo -o /proc/nothing", ["cannot write /proc/nothing"]),
    ],
)  # fmt: skip
def test_a_first_mistake_gets_one_message_and_its_remedy(refused, line, words):
    if "report" in line:
        pytest.importorskip("matplotlib")
    said = refused(line.replace("{long}", 300 * "a"))
    for word in words:
        assert word in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_output_that_nobody_can_take_ends_with_one_message(steinstream, chain, tmp_path):
    command = [sys.executable, "-m", "steinstream", "thin", str(chain), "-o", str(tmp_path / "k.npz"), "--size", "9"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 2 and ran.stderr.startswith("error: no space left on device."), ran.stderr
    assert len(ran.stderr.splitlines()) == 2 and len(ss.Kept.load(tmp_path / "k.npz")) == 9


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_sent_to_the_command_that_reads_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for command in ("inspect", "thin", "ksd"):
        output = ["-o", str(tmp_path / "k.npz")] if command == "thin" else []
        with pytest.raises(InputError, match=r"pipe\.csv is a pipe.* steinstream follow"):
            commands.main([command, str(tmp_path / "pipe.csv"), *output], standalone_mode=False)


@pytest.mark.parametrize(
    ("missing", "line", "extra"),
    [
        ("matplotlib", "report chain.npz", "steinstream[plot]"),
        ("pyarrow", "thin chain.npz -o kept.parquet", "steinstream[parquet]"),
        ("h5netcdf", "thin chain.npz -o kept.nc", "steinstream[netcdf]"),
        ("zarr", "thin chain.npz -o kept.zarr", "steinstream[zarr]"),
        ("distributed", "thin chain.npz -o kept.npz --scheduler tcp://127.0.0.1:1", "steinstream[dask]"),
        ("goodpoints", "thin chain.npz -o kept.npz --method kernel_thinning --size 16", "[kernel-thinning]"),
        ("goodpoints", "compare chain.npz --methods kernel_thinning --sizes 16,32", "[kernel-thinning]"),
    ],
)
def test_a_missing_extra_is_named_with_the_way_to_get_it(desk, missing, line, extra):
    program = f"import sys; sys.modules[{missing!r}] = None; from steinstream.cli import main; main()"
    command = [sys.executable, "-c", program, *shlex.split(line)]
    ran = subprocess.run(command, cwd=desk, capture_output=True, text=True)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr, ran.stderr
    assert missing in ran.stderr and "pip install" in ran.stderr and extra in ran.stderr


# -- mistakes in Python ----------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: ss.thin("chain.npz"), ["'chain.npz'", "Load the file"]),
        (lambda: ss.thin(Path("chain.npz"), -X), ["'chain.npz'", "Load the file"]),
        (lambda: ss.thin(X), ["no scores", "proxy"]),
        (lambda: ss.thin(X, lambda x: -x), ["scores must be an array", "this function is not"]),
        (lambda: ss.thin({"a": X}, -X), ["draws must be an array", "this dict is not"]),
        (lambda: ss.thin(X + 1j, -X), ["draws must be an array of real numbers"]),
        (lambda: ss.thin([[1, 2], [3]], [[1, 2], [3]]), ["real numbers", "same number of entries"]),
        (lambda: ss.thin(X, -X[:, :2]), ["(300, 3)", "(300, 2)"]),
        (lambda: ss.thin(X[:, 0], -X[:, 0]), ["(300,)"]),
        (lambda: ss.thin(X, X), ["look negated"]),
        (lambda: ss.thin(np.where(X > 2, np.nan, X), -X), ["is nan in coordinate", "on_bad"]),
        (lambda: ss.thin(X, -X, size=-3), ["size", "-3", "at least 1"]),
        (lambda: ss.thin(X, -X, size=2.5), ["size", "2.5", "whole number"]),
        (lambda: ss.thin(X, -X, kernel="imq"), ["'imq'", "ss.IMQ()"]),
        (lambda: ss.Thinner(3, kernel=ss.IMQ), ["kernel", "ss.IMQ()"]),
        (lambda: ss.ksd(X, -X, kernel="rbf"), ["'rbf'", "ss.RBF()"]),
        (lambda: ss.thin(X, -X, growth="cubic"), ["'cubic'", "sqrt"]),
        (lambda: ss.thin(X, -X, preconditioner="wide"), ["'wide'", "covariance"]),
        (lambda: ss.Thinner(X), ["dim", "whole number"]),
        (lambda: ss.Thinner(3).push(X, -X), ["(300, 3)", "extend"]),
        (lambda: ss.Thinner(3).push("a", "b"), ["draw must be an array"]),
        (lambda: ss.Thinner(3).push([1, 2, "b"], [1, 2, 3]), ["draw must be an array of real numbers"]),
        (lambda: ss.Thinner(2).extend(X, -X), ["2 dimensions, got 3"]),
        (lambda: ss.merge([X, X]), ["ndarray", "ss.thin"]),
        (lambda: ss.merge([]), ["nothing to merge"]),
        (lambda: ss.thin(X, -X, size=5).save("kept.xyz"), ["kept.xyz", ".npz"]),
    ],
)
def test_a_first_mistake_in_python_says_what_and_how(mistake, words):
    with pytest.raises(InputError) as told:
        mistake()
    assert len(str(told.value)) < 300
    for word in words:
        assert word in str(told.value)


def test_a_misspelt_name_is_told_what_there_is():
    program = "import steinstream as ss; ss.thinn"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "has no attribute 'thinn'. Did you mean: 'thin'?" in ran.stderr


# -- help ------------------------------------------------------------------------------------------------------------


def examples(text):
    """The command lines in a text: ``steinstream ...`` on lines of their own, what is said about them cut off."""
    for line in text.splitlines():
        found = re.match(r"^(?: {4,}|Example: +)(steinstream \S.*)$", line)
        if found:
            yield shlex.split(re.split(r" {2,}", found[1])[0], comments=True)


def parse(words):
    """Raise if there is no such command, or it does not take these options."""
    name, command, rest = commands.resolve_command(click.Context(commands), words[1:])
    command.make_context(name, rest)


@pytest.mark.parametrize("name", commands.commands)
def test_the_examples_in_the_help_of_a_command_are_right(name):
    text = commands.commands[name].help
    found = list(examples(text[text.index("Example: ") :]))
    assert found and all(words[:2] == ["steinstream", name] for words in found)
    for words in found:
        parse(words)
    for parameter in commands.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("name", ["thin", "follow"])
def test_a_long_help_shows_every_option_once_in_its_section(name):
    command = commands.commands[name]
    text = click.testing.CliRunner().invoke(commands, [name, "--help"]).output
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for option in options:
        assert len(re.findall(rf"^ +(-\w, )?{option.opts[-1]}(?![\w-])", text, re.MULTILINE)) == 1, option.opts
        assert any(option.name in names for names in SECTIONS.values()), f"{option.name} is in no section"


def test_the_first_help_has_an_example_of_each_command():
    found = list(examples("\n".join(f"    {line.strip()}" for line in commands.help.splitlines())))
    assert {words[1] for words in found} >= commands.commands.keys() - {"completion", "report"}
    for words in found:
        parse(words)


def test_the_commands_in_the_readme_are_right():
    found = list(examples((ROOT / "README.md").read_text()))
    assert len(found) >= 5
    for words in found:
        parse(words)


def test_a_wrong_example_would_be_found():
    for line in (
        "steinstream thn a.npz -o b.npz",
        "steinstream thin a.npz --siez 3 -o b.npz",
        "steinstream thin a.npz",
    ):
        with pytest.raises(click.ClickException):
            parse(shlex.split(line))


def test_alone_it_helps_with_what_comes_first_first(steinstream):
    ran = steinstream()
    assert ran.returncode == 0 and ran.stderr == "" and ran.stdout == steinstream("--help").stdout
    assert re.findall(r"^  (\w+)  +[A-Z]", ran.stdout, re.MULTILINE)[:3] == ["demo", "inspect", "thin"]
    assert "Usage: steinstream" in ran.stdout
    assert steinstream("--version").stdout == f"steinstream, version {ss.__version__}\n"


def test_help_and_completion_load_nothing_heavy(tmp_path):
    program = """
import io, json, sys
from contextlib import redirect_stdout
from steinstream.cli import commands, main
from steinstream.cli.help import SECTIONS
lines = [["--help"], ["--version"], ["completion", "zsh"], *([name, "--help"] for name in commands.commands)]
for line in lines:
    sys.argv = ["steinstream", *line]
    try:
        with redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        if end.code:
            raise
print(json.dumps(sorted({"numpy", "numba", "xarray", "matplotlib", "torch", "pyarrow", "rich"} & sys.modules.keys())))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []


# -- completion ------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_bash(tmp_path):
    """Type a line and Tab into a real bash; returns the line as it then stands."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "steinstream"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m steinstream "$@"\n')
    program.chmod(0o755)
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "chain.npz").touch()

    def typed(line):
        home, side = pty.openpty()
        path = f"{program.parent}:{os.environ['PATH']}"
        bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"], stdin=side, stdout=side, stderr=side, cwd=tmp_path / "desk",
            env={**os.environ, "PATH": path, "TERM": "dumb", "INPUTRC": "/dev/null"},
            start_new_session=True,
        )  # fmt: skip
        os.close(side)
        # Ctrl-A and Ctrl-E: the completed line is put between echo and the name of a file.
        keys = f'eval "$(steinstream completion bash)"\n{line}\t\x01echo "\x05" > ../line\nexit\n'
        os.write(home, keys.encode())
        try:
            while os.read(home, 4096):
                pass
        except OSError:  # bash has gone
            pass
        os.close(home)
        assert bash.wait(timeout=60) == 0
        return (tmp_path / "line").read_text().strip()

    return typed


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("steinstream ins", "steinstream inspect"),
        ("steinstream thin ch", "steinstream thin chain.npz"),
        ("steinstream thin chain.npz --trust", "steinstream thin chain.npz --no-validate-scores"),
        ("steinstream thin chain.npz --rule mon", "steinstream thin chain.npz --rule monotone"),
        ("steinstream thin chain.npz --kernel rb", "steinstream thin chain.npz --kernel rbf"),
    ],
)
def test_bash_completes(in_bash, line, completed):
    assert in_bash(line) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_right_for_its_shell(steinstream, tmp_path, shell):
    script = steinstream("completion", shell).stdout
    assert f"_STEINSTREAM_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here to read its script")
    (tmp_path / "script").write_text(script)
    ran = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_completion_offers_every_format():
    option = next(option for option in commands.commands["thin"].params if option.name == "format")
    offered = [item.value for item in option.shell_complete(click.Context(commands), "")]
    assert offered == list(ss.io.FORMATS)

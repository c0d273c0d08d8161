"""Completion: the script is right for its shell, and a real bash completes commands, options and values."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys

import click
import pytest

import steinstream as ss
from steinstream.cli import commands


@pytest.fixture
def in_bash(tmp_path):
    """Return a function that types a line and Tab into bash and returns the completed line."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "steinstream"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m steinstream "$@"\n')
    program.chmod(0o755)
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "chain.npz").touch()

    def complete(line):
        master, terminal = pty.openpty()
        path = f"{program.parent}:{os.environ['PATH']}"
        bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=tmp_path / "desk",
            env={**os.environ, "PATH": path, "TERM": "dumb", "INPUTRC": "/dev/null"},
            start_new_session=True,
        )
        os.close(terminal)
        # Ctrl-A and Ctrl-E put the completed line between echo and the name of a file.
        keys = f'eval "$(steinstream completion bash)"\n{line}\t\x01echo "\x05" > ../line\nexit\n'
        os.write(master, keys.encode())
        try:
            while os.read(master, 4096):
                pass
        except OSError:  # bash has ended
            pass
        os.close(master)
        assert bash.wait(timeout=600) == 0
        return (tmp_path / "line").read_text().strip()

    return complete


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("steinstream ins", "steinstream inspect"),
        ("steinstream thin ch", "steinstream thin chain.npz"),
        ("steinstream thin chain.npz --no-val", "steinstream thin chain.npz --no-validate-scores"),
        ("steinstream thin chain.npz --rule mon", "steinstream thin chain.npz --rule monotone"),
        ("steinstream thin chain.npz --kernel rb", "steinstream thin chain.npz --kernel rbf"),
        ("steinstream thin chain.npz --method stei", "steinstream thin chain.npz --method stein_thinning"),
    ],
)
def test_bash_completes(in_bash, line, completed):
    assert in_bash(line) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_right_for_its_shell(steinstream, tmp_path, shell):
    script = steinstream("completion", shell).stdout
    assert f"_STEINSTREAM_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    ran = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_completion_offers_every_format():
    option = next(option for option in commands.commands["thin"].params if option.name == "format")
    offered = [item.value for item in option.shell_complete(click.Context(commands), "")]
    assert offered == list(ss.io.FORMATS)

"""Ctrl-C prints no traceback, also before and after the command itself."""

import signal
import subprocess
import sys

import pytest

_INTERRUPTED = """
import os, signal, sys
from unittest.mock import patch
from steinstream.__main__ import run
import steinstream.cli, steinstream.cli.crash
from steinstream.cli import main

def interrupt(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return False

def early():
    interrupt()
    main()

def late():
    try:
        main()
    finally:
        interrupt()

patches = {
    "while the arguments are examined": patch.object(steinstream.cli.crash, "_may_crash", interrupt),
    "before the command": patch.object(steinstream.cli, "main", early),
    "after the command": patch.object(steinstream.cli, "main", late),
}
signal.signal(signal.SIGINT, signal.default_int_handler)
with patches[sys.argv.pop(1)]:
    run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself Ctrl-C on Windows")
@pytest.mark.parametrize("when", ["while the arguments are examined", "before the command", "after the command"])
def test_ctrl_c_around_a_command_ends_it_with_one_word(when):
    command = [sys.executable, "-c", _INTERRUPTED, when, "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "stopped\n")

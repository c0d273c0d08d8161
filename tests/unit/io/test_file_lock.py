"""A checkpoint belongs to one process at a time; a process that was killed leaves nothing behind that matters."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from steinstream.errors import InputError
from steinstream.io.file_lock import FileLock

posix = pytest.mark.skipif(os.name != "posix", reason="needs the locks of POSIX")
HOLD = "import sys, pathlib; from steinstream.io.file_lock import FileLock\n"
HOLD += "lock = FileLock(pathlib.Path(sys.argv[1]), pathlib.Path('run.npz')); print('held', flush=True); input()"


def holder(path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


@posix
def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path):
    path = tmp_path / ".run.npz.lock"
    with holder(path) as first:
        with pytest.raises(InputError, match=r"Another process uses run\.npz"):
            FileLock(path, tmp_path.with_name("run.npz").relative_to(tmp_path.parent))
        first.communicate("\n")
    assert not path.exists()
    with FileLock(path, path) as lock:
        assert lock.held and path.exists()
    assert not lock.held and not path.exists()


@posix
def test_the_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / ".run.npz.lock"
    with holder(path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert path.exists()
    with FileLock(path, path):
        pass
    assert not path.exists()


@posix
def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch, caplog):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", unsupported)
    with caplog.at_level("INFO", logger="steinstream"), FileLock(tmp_path / ".lock", tmp_path):
        pass
    assert "No lock protects" in caplog.text

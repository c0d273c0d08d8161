"""A checkpoint belongs to one process at a time; a process that was killed leaves nothing behind that matters."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from steinstream.errors import InputError
from steinstream.io import file_lock
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
    with FileLock(tmp_path / ".lock", tmp_path):
        pass
    assert "No lock protects" in caplog.text and caplog.records[0].levelname == "WARNING"


@pytest.fixture
def windows(monkeypatch):
    """Stand for Windows: no fcntl, and the function of msvcrt that locks bytes of an open file."""
    locked = {}

    def locking(handle, mode, count):
        number = os.fstat(handle).st_ino
        if locked.get(number, handle) != handle:
            raise PermissionError(errno.EACCES, "Permission denied")
        locked[number] = handle
        calls.append((mode, count))

    calls = []
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    return calls


def test_on_windows_a_byte_of_the_file_is_locked(windows, tmp_path, caplog):
    path = tmp_path / ".run.npz.lock"
    with FileLock(path, tmp_path / "run.npz"):
        assert windows == [(2, 1)]
        with pytest.raises(InputError, match="Another process uses"):
            FileLock(path, tmp_path / "run.npz")
    assert not path.exists() and not caplog.records


def test_a_system_without_locks_is_no_error_but_a_warning(windows, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with FileLock(tmp_path / ".lock", tmp_path):
        pass
    assert "No lock protects" in caplog.text and caplog.records[0].levelname == "WARNING"


def test_on_windows_the_file_is_closed_before_it_is_deleted(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    events = []
    fake = SimpleNamespace(name="nt", close=lambda one: (events.append("closed"), os.close(one)), getpid=os.getpid)
    monkeypatch.setattr(file_lock, "os", fake)
    monkeypatch.setattr(type(path), "unlink", lambda self, missing_ok: events.append("deleted"))
    file_lock._release(handle, path, os.getpid())
    assert events == ["closed", "deleted"]

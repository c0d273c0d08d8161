"""An output is written whole or not at all, and what stood there before survives every failure."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

from steinstream.errors import InputError, OutputError, SteinstreamError
from steinstream.io import check_output, replacing, write_kept
from steinstream.io.atomic import replacing_folder
from steinstream.result import History, Kept


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "out.npz"
    path.write_bytes(b"what was there before")
    return path


def kept(n=5):
    history = History(np.arange(2), np.arange(2), np.ones(2), np.ones(2))
    return Kept(np.ones((n, 2)), np.ones((n, 2)), np.zeros((n, 2), np.int64), 0.5, history)


def untouched(path):
    return path.read_bytes() == b"what was there before" and list(path.parent.iterdir()) == [path]


def test_a_file_takes_the_place_of_the_old_one_only_when_it_is_whole(old):
    with replacing(old) as file:
        file.write(b"new")
        file.flush()
        assert old.read_bytes() == b"what was there before"
    assert old.read_bytes() == b"new"
    assert list(old.parent.iterdir()) == [old]


def test_text_is_written_as_utf8(tmp_path):
    with replacing(tmp_path / "page.html", "w") as file:
        file.write("θ\n")
    assert (tmp_path / "page.html").read_bytes() == "θ\n".encode()


def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    with replacing(tmp_path / "new") as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_the_old_file(old, failure):
    with pytest.raises(type(failure)), replacing(old) as file:
        file.write(b"half")
        raise failure
    assert untouched(old)


def test_a_disk_that_is_full_at_fsync_leaves_the_old_file(old, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="no space left on device") as caught:
        write_kept(kept(), old)
    assert str(old) in caught.value.problem
    assert "Free some space" in caught.value.remedy
    assert untouched(old)


def test_a_disk_that_is_full_while_writing_leaves_the_old_file(old):
    with pytest.raises(OutputError, match="no space left"), replacing(old) as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert untouched(old)


def test_a_rename_that_fails_leaves_the_old_file(old, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OutputError, match="permission denied"):
        write_kept(kept(), old)
    assert untouched(old)


@pytest.fixture
def tiny_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = False
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, text=True)
        mounted = done.returncode == 0
        reason = done.stderr.strip()
    except OSError as error:
        reason = str(error)
    if not mounted:
        pytest.skip(f"a small disk cannot be mounted here: {reason}")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_a_disk_that_is_really_full_leaves_the_old_file(tiny_disk, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tiny_disk / f"out{suffix}"
    path.write_bytes(b"what was there before")
    noise = np.random.default_rng(0).standard_normal((20_000, 2))
    many = Kept(noise, noise, np.zeros((20_000, 2), np.int64), 0.5, kept().history)
    with pytest.raises(OutputError, match="no space left"):
        write_kept(many, path)
    assert untouched(path)


def test_a_link_is_written_through(old, tmp_path):
    link = tmp_path / "link.npz"
    link.symlink_to(old)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert old.read_bytes() == b"new"


def test_a_device_or_folder_is_never_replaced(tmp_path):
    for path in ("/dev/null", tmp_path):
        with pytest.raises(OutputError, match="not a regular file"), replacing(path):
            pass
    assert Path("/dev/null").is_char_device()


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "nowhere" / "out.npz"
    with pytest.raises(OutputError, match="no such file or directory") as caught:
        write_kept(kept(), path)
    assert str(path) in caught.value.problem
    assert "Make the folder" in caught.value.remedy


def test_check_output_raises_before_the_run_what_writing_would_raise_after(tmp_path, monkeypatch):
    check_output(tmp_path / "kept.npz")
    check_output(tmp_path / "KEPT.CSV.GZ")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutputError, match=r"no folder .*nowhere") as caught:
        check_output(tmp_path / "nowhere" / "kept.npz")
    assert "Make the folder" in caught.value.remedy
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OutputError, match="is a directory"):
        check_output(tmp_path / "folder.npz")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match="permission denied"):
        check_output(tmp_path / "kept.npz")


@pytest.mark.parametrize("name", ["kept", "kept.txt", "kept.npy", "kept.gz"])
def test_an_unknown_suffix_is_refused_with_the_ones_there_are(name, tmp_path):
    for act in (check_output, lambda path: write_kept(kept(), path)):
        with pytest.raises(InputError, match=name) as caught:
            act(tmp_path / name)
        assert ".npz, .csv, .csv.gz, .parquet" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_output_errors_are_the_users_business():
    assert issubclass(OutputError, SteinstreamError) and issubclass(OutputError, OSError)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_link_to_itself_is_refused(tmp_path):
    loop = tmp_path / "loop.npz"
    loop.symlink_to("loop.npz")
    with pytest.raises(OutputError, match="symbolic link that refers to itself"), replacing(loop):
        pass
    with pytest.raises(OutputError, match="symbolic link that refers to itself"), replacing_folder(loop, bool):
        pass
    assert [*tmp_path.iterdir()] == [loop] and loop.is_symlink()

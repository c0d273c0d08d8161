"""Damaged, missing and shared files with machine code are harmless."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from steinstream._engine import jit as compiler
from steinstream._engine.code_cache import CodeFiles, is_private

SMALL = """
import sys
from steinstream._engine.merging import add_product
numbers = [kind(number) for kind, number in zip((float, float, float, eval(sys.argv[1])), (1, 0, 3, 2))]
high, low = add_product(*numbers)
print(high + low, sum(add_product.stats.cache_hits.values()))
"""


def product(a, b):
    return a * b


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for the machine code of this test."""
    monkeypatch.setattr(compiler, "_FOLDER", str(tmp_path))
    return tmp_path


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_numba_saves_and_loads_through_our_files(folder):
    """`code_cache.CodeCache` replaces an attribute of numba's cache; a version that has renamed it fails here."""
    assert compiler.jit(product)(2.0, 3.0) == 6.0
    (path,) = files(folder)
    assert path.name.startswith("product-") and path.suffix not in (".nbi", ".nbc")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: os.urandom(len(content)),
    ],
    ids=["empty", "shorter than a checksum", "truncated", "one bit", "random"],
)
def test_a_damaged_file_is_replaced(folder, damage):
    assert compiler.jit(product)(2.0, 3.0) == 6.0
    (path,) = files(folder)
    path.write_bytes(damage(path.read_bytes()))
    again = compiler.jit(product)
    assert again(2.0, 3.0) == 6.0 and hits(again) == 0
    assert files(folder) == [path]
    later = compiler.jit(product)
    assert later(2.0, 3.0) == 6.0 and hits(later) == 1


def test_a_file_of_another_signature_is_not_loaded(folder):
    assert compiler.jit(product)(2.0, 3.0) == 6.0
    (of_floats,) = files(folder)
    assert compiler.jit(product)(2, 3) == 6
    (of_integers,) = {*files(folder)} - {of_floats}
    of_integers.write_bytes(of_floats.read_bytes())
    again = compiler.jit(product)
    assert again(2, 3) == 6 and hits(again) == 0


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, caplog):
    missing = CodeFiles(str(tmp_path / "missing"), product)
    with caplog.at_level("INFO", logger="steinstream"):
        missing.save("key", "data")
    assert missing.load("key") is None
    assert "not saved" in caplog.text


def test_without_a_home_nothing_is_cached(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "")
    monkeypatch.setattr(Path, "home", no_home)
    folder = compiler._cache_folder()
    assert folder is None
    monkeypatch.setattr(compiler, "_FOLDER", folder)
    assert compiler.jit(product)(2.0, 3.0) == 6.0


def start(folder, kind="float", prefix=(), **environment):
    """Start a process that compiles a small function of the package; a variable that is None is not set."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(folder), **environment}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", SMALL, kind],
        env={name: value for name, value in variables.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process):
    """Return the value that a process printed, and how often it loaded machine code."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and not err, err
    value, loaded = out.split()
    return float(value), int(loaded)


def test_processes_that_start_at_once_share_the_folder(tmp_path):
    both = start(tmp_path), start(tmp_path, "int")
    assert [result(process)[0] for process in both] == [7.0, 7.0]
    for path in files(tmp_path):
        if path.stat().st_size % 2:
            path.write_bytes(b"")
    both = start(tmp_path), start(tmp_path, "int")
    assert [result(process)[0] for process in both] == [7.0, 7.0]
    assert result(start(tmp_path, "int")) == (7.0, 1)


def test_processors_share_the_folder(tmp_path):
    assert result(start(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")) == (7.0, 0)
    assert result(start(tmp_path)) == (7.0, 0)
    assert result(start(tmp_path)) == (7.0, 1)


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the permissions of POSIX")
STRANGER = 12345  # not in the list of users
as_root = pytest.mark.skipif(getattr(os, "geteuid", int)() != 0, reason="only root can start processes of another user")


@posix
def test_a_folder_to_which_others_can_write_is_not_used(tmp_path, caplog):
    folder = tmp_path / "steinstream" / "machine-code"
    folder.mkdir(parents=True)
    for mode in (0o775, 0o1777, 0o777):
        folder.chmod(mode)
        caplog.clear()
        with caplog.at_level("INFO", logger="steinstream"):
            assert not is_private(folder), oct(mode)
        assert "other users can write" in caplog.text
    assert result(start(tmp_path)) == (7.0, 0) and files(tmp_path) == []
    folder.chmod(0o755)
    assert is_private(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_that_nobody_can_create_is_not_used(caplog):
    with caplog.at_level("INFO", logger="steinstream"):
        assert not is_private(Path("/proc/machine-code"))
    assert "not saved" in caplog.text


@posix
def test_a_folder_that_others_can_replace_is_not_used(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    assert not is_private(tmp_path / "shared" / "machine-code")
    (tmp_path / "shared").chmod(0o1777)  # as /tmp: nobody can rename the folder of another user
    assert is_private(tmp_path / "shared" / "machine-code")
    assert (tmp_path / "shared" / "machine-code").stat().st_mode & 0o777 == 0o700


@posix
@as_root
def test_the_folder_of_another_user_is_not_used(tmp_path):
    folder = tmp_path / "machine-code"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    assert not is_private(folder)


@pytest.fixture(scope="module")
def as_stranger():
    """The start of a command that runs as a user who is in no list, and who may read everything and write nothing."""
    reading = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    prefix = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *reading)
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this process cannot start one of another user")
    return prefix


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_an_unknown_user_without_a_home_compiles(tmp_path, home, as_stranger):
    without = {"XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None, "PYTHONDONTWRITEBYTECODE": "1"}
    assert result(start(tmp_path, prefix=as_stranger, HOME=home, **without)) == (7.0, 0)


def test_the_command_runs_for_an_unknown_user_without_a_home(chain, as_stranger):
    unset = {"HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "LOGNAME", "USER", "PYTHONPATH"}
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    words = [sys.executable, "-m", "steinstream", "thin", "chain.npz", "--size", "10", "-o", "kept.npz"]
    with tempfile.TemporaryDirectory() as folder:  # the parents of tmp_path are private
        shutil.copy(chain, folder)
        os.chown(folder, STRANGER, STRANGER)
        ran = subprocess.run([*as_stranger, *words], cwd=folder, env=variables, capture_output=True, text=True)
        assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
        assert {path.name for path in Path(folder).iterdir()} == {"chain.npz", "kept.npz"}
        with np.load(Path(folder) / "kept.npz") as kept:
            assert len(kept["draws"]) == 10


def test_the_folder_of_a_shared_home_is_read_if_it_belongs_to_root(tmp_path, as_stranger):
    assert result(start(tmp_path)) == (7.0, 0)
    before = files(tmp_path)
    assert result(start(tmp_path, prefix=as_stranger, PYTHONDONTWRITEBYTECODE="1"))[0] == 7.0
    assert files(tmp_path) == before


@posix
def test_a_read_only_folder_is_read_and_not_written(tmp_path):
    assert result(start(tmp_path)) == (7.0, 0)
    before = files(tmp_path)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert result(start(tmp_path)) == (7.0, 1)
        assert result(start(tmp_path, "int"))[0] == 7.0
        assert os.geteuid() == 0 or files(tmp_path) == before  # root writes everywhere
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("kilobytes", [0, 4])
@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system of its own")
@as_root
def test_a_full_disk_is_no_error(tmp_path, kilobytes):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=9", "none", disk], capture_output=True
    ).returncode:
        pytest.skip("this process cannot mount a file system")
    try:
        (disk / "filling").write_bytes(bytes(1024 * (12 - kilobytes)))
        assert result(start(disk)) == (7.0, 0)
        assert [path.name for path in files(disk)] == ["filling"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_process_that_was_killed_while_saving_does_no_harm(folder, monkeypatch):
    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        compiler.jit(product)(2.0, 3.0)
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "_FOLDER", str(folder))
    assert len(files(folder)) == 1  # the temporary file
    first, second = compiler.jit(product), compiler.jit(product)
    assert (first(2.0, 3.0), hits(first), second(2.0, 3.0), hits(second)) == (6.0, 0, 6.0, 1)


class Unloadable:
    """An object that is saved, and raises an error when it is loaded, as machine code of another version does."""

    def __reduce__(self):
        return int, ("not a number",)


def test_content_that_cannot_be_loaded_is_replaced(tmp_path, caplog):
    saved = CodeFiles(str(tmp_path), product)
    saved.save("key", Unloadable())
    with caplog.at_level("INFO", logger="steinstream"):
        assert saved.load("key") is None
    assert "is ignored" in caplog.text and "damaged" not in caplog.text
    saved.save("key", "data")
    assert saved.load("key") == "data" and len(files(tmp_path)) == 1


def test_a_disabled_compiler_is_an_error(steinstream, chain):
    ran = steinstream("thin", chain, "-o", "kept.npz", env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert ran.returncode == 2
    assert "NUMBA_DISABLE_JIT" in ran.stderr and "Traceback" not in ran.stderr

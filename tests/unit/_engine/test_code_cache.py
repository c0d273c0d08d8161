"""Damaged, missing and shared files with machine code are harmless."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steinstream._engine import jit as compiler
from steinstream._engine.code_cache import CodeFiles

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


def start(folder, kind="float", **environment):
    """Start a process that compiles a small function of the package."""
    return subprocess.Popen(
        [sys.executable, "-c", SMALL, kind],
        env={**os.environ, "XDG_CACHE_HOME": str(folder), **environment},
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
    assert [result(start(tmp_path, kind)) for kind in ("float", "int")] == [(7.0, 1), (7.0, 1)]


def test_processors_share_the_folder(tmp_path):
    assert result(start(tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")) == (7.0, 0)
    assert result(start(tmp_path)) == (7.0, 0)
    assert result(start(tmp_path)) == (7.0, 1)


def test_a_disabled_compiler_is_an_error(steinstream, chain):
    ran = steinstream("thin", chain, "-o", "kept.npz", env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert ran.returncode == 2
    assert "NUMBA_DISABLE_JIT" in ran.stderr and "Traceback" not in ran.stderr

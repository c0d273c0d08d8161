"""A crash of the HDF5 library or of Arrow at a damaged file is one message and code 2."""

import os
import subprocess
import sys

import numpy as np
import pytest

from fuzz import seeds

h5py = pytest.importorskip("h5py")
pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")

CRASHES = {
    "while a NetCDF file is read": "netcdf.NetcdfTree._inspect = lambda self, name: ctypes.string_at(0)",
    "while an emcee file is read": "emcee.EmceeChain._read = lambda self, rows, skip: ctypes.string_at(0)",
    "by an assertion in C": "netcdf.NetcdfTree._inspect = lambda self, name: os.abort()",
    "after an error": "def fail(self, name):\n    atexit.register(os.abort)\n    raise ValueError('damaged')\n"
    "netcdf.NetcdfTree._inspect = fail",
    "after success": "atexit.register(os.abort)",
}


def run(folder, change, *words):
    """Run a command in a process in which something is replaced."""
    script = folder / "script.py"
    script.write_text(
        f"import atexit, ctypes, os\nfrom steinstream.io import emcee, netcdf\n{change}\n"
        "from steinstream.__main__ import run\nif __name__ == '__main__':\n    run()\n"
    )
    command = [sys.executable, script, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def write_damaged(path, elements):
    """Write a NetCDF file in which the list of the dimensions of an array has too many elements."""
    seeds.write_netcdf(path)
    with h5py.File(path, "r+") as file:
        array = file["sample_stats/unconstrained_draw"]
        value = np.empty(elements, object)
        value[:] = [array.attrs["DIMENSION_LIST"][0]] * elements
        del array.attrs["DIMENSION_LIST"]
        array.attrs.create("DIMENSION_LIST", value, dtype=h5py.vlen_dtype(h5py.ref_dtype))


@pytest.mark.parametrize("elements", [4, 1000])
def test_a_file_that_would_overwrite_memory_of_hdf5_is_refused_before_hdf5_reads_it(elements, tmp_path):
    write_damaged(tmp_path / "chain.nc", elements)
    ended = run(tmp_path, "", "thin", "chain.nc", "-o", "out.npz", "--size", "5")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("error: ") == 1 and "chain.nc cannot be read" in ended.stderr
    assert not (tmp_path / "out.npz").exists()
    assert "the list of the dimensions of unconstrained_draw is damaged" in ended.stderr


@pytest.mark.parametrize("when", CRASHES)
def test_a_crash_is_one_message_and_code_2(when, tmp_path):
    name = "run.h5" if "emcee" in when else "chain.nc"
    (seeds.write_emcee if "emcee" in when else seeds.write_netcdf)(tmp_path / name)
    ended = run(tmp_path, CRASHES[when], "thin", name, "-o", "out.npz", "--size=5")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("error: ") == 1 and f"error: {name} cannot be read" in ended.stderr


def test_a_crash_of_arrow_is_one_message_and_code_2(tmp_path):
    pytest.importorskip("pyarrow")
    seeds.write_parquet(tmp_path / "chain.parquet")
    abort = "from steinstream.io import parquet\nparquet._require_bounded = lambda path, metadata: os.abort()"
    ended = run(tmp_path, abort, "thin", "chain.parquet", "-o", "out.npz", "--size=5")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("error: ") == 1 and "error: chain.parquet cannot be read" in ended.stderr


def test_a_crash_with_other_files_is_not_hidden(chain, tmp_path):
    ended = run(tmp_path, "atexit.register(os.abort)", "thin", chain, "-o", "out.npz", "--size", "5")
    assert ended.returncode < 0

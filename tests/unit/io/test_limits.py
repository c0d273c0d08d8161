"""A small file that describes a huge array ends in one error, in little memory; a large file of any layout is read."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from fuzz import mutations, seeds
from steinstream.errors import InputError
from steinstream.io import open_chain, read_kept
from steinstream.io._labelled_arrays import text_as_str
from steinstream.io._limits import require_held, require_length, stored_bytes
from steinstream.io.npz import read_arrays

NUMBERS = 40_000_000
MEGABYTES = 600  # of a process that reads the file as a chain and as a kept set
SMALL = 2_000_000  # bytes of a file

PROGRAM = """
import sys
from pathlib import Path
from steinstream.errors import SteinstreamError
from steinstream.io import open_chain, read_kept
from steinstream.inspection import Inspection
for read in (lambda path: Inspection.of(open_chain(path)), read_kept):
    try:
        read(sys.argv[1])
    except SteinstreamError as error:
        assert error.problem and error.remedy, error
        print(error.problem)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to measure the peak of resident memory"
)


def header(shape, dtype="<f8", fortran=False):
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return file.getvalue()


def npz_of_zeros(path, kind=zipfile.ZIP_DEFLATED, **headers):
    """Write an npz file of zeros, given the header and the size of each member."""
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, (start, size) in headers.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(start)
                for at in range(0, size, 1 << 20):
                    member.write(bytes(min(1 << 20, size - at)))


def bzip2(path):
    draws = header((NUMBERS, 1)), 8 * NUMBERS
    npz_of_zeros(path, zipfile.ZIP_BZIP2, draws=draws)


def wide(path):
    draws = header((1, NUMBERS), "|i1"), NUMBERS
    npz_of_zeros(path, draws=draws, scores=draws)


def fortran(path):
    draws = header((NUMBERS, 1), fortran=True), 8 * NUMBERS
    npz_of_zeros(path, draws=draws, scores=draws)


def long_header(path):
    start = b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little")
    npz_of_zeros(path, draws=(start, 1 << 30))


def large_kept_set(path):
    seeds.write_kept_set(path)
    arrays = mutations.read_arrays(path.read_bytes())
    whole = {name: mutations.npy_bytes(array) for name, array in arrays.items()}
    whole["variable/v/dims"] = mutations.npy_bytes(np.array(["k"]))
    npz_of_zeros(path, **{name: (data, 0) for name, data in whole.items()}, **{
        "variable/v": (header((8, NUMBERS // 2)), 32 * NUMBERS)
    })  # fmt: skip


def overlapping(path):
    """Write an archive whose directory names one member many times."""
    np.savez(path, draws=np.zeros((5000, 2)))
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.infolist()[0]
        for number in range(20):
            copy = zipfile.ZipInfo(f"x{number}.npy")
            for field in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(copy, field, getattr(first, field))
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
        archive._didModify = True


def zarr_of(version, shape, chunks, **options):
    def write(path):
        pytest.importorskip("xarray")
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(path, mode="w", zarr_format=version).create_group("sample_stats")
        dims = ["chain", "draw", "unconstrained_parameter"]
        named = {"dimension_names": dims} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
        for name in ("gradient", "unconstrained_draw"):
            array = group.create_array(name, shape=shape, chunks=chunks, dtype="f8", fill_value=1.0, **named, **options)
            array[0, 0, 0] = 0.5 if np.prod(chunks) < NUMBERS else 1.0

    return write


def zarr_with_huge_chunks(version, codec):
    """Write a store whose chunks decompress to more than the array has."""

    def write(path):
        pytest.importorskip("xarray")
        zarr = pytest.importorskip("zarr")
        codecs = pytest.importorskip("numcodecs")
        third = zarr.codecs
        pair = {
            2: {"zstd": codecs.Zstd(), "gzip": codecs.GZip(9), "blosc": codecs.Blosc("zstd")},
            3: {"zstd": third.ZstdCodec(), "gzip": third.GzipCodec(level=9), "blosc": third.BloscCodec()},
        }
        zarr_of(version, (1, 40, 3), (1, 40, 3), compressors=pair[version][codec])(path)
        data = pair[2][codec].encode(np.zeros(8 * NUMBERS, np.uint8))
        for chunk in path.rglob("c/0/0/0" if version == 3 else "0.0.0"):
            chunk.write_bytes(data)

    return write


def hdf5_of(shape, name="unconstrained_draw", times=1, **options):
    def write(path):
        h5py = pytest.importorskip("h5py")
        pytest.importorskip("xarray")
        pytest.importorskip("h5netcdf")
        sizes = dict(zip(("chain", "draw", "unconstrained_parameter"), shape, strict=True))
        with h5py.File(path, "w") as file:
            group = file.create_group("sample_stats" if name == "unconstrained_draw" else "posterior")
            for dim, size in sizes.items():
                group.create_dataset(dim, (size,), "i1").make_scale(dim)
            array = group.create_dataset(name, shape, "f8", fillvalue=1.0, **options)
            if options.get("compression"):
                array[0, 0, 0] = 0.5
            for at, dim in enumerate(sizes):
                array.dims[at].attach_scale(group[dim])

    return write


def emcee(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        group = file.create_group("mcmc")
        group.attrs.update({"nwalkers": 2, "ndim": NUMBERS, "iteration": 3})
        group.create_dataset("chain", (3, 2, NUMBERS), "f8", chunks=(1, 1, NUMBERS), compression="gzip")[0, 0, 0] = 1.0


def parquet_list(path):
    pytest.importorskip("pyarrow")
    path.write_bytes(mutations.bomb_parquet(b"", Chosen(3 * 10**7, 0.0)))


class Chosen:
    """Stands for a `random.Random` with known results."""

    def __init__(self, *values):
        self._values = list(values)

    def choice(self, _):
        return self._values.pop(0)

    random = lambda self: self._values.pop(0)  # noqa: E731


def gzipped(line, position):
    return lambda path: path.write_bytes(mutations.bomb_csv(b"a,score_a\n1,1\n2,2", Chosen(line, position)))


FILES = {
    "bzip2.npz": bzip2,
    "wide.npz": wide,
    "fortran.npz": fortran,
    "header.npz": long_header,
    "kept.npz": large_kept_set,
    "chunk2.zarr": zarr_of(2, (1, NUMBERS, 3), (1, NUMBERS, 3)),
    "chunk3.zarr": zarr_of(3, (1, NUMBERS, 3), (1, NUMBERS, 3)),
    "row.zarr": zarr_of(3, (1, 40, NUMBERS), (1, 40, 3 * 10**4)),
    "length.zarr": zarr_of(2, (1, 10**12, 3), (1, 40, 3)),
    "zstd2.zarr": zarr_with_huge_chunks(2, "zstd"),
    "zstd3.zarr": zarr_with_huge_chunks(3, "zstd"),
    "gzip2.zarr": zarr_with_huge_chunks(2, "gzip"),
    "gzip3.zarr": zarr_with_huge_chunks(3, "gzip"),
    "blosc2.zarr": zarr_with_huge_chunks(2, "blosc"),
    "chunk.nc": hdf5_of((1, NUMBERS, 3), chunks=(1, NUMBERS, 3), compression="gzip"),
    "fill.nc": hdf5_of((1, 40, 10 * NUMBERS)),
    "length.nc": hdf5_of((1, 10**12, 3), chunks=(1, 40, 3)),
    "emcee.h5": emcee,
    "list.parquet": parquet_list,
    "title.csv.gz": gzipped(b"ab,", 0),
    "comment.csv.gz": gzipped(b"#", 0),
    "row.csv.gz": gzipped(b"1,", 1),
}


@needs_proc
@pytest.mark.parametrize("name", FILES)
def test_a_small_file_of_a_huge_array_needs_little_memory(name, tmp_path):
    path = tmp_path / name
    FILES[name](path)
    stored = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
    assert stored < SMALL
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, env={**os.environ}, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    *problems, kilobytes = ran.stdout.splitlines()
    assert problems and all(str(path) in problem for problem in problems)
    assert int(kilobytes) / 1024 < MEGABYTES, problems


def test_members_that_overlap_are_refused(tmp_path):
    overlapping(tmp_path / "x.npz")
    for read in (open_chain, read_arrays):
        with pytest.raises(InputError, match="overlap"):
            read(tmp_path / "x.npz")


def test_a_member_cannot_be_larger_than_deflate_allows(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, draws=np.zeros((1000, 3)))
    with zipfile.ZipFile(path) as archive:
        size = archive.infolist()[0].file_size
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02") + 24  # size of the member in the directory
    path.write_bytes(data[:at] + (size * 10**4).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(InputError, match="cannot have"):
        open_chain(path)


def test_an_array_compressed_twice_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    seeds.write_netcdf(tmp_path / "x.nc")
    with h5py.File(tmp_path / "x.nc", "r+") as file:
        group = file["sample_stats"]
        old = group["gradient"]
        values, scales = old[()], [one[0].name for one in old.dims]
        del group["gradient"]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(values.shape)
        properties.set_deflate(9)
        properties.set_deflate(9)
        h5py.h5d.create(group.id, b"gradient", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple(values.shape), properties)
        group["gradient"][...] = values
        for at, scale in enumerate(scales):
            group["gradient"].dims[at].attach_scale(file[scale])
    with pytest.raises(InputError, match="compressed more than once"):
        next(open_chain(tmp_path / "x.nc").blocks())


def test_a_compressed_chain_of_usual_draws_is_read(tmp_path):
    draws = np.repeat(np.random.default_rng(0).normal(size=(2000, 4)), 5, axis=0)  # as of a sampler with rejections
    np.savez_compressed(tmp_path / "x.npz", draws=np.asfortranarray(draws), scores=-draws)
    assert np.array_equal(np.concatenate([block.draws for block in open_chain(tmp_path / "x.npz").blocks()]), draws)


def test_limits_follow_the_size_of_the_file(tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "large").write_bytes(bytes(4 * 10**7))
    for path, raises in (("small", True), ("folder", False), ("in memory", False)):
        for require in (
            lambda path: require_held(path, "an array", 10**8, "Shorten it."),
            lambda path: require_length(path, 5 * 10**8, 2),
        ):
            if raises:
                with pytest.raises(InputError):
                    require(tmp_path / path)
            else:
                require(tmp_path / path)


@pytest.mark.parametrize(("rows", "raises"), [(1_000_000, False), (2_000_000, True)])
def test_a_small_parquet_file_of_equal_rows_is_limited(tmp_path, rows, raises):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": np.zeros(rows)}), tmp_path / "x.parquet", compression="zstd")
    assert stored_bytes(tmp_path / "x.parquet") < 12_000
    if raises:
        with pytest.raises(InputError, match="draws of 1 parameters do not fit"):
            open_chain(tmp_path / "x.parquet")
    else:
        assert sum(len(block.ids) for block in open_chain(tmp_path / "x.parquet").blocks()) == rows


def test_one_long_text_among_many_does_not_fix_the_length_of_all():
    short = np.array(["ab"] * 1000, object)
    assert text_as_str(short).dtype == np.dtype("U2")
    short[0] = "x" * 10**5
    with pytest.raises(InputError, match="100000 characters"):
        text_as_str(short)


@pytest.mark.parametrize("name", ["chain.npz", "kept.npz"])
def test_other_compression_is_refused_with_the_way_to_write_it(name, tmp_path):
    write = seeds.write_npz if name == "chain.npz" else seeds.write_kept_set
    write(tmp_path / name)
    arrays = mutations.read_arrays((tmp_path / name).read_bytes())
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_LZMA) as archive:
        for key, array in arrays.items():
            archive.writestr(f"{key}.npy", mutations.npy_bytes(array))
    with pytest.raises(InputError, match=r"compressed with lzma.*np\.savez"):
        (open_chain if name == "chain.npz" else read_kept)(tmp_path / name)


def test_a_link_to_a_file_has_the_size_of_the_file(tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.ones((1000, 2)))
    (tmp_path / "link.npz").symlink_to(tmp_path / "chain.npz")
    assert stored_bytes(tmp_path / "link.npz") == stored_bytes(tmp_path / "chain.npz") > 16_000

"""Mutations of file contents: of bytes, and of the structure that each format has.

Every function takes the content of a valid file and a `random.Random`, and returns the content of a damaged or unusual
one.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np

Mutation = Callable[[bytes, Random], bytes]

#: Numbers at the edges of types and ranges.
NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 3, 40, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e-200, 1e150, 1e200, 1.7e308, float("nan"), float("inf"), float("-inf")),
]
#: Values of other types.
VALUES: list[Any] = [*NUMBERS, None, True, False, "", "x", "a" * 3000, "\udcff", "\0", "1", [], [1], {}, {"a": 1}]
_DTYPES = ["f4", "f2", ">f8", "i1", "i8", "u8", "?", "c16", "U5", "S3", "M8[s]", "V8", "O"]


def mutate_bytes(data: bytes, choose: Random) -> bytes:
    """Truncate, overwrite, delete, copy or insert some bytes."""
    if not data:
        return choose.randbytes(5)
    changed, length = bytearray(data), choose.choice([1, 1, 2, 4, 8, 32, 100])
    at, other = choose.randrange(len(data)), choose.randrange(len(data))
    how = choose.randrange(7)
    if how == 0:
        return data[:at]
    if how == 1:
        for _ in range(length):
            changed[choose.randrange(len(data))] = choose.randrange(256)
    elif how == 2:
        changed[at : at + length] = bytes([choose.choice([0, 255])]) * len(data[at : at + length])
    elif how == 3:
        del changed[at : at + length]
    elif how == 4:
        changed[at : at + length] = data[other : other + length]
    elif how == 5:
        changed[at:at] = data[other : other + length]
    else:
        changed[at] ^= 1 << choose.randrange(8)
    return bytes(changed)


_LARGEST_TABLE = 10_000_000  # bytes; a larger one, which was mutated before, is not mutated as an array

# -- values and arrays -------------------------------------------------------------------------------------------------


def mutate_array(array: Any, choose: Random) -> Any:
    """Change values, type or shape of an array."""
    array = np.array(array)
    how = choose.randrange(9)
    with np.errstate(all="ignore"):
        if how <= 2 and array.size and array.dtype.kind in "fiu":
            return _with_number(array, choose)
        if how == 3 and array.dtype.kind in "fiu":
            return array * choose.choice([0.0, 1e200, 1e-200, -1.0, 1e16])
        if how == 4:
            try:
                return array.astype(choose.choice(_DTYPES))
            except (TypeError, ValueError):
                return np.array(choose.choice(["", "x"]))
        if how == 5:
            return choose.choice([array.ravel(), array[None], array.T, array[..., None], np.asfortranarray(array)])
        if how == 6 and array.ndim:
            return choose.choice([array[:0], array[:1], array[1:], array[..., :1], array[..., :0], array[::-1]])
        if how == 7 and array.ndim and array.size:
            return choose.choice([np.concatenate([array] * 2), np.repeat(array[:1], len(array), 0), array[0]])
    return np.array(choose.choice([value for value in VALUES if not isinstance(value, dict | list)]), dtype=object)[()]


def _with_number(array: Any, choose: Random) -> Any:
    changed = array.copy()
    value = choose.choice(NUMBERS)
    if changed.dtype.kind != "f":
        bounds = np.iinfo(changed.dtype)
        value = int(value) if math.isfinite(value) else bounds.max  # NumPy has no such integers
        value = min(max(value, bounds.min), bounds.max)
    changed.flat[choose.randrange(changed.size)] = value
    return changed


def mutate_tree(value: Any, choose: Random) -> Any:
    """Change, delete or add one value somewhere in nested dictionaries and lists; arrays are mutated as such."""
    if isinstance(value, Mapping) and value and choose.random() < 0.95:
        key, how = choose.choice(sorted(value)), choose.random()
        changed = dict(value)
        if how < 0.04:
            del changed[key]
        elif how < 0.08:
            changed[choose.choice(["x", "", "0", choose.choice(sorted(value))])] = choose.choice(VALUES)
        else:
            changed[key] = mutate_tree(value[key], choose)
        return changed
    if isinstance(value, list) and value and choose.random() < 0.8:
        at = choose.randrange(len(value))
        return [*value[:at], mutate_tree(value[at], choose), *value[at + 1 :]]
    if isinstance(value, np.ndarray) and choose.random() < 0.9:
        return mutate_array(value, choose)
    return choose.choice(VALUES)


def mutate_json(data: bytes, choose: Random) -> bytes:
    """Change a value of a JSON document, or make the array that it describes huge."""
    document = json.loads(data)
    if isinstance(document, dict) and "shape" in document and choose.random() < 2 * _BOMBS:
        return bomb_zarr(data, choose)
    return json.dumps(mutate_tree(document, choose)).encode("utf-8", "surrogatepass")


# -- bombs: small files that describe huge arrays ----------------------------------------------------------------------

_BOMBS = 0.03  # probability
_HUGE = 250_000_000  # bytes


@cache
def _zeros(kind: int) -> bytes:
    """Return an npz file with one huge member, which is made once."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive, archive.open("draws.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (_HUGE // 24, 3)}
        )
        for _ in range(_HUGE // 1_000_000):
            member.write(bytes(1_000_000))
    return file.getvalue()


def bomb_npz(data: bytes, choose: Random) -> bytes:
    """Return an npz file with a huge compressed array, or with an array whose header states a huge shape."""
    if choose.random() < 0.3:
        return _zeros(choose.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED]))
    arrays = read_arrays(data)
    name, file = choose.choice(sorted(arrays)), io.BytesIO()
    with zipfile.ZipFile(file, "w", choose.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for key, array in arrays.items():
            member = npy_bytes(array)
            if key == name:
                shape = tuple(size * choose.choice([1, 10**4, 10**8]) for size in array.shape) or (10**9,)
                start = member[:128].replace(str(array.shape).encode(), str(shape).encode())
                member = start[:128] + member[128:] + bytes(choose.choice([0, 4_000_000]))
            archive.writestr(_member(f"{key}.npy"), member)
    return file.getvalue()


def bomb_zarr(data: bytes, choose: Random) -> bytes:
    """Make the shape of a Zarr array huge, and sometimes its chunks."""
    document = json.loads(data)
    factors = [choose.choice([1, 10**3, 10**6]) for _ in document["shape"]]
    grid = document.get("chunk_grid", {}).get("configuration", {})
    whole = choose.random() < 0.5
    for owner, name in ((document, "shape"), (document, "chunks"), (grid, "chunk_shape")):
        if name in owner and (whole or name == "shape"):
            owner[name] = [size * factor for size, factor in zip(owner[name], factors, strict=True)]
    return json.dumps(document).encode()


def bomb_hdf5(data: bytes, choose: Random) -> bytes:
    """Replace an array of an HDF5 file by a huge one, whose chunks are absent or compressed."""
    import h5py

    file = io.BytesIO(data)
    with h5py.File(file, "r+") as root:
        names = list[str]()
        root.visit(names.append)
        name = choose.choice([name for name in names if isinstance(root[name], h5py.Dataset) and root[name].ndim])
        kept = {key: value for key, value in root[name].attrs.items() if key != "DIMENSION_LIST"}
        old, factor = root[name], choose.choice([10**3, 10**6])
        shape = (*old.shape[:-1], old.shape[-1] * factor)
        chunks = choose.choice([None, True, shape]) if math.prod(shape) * old.dtype.itemsize < 2**32 else None
        dtype = old.dtype
        del root[name]
        made = root.create_dataset(name, shape, dtype, chunks=chunks, compression=chunks and "gzip")
        made.attrs.update(kept)
    return file.getvalue()


def bomb_csv(data: bytes, choose: Random) -> bytes:
    """Return gzipped text with a huge line: of the header, of a comment or of numbers."""
    line = choose.choice([b"ab,", b"1,", b"#", b" "])
    lines = data.split(b"\n")
    lines.insert(choose.choice([0, 1, len(lines)]), line * (50_000_000 // len(line)))
    return gzip.compress(b"\n".join(lines), mtime=0)


def bomb_parquet(data: bytes, choose: Random) -> bytes:
    """Return a parquet file with many equal rows, or with one huge list."""
    import pyarrow
    import pyarrow.parquet

    count, file = choose.choice([10**6, 12 * 10**6]), io.BytesIO()
    values = pyarrow.array(np.zeros(count, np.float32))
    if choose.random() < 0.5:
        values = pyarrow.ListArray.from_arrays(pyarrow.array([0, count], pyarrow.int32()), values)
        columns = {"draws": values, "scores": values}
    else:
        columns = {"a": values, "score_a": values}
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd", row_group_size=count)
    return file.getvalue()


# -- npy and npz -------------------------------------------------------------------------------------------------------


def npy_bytes(array: Any) -> bytes:
    """Return an array as an npy file."""
    file = io.BytesIO()
    np.save(file, np.asanyarray(array))
    return file.getvalue()


def mutate_npy(data: bytes, choose: Random) -> bytes:
    """Change the array or the text of its header."""
    if choose.random() < 0.6:
        return npy_bytes(mutate_array(np.load(io.BytesIO(data)), choose))
    end = data.index(b"\n")
    header = data[10:end]
    old = choose.choice([b"'<f8'", b"False", b"(2, 40, 3)", b"'descr'", b"40", b"2", b"3"])
    new = choose.choice([b"'|O'", b"True", b"(True, 2)", b"(-1, 3)", b"()", b"99999999999", b"'", b"(", b"[1]", b"1j"])
    new = choose.choice([new, b"('<f8', (3,))", b"[('a', '<f8')]", b"9" * 400, b"None", b"-0"])
    changed = header.replace(old, new, 1).rstrip()
    length = choose.choice([len(header), len(changed)])
    changed = changed.ljust(length)[: 2**16 - 2]
    return data[:8] + (len(changed) + 1).to_bytes(2, "little") + changed + data[end:]


def read_arrays(data: bytes) -> dict[str, Any]:
    """Return the arrays of an npz file."""
    with np.load(io.BytesIO(data)) as file:
        return dict(file)


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # without the time, so that the same seed gives the same bytes


def npz_bytes(arrays: Mapping[str, Any], choose: Random) -> bytes:
    """Return arrays as an npz file, sometimes compressed or with a member that occurs twice."""
    file = io.BytesIO()
    kind = zipfile.ZIP_STORED if choose.random() < 0.8 else choose.choice([8, 12, 14])
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, array in arrays.items():
            archive.writestr(_member(f"{name}.npy"), npy_bytes(array), kind)
            if choose.random() < 0.01:
                archive.writestr(_member(choose.choice(["x", f"{name}", "../up.npy", f"{name}/"])), b"?")
    return file.getvalue()


def mutate_npz(data: bytes, choose: Random) -> bytes:
    """Change, delete or rename an array of an npz file, or make one huge."""
    if choose.random() < _BOMBS:
        return bomb_npz(data, choose)
    arrays = read_arrays(data)
    name, how = choose.choice(sorted(arrays)), choose.random()
    if sum(array.nbytes for array in arrays.values()) > _LARGEST_TABLE:
        return mutate_bytes(data, choose)
    if how < 0.7:
        arrays[name] = mutate_array(arrays[name], choose)
    elif how < 0.78:
        del arrays[name]
    elif how < 0.86:
        arrays[choose.choice(["x", "ids", "draws", "weights", "log_density", "\u00e9"])] = arrays.pop(name)
    elif how < 0.94:
        arrays[name] = arrays[choose.choice(sorted(arrays))]
    else:
        members = {key: npy_bytes(array) for key, array in arrays.items()}
        members[name] = choose.choice([mutate_npy, mutate_bytes])(members[name], choose)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for key, member in members.items():
                archive.writestr(_member(f"{key}.npy"), member)
        return file.getvalue()
    return npz_bytes(arrays, choose)


def mutate_kept(data: bytes, choose: Random) -> bytes:
    """Change an array or one of the settings of a kept set."""
    arrays = read_arrays(data)
    if "settings" not in arrays or choose.random() < 0.7:
        return mutate_npz(data, choose)
    text = mutate_json(str(arrays["settings"]).encode(), choose).decode("utf-8", "replace")
    return npz_bytes({**arrays, "settings": np.array(text)}, choose)


def mutate_checkpoint(data: bytes, choose: Random) -> bytes:
    """Change some values of a checkpoint and recompute its checksum."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from steinstream.errors import SteinstreamError
    from steinstream.io import checkpoint

    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        path.write_bytes(data)
        content: Any = checkpoint.read(path)
        for _ in range(choose.choice([1, 1, 2, 3])):
            content = mutate_tree(content, choose)
        try:
            checkpoint.write(path, content, sync=False)
        except (SteinstreamError, AttributeError, TypeError, ValueError):  # cannot be written
            return mutate_bytes(data, choose)
        return path.read_bytes()


def mutate_zip(data: bytes, choose: Random) -> bytes:
    """Change, delete or add a member of a zip file; metadata of Zarr as JSON."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    metadata = [name for name in members if name.endswith("zarr.json")]
    name = choose.choice([*members, *metadata * 2])
    how = choose.random()
    if how < 0.05:
        del members[name]
    elif how < 0.1:
        members[choose.choice(["zarr.json", "../up", "/x", f"{name}/", f"{name}/x", "posterior"])] = b"{}"
    elif name in metadata and how < 0.8:
        members[name] = mutate_json(members[name], choose)
    else:
        members[name] = mutate_bytes(members[name], choose)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", choose.choice([0, 0, 0, 8])) as archive:
        for key, member in members.items():
            archive.writestr(_member(key), member)
    return file.getvalue()


# -- csv ---------------------------------------------------------------------------------------------------------------

_FIELDS = [
    *("", " ", "nan", "NaN", "inf", "-Infinity", "1e999", "-1e999", "1e-999", "0x10", "1_000", "1,5", "1.5.2", "--1"),
    *(
        "1e",
        "\0",
        '"',
        '"1',
        '"1"',
        "'1'",
        "é",
        "1" * 400,
        "." + "0" * 400 + "1",
        "+1",
        "1 ",
        "\t1",
        "\uff11",
        "1d3",
        "TRUE",
    ),
    *("NA", "#", "1;2", "9007199254740993", "1e20", "-0.5", "\u2212" + "1"),
]
_TITLES = [
    *(
        "",
        "chain",
        "draw",
        ".chain",
        "a",
        "score_a",
        "score_",
        "lp__",
        "a.1",
        "a[1]",
        '"a"',
        '"a',
        "a\0",
        "é",
        "x" * 9999,
    ),
    *("1", "nan", "weight", "log_density", "score_score_a", " a ", "draws", "scores", "ids"),
]


def mutate_csv(data: bytes, choose: Random) -> bytes:
    """Change fields, rows, the header, quotes, line ends or the encoding of a csv file, or make a line huge."""
    if choose.random() < _BOMBS / 3:
        return bomb_csv(data, choose)
    rows = [row.split(",") for row in data.decode("utf-8").splitlines()]
    at = choose.randrange(len(rows))
    row = rows[at]
    column = choose.randrange(len(row))
    head = next((i for i, row in enumerate(rows) if not row[0].startswith("#")), 0)
    how = choose.randrange(18)
    if how <= 3:
        row[column] = choose.choice(_FIELDS)
    elif how <= 5:
        rows[head][choose.randrange(len(rows[head]))] = choose.choice(_TITLES)
    elif how == 6:
        row.insert(column, choose.choice(_FIELDS))
    elif how == 7:
        del row[column]
    elif how == 8:
        rows.insert(at, choose.choice([[""], ["#"], rows[head], ["# comment", "x"], [" "], ['"'], ["\0" * 50]]))
    elif how == 9:
        del rows[choose.choice([head, at]) :: choose.choice([1, 2, 10**6])]
    elif how == 10:
        rows[head] = [choose.choice(_TITLES) for _ in rows[head]]
    elif how == 11:  # a wide table
        width = choose.choice([100, 3000])
        rows = [[*row, *(f"{name}.{i}" if number == 0 else "1.5" for i in range(width))]
                for number, (row, name) in enumerate(zip(rows[head : head + 5], "abcdef", strict=False))]  # fmt: skip
    elif how == 12:
        rows[at:at] = rows[at : at + 3] * choose.choice([1, 50])
    elif how == 13:
        rows = [row[:column] + row[column + 1 :] for row in rows]
    text = choose.choice(["\n"] * 8 + ["\r\n", "\r", "\n\n", "", ";\n"]).join(
        map(choose.choice([","] * 12 + [";", "\t", ", "]).join, rows)
    )
    text += choose.choice(["\n"] * 4 + ["", "\r", "\n\n\n", "1,", "\0"])
    encoding = choose.choice(["utf-8"] * 10 + ["utf-16", "latin-1", "utf-8-sig", "utf-32", "cp037"])
    encoded = text.encode(encoding, "replace")
    return gzip.compress(encoded, mtime=0) if choose.random() < 0.05 else encoded


# -- HDF5, NetCDF and parquet ------------------------------------------------------------------------------------------


def mutate_hdf5(data: bytes, choose: Random) -> bytes:
    """Change, delete, rename or retype a group, a dataset or an attribute of an HDF5 file, or make a dataset huge."""
    import h5py

    if choose.random() < _BOMBS:
        return bomb_hdf5(data, choose)
    file = io.BytesIO(data)
    with h5py.File(file, "r+") as root:
        names = list[str]()
        root.visit(names.append)
        name, how = choose.choice(names), choose.randrange(8)
        item = root[name]
        attributes = [key for key in item.attrs if key not in ("REFERENCE_LIST", "DIMENSION_LIST")]
        try:
            if how <= 2 and isinstance(item, h5py.Dataset) and item.nbytes > _LARGEST_TABLE:
                return mutate_bytes(data, choose)
            if how <= 2 and isinstance(item, h5py.Dataset) and item.dtype.kind in "fiuV":
                values, kept = mutate_array(item[()], choose), dict(item.attrs)
                del root[name]
                root[name] = values
                root[name].attrs.update(kept)
            elif how <= 4 and attributes:
                value = choose.choice([None, *VALUES])
                item.attrs[choose.choice(attributes)] = np.zeros(0) if value is None else value
            elif how == 5:
                del item.attrs[choose.choice(list(item.attrs))]
            elif how == 6:
                other = choose.choice([*names, "new"])
                link = choose.choice([h5py.SoftLink(f"/{name}"), h5py.ExternalLink("missing.h5", "/x"), None])
                if link is None:
                    root.move(name, other)
                else:
                    del root[name]
                    root[name] = link
            else:
                del root[name]
        except (KeyError, TypeError, ValueError, OSError, RuntimeError, OverflowError, IndexError):
            return mutate_bytes(data, choose)
    return file.getvalue()


def mutate_parquet(data: bytes, choose: Random) -> bytes:
    """Change the type, the values or the name of a column of a parquet file, or make a column huge."""
    import pyarrow
    import pyarrow.parquet

    if choose.random() < _BOMBS:
        return bomb_parquet(data, choose)
    table = pyarrow.parquet.read_table(io.BytesIO(data), use_threads=False)
    if table.nbytes > _LARGEST_TABLE:
        return mutate_bytes(data, choose)
    at = choose.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    kinds = [pyarrow.string(), pyarrow.float32(), pyarrow.float16(), pyarrow.bool_(), pyarrow.int8(), pyarrow.null()]
    kinds += [pyarrow.decimal128(30, 5), pyarrow.timestamp("s"), pyarrow.list_(pyarrow.float64()), pyarrow.binary()]
    how = choose.randrange(6)
    values = column.to_pylist()
    try:
        if how <= 1:
            kind = choose.choice(kinds)
            table = table.set_column(
                at, name, pyarrow.array([None] * len(values)).cast(kind) if how else column.cast(kind)
            )
        elif how == 2:
            values[choose.randrange(len(values))] = choose.choice([None, float("nan"), float("inf"), 1e300])
            table = table.set_column(at, name, pyarrow.array(values, pyarrow.float64()))
        elif how == 3:
            nested = [[value] * choose.choice([1, 1, 2]) for value in values]
            table = table.set_column(at, choose.choice([name, "draws", "scores"]), pyarrow.array(nested))
        elif how == 4:
            table = table.rename_columns(
                [*table.column_names[:at], choose.choice(_TITLES[:-4]), *table.column_names[at + 1 :]]
            )
        else:
            table = choose.choice([table.slice(0, 0), table.drop_columns([name]), table.slice(3, 2)])
        file = io.BytesIO()
        pyarrow.parquet.write_table(table, file, row_group_size=choose.choice([7, 1000]))
    except (pyarrow.ArrowException, ValueError, TypeError, NotImplementedError):
        return mutate_bytes(data, choose)
    return file.getvalue()

"""A damaged or forged file ends in one InputError, in bounded time and memory, and changes no other file."""

import random
import shutil
import time
import tracemalloc
import warnings

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, OutputError, SteinstreamError
from steinstream.io import _csv_rows, check_output, open_chain, read_kept, write_kept
from steinstream.io.zarr import is_own_store
from steinstream.result import Kept

RANDOM = np.random.default_rng(0)
DRAWS = RANDOM.normal(size=(2, 40, 3))


@pytest.fixture(scope="module")
def kept():
    return ss.thin(DRAWS[0], -DRAWS[0], size=8, names=["a", "b", "c"])


# -- mutated files -----------------------------------------------------------------------------------------------------


def tree():
    xr = pytest.importorskip("xarray")
    dims, coords = ("chain", "draw", "unconstrained_parameter"), {"chain": np.arange(2), "draw": np.arange(40)}
    stats = {"gradient": (dims, -DRAWS), "unconstrained_draw": (dims, DRAWS)}
    labels = {"unconstrained_parameter": np.array(["a", "b", "c"], object)}
    posterior = xr.Dataset({"mu": (("chain", "draw"), DRAWS[..., 0]), "p": (("chain", "draw", "k"), DRAWS)}, coords)
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": xr.Dataset(stats, {**coords, **labels})})


def write_netcdf(path, kept):
    pytest.importorskip("h5netcdf")
    tree().to_netcdf(path, engine="h5netcdf")


def write_classic(path, kept):
    pytest.importorskip("scipy")
    xr = pytest.importorskip("xarray")
    dims = ("chain", "draw", "k")
    xr.Dataset({"draws": (dims, DRAWS), "scores": (dims, -DRAWS)}).to_netcdf(path, engine="scipy")


def write_emcee(path, kept):
    h5py = pytest.importorskip("h5py")
    blobs = np.zeros((40, 2), [("score", float, 3)])
    blobs["score"] = -DRAWS.transpose(1, 0, 2)
    with h5py.File(path, "w") as file:
        group = file.create_group("mcmc")
        group.attrs.update({"nwalkers": 2, "ndim": 3, "iteration": 40})
        group["chain"], group["blobs"] = DRAWS.transpose(1, 0, 2), blobs


def write_zarr(version):
    def write(path, kept):
        pytest.importorskip("zarr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree().to_zarr(path, zarr_format=version)

    return write


def write_npz(path, kept):
    np.savez(path, draws=DRAWS, scores=-DRAWS)


def write_npy(path, kept):
    np.save(path, DRAWS)


def write_csv(path, kept):
    path.write_text("chain,draw,a,score_a\n" + "".join(f"0,{i},{i}.5,-{i}\n" for i in range(50)))


def write_parquet(path, kept):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    arrow.parquet.write_table(arrow.table({"a": DRAWS[0, :, 0], "score_a": -DRAWS[0, :, 0]}), path)


def write_result(path, kept):
    pytest.importorskip({".nc": "h5netcdf", ".zarr": "zarr"}.get(path.suffix, "json"))
    write_kept(kept, path)


FILES = {
    "chain.nc": (write_netcdf, 20),
    "classic.nc": (write_classic, 60),
    "run.h5": (write_emcee, 20),
    "version2.zarr": (write_zarr(2), 15),
    "version3.zarr": (write_zarr(3), 15),
    "chain.npz": (write_npz, 60),
    "chain.npy": (write_npy, 60),
    "chain.csv": (write_csv, 60),
    "chain.parquet": (write_parquet, 60),
    "kept.npz": (write_result, 60),
    "kept.nc": (write_result, 20),
    "kept.zarr": (write_result, 15),
}


def mutated(data, choose):
    """Return bytes with one of six kinds of damage."""
    data, how, length = bytearray(data), choose.randrange(6), choose.choice([1, 2, 4, 8, 32, 100])
    at, other = choose.randrange(len(data)), choose.randrange(len(data))
    if how == 0:
        return bytes(data[:at])
    if how == 1:
        for _ in range(length):
            data[choose.randrange(len(data))] = choose.randrange(256)
    elif how == 2:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif how == 3:
        data[at : at + length] = b"\xff" * len(data[at : at + length])
    elif how == 4:
        del data[at : at + length]
    else:
        data[at : at + length] = data[other : other + length]
    return bytes(data)


def read_everything(path):
    """Read a file as a chain and as a kept set, and return whether one of them worked."""
    worked = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chain = open_chain(path)
            ids = [block.ids for _, block in zip(range(100), chain.blocks(16), strict=False)]
            chain.notes()
            chain.variables(np.concatenate(ids)[:3])
            worked += 1
        except SteinstreamError as error:
            assert error.problem
        try:
            kept = read_kept(path)
            assert np.isfinite(kept.draws).all() and (kept.weights is None or (kept.weights >= 0).all())
            worked += 1
        except SteinstreamError as error:
            assert error.problem
    return worked


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused_with_one_error(name, kept, tmp_path, capfd):
    write, cases = FILES[name]
    write(tmp_path / name, kept)
    whole = tmp_path / name
    assert read_everything(whole)
    refused = 0
    for case in range(cases):
        choose, path = random.Random(case), tmp_path / "damaged" / name
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        if whole.is_dir():
            shutil.copytree(whole, path)
            files = sorted(file for file in path.rglob("*") if file.is_file())
            read_first = [file for file in (path / ".zmetadata", path / "zarr.json") if file.exists()]
            one = choose.choice([*read_first * len(files), *files])
        else:
            one = shutil.copy(whole, path)
        one.write_bytes(mutated(one.read_bytes(), choose))
        refused += not read_everything(path)
    assert refused
    assert "Traceback" not in capfd.readouterr().err


# -- headers, ids, names, lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["(True, 2)", "(-1, 2)", "(2.0, 2)", "(2, 2, None)"])
def test_an_invalid_shape_in_an_array_header_is_refused(shape, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    data = (tmp_path / "x.npy").read_bytes()
    header = data[10 : data.index(b"\n")]
    changed = header.replace(b"(2, 2)", shape.encode()).rstrip().ljust(len(header))
    (tmp_path / "x.npy").write_bytes(data.replace(header, changed))
    with pytest.raises(InputError, match="shape"):
        open_chain(tmp_path / "x.npy")


@pytest.mark.parametrize("number", ["1e20", "-1e20", "inf", "nan", "0.5", "9007199254740994"])
def test_a_chain_number_that_is_not_a_whole_number_is_refused(number, tmp_path):
    (tmp_path / "c.csv").write_text(f"chain,a\n0,1\n{number},2\n")
    with pytest.raises(InputError, match=r"row 2, column chain: .* is not a whole number"):
        list(open_chain(tmp_path / "c.csv").blocks())


def test_ids_beyond_the_range_of_int64_are_refused(tmp_path):
    ids = np.array([[0, 1], [2**64 - 1, 5]], dtype=np.uint64)
    np.savez(tmp_path / "c.npz", draws=np.ones((2, 1)), ids=ids)
    with pytest.raises(InputError, match="is not a whole number, or it is larger"):
        list(open_chain(tmp_path / "c.npz").blocks())


def test_a_wide_header_is_parsed_in_linear_time(tmp_path):
    def seconds(count):
        names = [f"theta.{i}" for i in range(count)]
        titles = [*names, *(f"score_{name}" for name in names)]
        (tmp_path / "wide.csv").write_text(",".join(titles) + "\n" + ("1," * len(titles))[:-1] + "\n")
        begin = time.process_time()
        for _ in range(3):
            assert open_chain(tmp_path / "wide.csv").dim == count
        return time.process_time() - begin

    seconds(100)
    assert seconds(16_000) < 40 * seconds(1_000)  # 256 times if it were quadratic


def test_a_file_without_line_ends_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(_csv_rows, "LONGEST_LINE", 1 << 20)
    for name, start in (
        ("a.csv", b"a,b\n1"),
        ("b.csv", b"1"),
        ("c.csv", b"# stan_version_major = 2\n# model = m\nlp__,x\n1"),
    ):
        with (tmp_path / name).open("wb") as file:
            file.write(start)
            for _ in range(40):
                file.write(b"1" * (1 << 20))
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match="a line is longer than 1 MB"):
                list(open_chain(tmp_path / name).blocks())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 25e6  # of 42 MB; 16 of them are asked for and never touched


def test_names_that_are_not_utf8_are_replaced(tmp_path):
    np.savez(tmp_path / "c.npz", draws=np.ones((5, 1)), names=np.array(["a\udcff"]))
    chain = open_chain(tmp_path / "c.npz")
    assert chain.names == ("a?",)
    (tmp_path / "c.csv").write_bytes(b"a\xff,b\n1,2\n")
    with pytest.raises(InputError, match="cannot be read as csv"):
        open_chain(tmp_path / "c.csv")


def test_a_text_file_can_contain_a_file_name_that_is_not_utf8(tmp_path):
    with ss.io.replacing(tmp_path / "report.html", "w") as file:
        file.write("a\udcff.npz")
    assert (tmp_path / "report.html").read_bytes() == b"a?.npz"


# -- kept sets ---------------------------------------------------------------------------------------------------------

WRONG = {
    "a draw that is not finite": ({"draws": np.vstack([np.ones((7, 3)), np.full((1, 3), np.nan)])}, "draw .*nan"),
    "a score that is infinite": ({"scores": np.full((8, 3), np.inf)}, "score .*inf"),
    "second scores that are not finite": ({"second_scores": np.full((8, 3), np.nan)}, "score .*nan"),
    "negative weights": ({"weights": np.array([1.5, -0.5, 0, 0, 0, 0, 0, 0])}, "weights"),
    "weights that are all zero": ({"weights": np.zeros(8)}, "weights"),
    "weights that are not finite": ({"weights": np.full(8, np.nan)}, "weights"),
    "weights of another sum": ({"weights": np.ones(8)}, "weights"),
    "ids that are not whole numbers": ({"ids": np.ones((8, 2))}, "ids"),
    "ids of another shape": ({"ids": np.ones((8, 3), int)}, "ids"),
    "ids that are too large": ({"ids": np.full((8, 2), 2**64 - 1, np.uint64)}, "ids"),
    "another number of names": ({"names": np.array(["a", "b"])}, "2 names for 3 parameters"),
    "a negative ksd": ({"ksd": np.float64(-1.0)}, "ksd is -1"),
    "no ksd in spite of scores": ({"ksd": np.float64(np.nan)}, "ksd is nan"),
    "a history of different lengths": ({"history_ksd": np.ones(1)}, "history_ksd"),
    "a history of text": ({"history_size": np.array(["x"])}, "history_size"),
    "a preconditioner of other dimensions": ({"preconditioner": np.ones(5)}, "preconditioner"),
    "a singular preconditioner": ({"preconditioner": np.zeros((3, 3))}, "."),
    "a preconditioner that is not finite": ({"preconditioner": np.full(3, np.nan)}, "."),
    "prefixes of another length": ({"prefix_ksd": np.ones(3)}, "prefix_ksd"),
    "settings that are not a table": ({"settings": np.array("[1]")}, "."),
    "a kernel with unknown settings": ({"settings": np.array('{"kernel": "IMQ(power=2)"}')}, "."),
    "a kernel with an invalid setting": ({"settings": np.array('{"kernel": "IMQ(c=-1.0)"}')}, "."),
    "a variable of another length": (
        {"variable/v": np.ones(5), "variable/v/dims": np.array([], dtype="U1")},
        "variable v",
    ),
    "labels of another length": (
        {
            "variable/v": np.ones((8, 2)),
            "variable/v/dims": np.array(["k"]),
            "variable/v/coords/k": np.arange(3),
        },
        "labels k",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_forged_kept_set_is_refused(case, kept, tmp_path):
    change, match = WRONG[case]
    write_kept(kept, tmp_path / "kept.npz")
    assert len(Kept.load(tmp_path / "kept.npz")) == 8
    with np.load(tmp_path / "kept.npz") as file:
        arrays = {**file, **change}
    np.savez(tmp_path / "kept.npz", **arrays)
    with pytest.raises(InputError, match=match):
        Kept.load(tmp_path / "kept.npz")


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_kept_set_with_an_invalid_draw_is_refused_in_trees(suffix, kept, tmp_path):
    pytest.importorskip({".nc": "h5netcdf", ".zarr": "zarr"}[suffix])
    from dataclasses import replace

    write_kept(replace(kept, draws=np.full_like(kept.draws, np.nan)), tmp_path / f"kept{suffix}")
    with pytest.raises(InputError, match=r"is not a valid kept set: .*nan"):
        read_kept(tmp_path / f"kept{suffix}")


# -- Zarr stores are replaced only if they are ours --------------------------------------------------------------------


def test_only_a_store_that_we_wrote_is_replaced(kept, tmp_path):
    pytest.importorskip("zarr")
    own, foreign = tmp_path / "own.zarr", tmp_path / "foreign.zarr"
    write_kept(kept, own)
    assert is_own_store(own)
    write_kept(kept, own)
    tree().to_zarr(foreign, zarr_format=2)
    (own / "notes.txt").write_text("mine")
    for path in (own, foreign):
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        for attempt in (check_output, lambda path: write_kept(kept, path)):
            with pytest.raises(OutputError, match="not a store that steinstream wrote, or it contains other files"):
                attempt(path)
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    (own / "notes.txt").unlink()
    (own / "posterior" / "0").symlink_to(tmp_path)
    assert not is_own_store(own)
    empty = tmp_path / "empty.zarr"
    empty.mkdir()
    (empty / ".zgroup").write_text("{}")
    assert not is_own_store(empty)

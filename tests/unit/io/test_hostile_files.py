"""A damaged or forged file ends in one InputError, in bounded time and memory, and changes no other file."""

import json
import random
import shutil
import time
import tracemalloc
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import steinstream as ss
from fuzz import seeds
from fuzz.mutations import mutate_bytes
from steinstream.errors import InputError, OutputError, SteinstreamError
from steinstream.io import _csv_rows, check_output, csv, open_chain, read_kept, write_kept
from steinstream.io.zarr import is_own_store
from steinstream.report.provenance import recorded_commands
from steinstream.result import Kept, Variable

DRAWS = seeds.DRAWS


@pytest.fixture(scope="module")
def kept():
    return ss.thin(DRAWS[0], -DRAWS[0], size=8, names=["a", "b", "c"])


# -- mutated files -----------------------------------------------------------------------------------------------------


def needing(module, write):
    """Return a function that writes a file, and skips the test without a library."""

    def skip_or_write(path):
        pytest.importorskip(module)
        if module in ("h5netcdf", "zarr"):
            pytest.importorskip("xarray")
        write(path)

    return skip_or_write


FILES = {
    "chain.nc": (needing("h5netcdf", seeds.write_netcdf), 20),
    "classic.nc": (needing("scipy", seeds.write_classic), 60),
    "run.h5": (needing("h5py", seeds.write_emcee), 20),
    "version2.zarr": (needing("zarr", partial(seeds.write_zarr, version=2)), 15),
    "version3.zarr": (needing("zarr", partial(seeds.write_zarr, version=3)), 15),
    "chain.npz": (seeds.write_npz, 60),
    "chain.npy": (lambda path: np.save(path, DRAWS), 60),
    "chain.csv": (seeds.write_csv, 60),
    "chain.parquet": (needing("pyarrow", seeds.write_parquet), 60),
    "kept.npz": (seeds.write_kept_set, 60),
    "kept.nc": (needing("h5netcdf", seeds.write_kept_set), 20),
    "kept.zarr": (needing("zarr", seeds.write_kept_set), 15),
}


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
def test_a_damaged_file_is_read_or_refused_with_one_error(name, tmp_path, capfd):
    write, cases = FILES[name]
    write(tmp_path / name)
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
        one.write_bytes(mutate_bytes(one.read_bytes(), choose))
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


def test_a_file_of_zero_bytes_is_not_read_whole(tmp_path, monkeypatch):
    read = []

    @contextmanager
    def counting(path, kind="csv"):
        with _csv_rows.open_text(path, kind) as (file, text):
            yield file, SimpleNamespace(read=lambda size: read.append(size) or assert_few(read) or text.read(size))

    def assert_few(sizes):
        assert sum(sizes) < 1 << 28

    monkeypatch.setattr(csv, "open_text", counting)
    path = tmp_path / "zeros.csv"
    with path.open("wb") as file:
        file.truncate(1 << 36)  # needs no space
    with pytest.raises(InputError, match="a line is longer than 64 MB"):
        open_chain(path)
    assert read


def test_a_long_file_with_one_line_per_parameter_is_refused_by_its_first_part(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "LONGEST_LINE", 1 << 20)
    path, line = tmp_path / "long.csv", ",".join(["0.25"] * 150_000) + "\n"
    path.write_text(line * 4)  # 3 MB
    with pytest.raises(InputError, match=r"150000 columns and \d lines: it seems to have one line per parameter"):
        open_chain(path)
    path.write_text((",".join(["0.25"] * 4000) + "\n") * 500)  # a tenth of the columns after 2 of 10 MB
    assert open_chain(path).dim == 4000


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


@pytest.mark.parametrize("change", [{"nwalkers": 2**40}, {"iteration": 10**12}, {"ndim": 4}, {"nwalkers": 0}])
def test_an_emcee_file_with_other_sizes_than_its_arrays_is_refused(change, tmp_path):
    h5py = pytest.importorskip("h5py")
    seeds.write_emcee(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file["mcmc"].attrs.update(change)
    with pytest.raises(InputError, match="expected"):
        open_chain(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        del file["mcmc"]["chain"]
    with pytest.raises(InputError, match="cannot be read as emcee"):
        open_chain(tmp_path / "run.h5")


def other_dimension_lists(h5py, array):
    """Return values and types that the list of the dimensions of an array of three dimensions must not have."""
    references = list(array.attrs["DIMENSION_LIST"])
    numbers = [np.zeros(3, np.uint8)] * 3
    return [
        (references * 2, h5py.vlen_dtype(h5py.ref_dtype)),  # too long
        (references[:2], h5py.vlen_dtype(h5py.ref_dtype)),
        (numbers, h5py.vlen_dtype(np.uint8)),  # smaller than references
        ([each[0] for each in references], h5py.ref_dtype),
        (np.zeros(3, "V64"), np.dtype("V64")),  # larger than the elements of a list
    ]


@pytest.mark.parametrize("case", range(5))
def test_a_list_of_dimensions_that_would_overwrite_memory_is_refused(case, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    h5py, path = pytest.importorskip("h5py"), tmp_path / "chain.nc"
    seeds.write_netcdf(path)
    with h5py.File(path, "r+") as file:
        array = file["sample_stats/unconstrained_draw"]
        values, kind = other_dimension_lists(h5py, array)[case]
        filled = np.empty(len(values), kind)
        for at, value in enumerate(values):
            filled[at] = value
        del array.attrs["DIMENSION_LIST"]
        array.attrs.create("DIMENSION_LIST", filled, dtype=kind)
    with pytest.raises(InputError, match="the list of the dimensions of unconstrained_draw is damaged"):
        open_chain(path)


def test_blocks_whose_arrays_do_not_fit_are_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "c.npz", draws=DRAWS[0], scores=DRAWS[0])
    chain = open_chain(tmp_path / "c.npz")
    read = chain._read
    monkeypatch.setattr(chain, "_read", lambda *how: (b._replace(scores=np.hstack([b.scores] * 2)) for b in read(*how)))
    with pytest.raises(InputError, match=r"scores \(40, 6\) do not fit 40 ids and 3 parameters"):
        list(chain.blocks())


def test_a_followed_file_whose_header_is_not_csv_is_refused(tmp_path):
    from steinstream.io.csv_follow import FollowedFiles

    (tmp_path / "c.csv").write_bytes(b"a\rb,c\n1,2\n")
    with pytest.raises(InputError, match="cannot be read as csv"):
        FollowedFiles([tmp_path / "c.csv"]).read()


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
    "an unknown kernel": ({"settings": np.array('{"kernel": "Matern(c=1.0)"}')}, "Unknown kernel"),
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


@pytest.mark.parametrize("name", ["names", "settings"])
def test_a_kept_set_with_numbers_that_are_no_characters_is_refused(name, kept, tmp_path):
    write_kept(kept, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as file:
        arrays = dict(file)
    array = arrays[name]
    arrays[name] = np.full(array.nbytes // 4, 0x110000, dtype=np.uint32).view(array.dtype).reshape(array.shape)
    np.savez(tmp_path / "kept.npz", **arrays)
    with pytest.raises(InputError, match="damaged"):
        Kept.load(tmp_path / "kept.npz")
    if name == "names":
        assert open_chain(tmp_path / "kept.npz").names == ("x0", "x1", "x2")  # of draws, other names are ignored


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
    pytest.importorskip("xarray")
    pytest.importorskip({".nc": "h5netcdf", ".zarr": "zarr"}[suffix])
    write_kept(replace(kept, draws=np.full_like(kept.draws, np.nan)), tmp_path / f"kept{suffix}")
    with pytest.raises(InputError, match=r"is not a valid kept set: .*nan"):
        read_kept(tmp_path / f"kept{suffix}")


@pytest.mark.parametrize("name", ["a\0", "\udcff"])
def test_a_name_that_no_file_can_store_is_refused(name, kept, tmp_path):
    for suffix in (".npz", ".csv"):
        named = replace(kept, variables={name: ss.Variable(np.ones(8))})
        with pytest.raises(InputError, match="No file can store the name"):
            write_kept(named, tmp_path / f"kept{suffix}")
    assert not [*tmp_path.iterdir()]


def test_a_name_that_is_too_long_for_files_is_refused(kept, tmp_path):
    for name, fits in (("a" * 10_000, True), ("a" * 10_001, False)):
        named = replace(kept, variables={name: ss.Variable(np.ones(8))})
        if fits:
            write_kept(named, tmp_path / "kept.npz")
            assert list(read_kept(tmp_path / "kept.npz").variables) == [name]
        else:
            with pytest.raises(InputError, match="has 10001 characters"):
                write_kept(named, tmp_path / "other.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "/a", "draw", "sample"])
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_variable_whose_name_is_a_path_is_refused_in_trees(name, suffix, kept, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip({".nc": "h5netcdf", ".zarr": "zarr"}[suffix])
    with pytest.raises(InputError, match="cannot store the name"):
        write_kept(replace(kept, variables={name: ss.Variable(np.ones(8))}), tmp_path / f"kept{suffix}")
    assert not [*tmp_path.iterdir()]


# -- Zarr stores are replaced only if they are ours --------------------------------------------------------------------


def test_only_a_store_that_we_wrote_is_replaced(kept, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    own, foreign = tmp_path / "own.zarr", tmp_path / "foreign.zarr"
    write_kept(kept, own)
    assert is_own_store(own)
    write_kept(kept, own)
    seeds.write_zarr(foreign, 2)
    (own / "notes.txt").write_text("mine")
    for path in (own, foreign):
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        for attempt in (check_output, lambda path: write_kept(kept, path)):
            with pytest.raises(OutputError, match="not a store that steinstream wrote, or it was changed later"):
                attempt(path)
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    (own / "notes.txt").unlink()
    (own / "posterior" / "0").symlink_to(tmp_path)
    assert not is_own_store(own)
    empty = tmp_path / "empty.zarr"
    empty.mkdir()
    (empty / ".zgroup").write_text("{}")
    assert not is_own_store(empty)


def _add_array(path):
    import zarr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.open_group(path)["posterior"].create_array("mine", data=np.arange(3.0))


def _add_attribute(path):
    import zarr

    zarr.open_group(path).attrs["note"] = "mine"


def _change_a_chunk(path):
    chunk = path / "posterior" / "a" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + bytes([chunk.read_bytes()[-1] ^ 1]))


def _rename_an_array(path):
    (path / "posterior" / "a").rename(path / "posterior" / "mine")


@pytest.mark.parametrize("change", [_add_array, _add_attribute, _change_a_chunk, _rename_an_array])
def test_a_store_of_ours_that_the_user_changed_is_not_replaced(change, kept, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    path = tmp_path / "own.zarr"
    write_kept(kept, path)
    change(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(OutputError, match="was changed later"):
        write_kept(kept, path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("names", [[".zattrs"], [".zattrs", ".zmetadata", ".zgroup"]])
def test_a_foreign_store_with_the_attributes_of_ours_is_not_replaced(names, kept, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    write_kept(kept, tmp_path / "own.zarr")
    foreign = tmp_path / "foreign.zarr"
    seeds.write_zarr(foreign, 2)
    for name in names:
        shutil.copy(tmp_path / "own.zarr" / name, foreign / name)
    with pytest.raises(OutputError, match="was changed later"):
        write_kept(kept, foreign)
    assert (foreign / "sample_stats" / "gradient").is_dir()


def test_the_bytes_of_a_store_depend_on_the_kept_set_alone(kept, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    paths = [tmp_path / name for name in ("a.zarr", "b.zarr")]
    for path in paths:
        write_kept(kept, path)
    first, second = (
        {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()} for path in paths
    )
    assert first == second


# -- found by fuzzing --------------------------------------------------------------------------------------------------


def test_a_checkpoint_whose_sums_are_those_of_another_kernel_is_refused(tmp_path):
    from steinstream.io import checkpoint

    thinner = ss.Thinner(3, size=8)
    thinner.extend(DRAWS[0], -DRAWS[0])
    thinner.save(tmp_path / "run.npz")
    content = checkpoint.read(tmp_path / "run.npz")
    content["config"]["kernel"]["c"] = 2.0
    checkpoint.write(tmp_path / "run.npz", content)
    with pytest.raises(InputError, match=r"not a valid checkpoint. .* (sum|influence|matrix|KSD)"):
        ss.Thinner.load(tmp_path / "run.npz")


def test_a_kept_set_without_a_finite_bound_is_read_again(kept, tmp_path):
    unbounded = replace(kept, bound=np.inf, settings={**kept.settings, "bound": np.inf})
    write_kept(unbounded, tmp_path / "kept.npz")
    assert read_kept(tmp_path / "kept.npz").bound == np.inf


def test_complex_variables_are_read_again(kept, tmp_path):
    values = np.arange(len(kept)) * 1j
    write_kept(replace(kept, variables={"z": Variable(values)}), tmp_path / "kept.npz")
    assert np.array_equal(read_kept(tmp_path / "kept.npz").variables["z"].values, values)


@pytest.mark.parametrize("command", ["x", "a b '", ""])
def test_commands_of_another_program_are_not_reported(command, kept):
    assert not recorded_commands(
        replace(kept, settings={**kept.settings, "commands": ["steinstream thin a.npz", command]})
    )


def test_a_number_of_draws_beyond_the_exact_range_is_refused():
    with pytest.raises(InputError, match=r"size must be at most 2\^53"):
        ss.Thinner(3, size=2**64)


@pytest.mark.parametrize(
    "settings",
    [
        {"effective_draws": "many"},
        {"seen": -1},
        {"skipped": None},
        {"burn_in": True},
        {"merged": 3},
        {"merged": {"stream_weight": None}},
        {"config": {"stream_weight": {"a": 1}}},
        {"config": {"stream_weight": 1e200}},
        {"preconditioner_changed": ["x"]},
        {"burn_in_ends": [3]},
        {"burn_in_ends": [[0, "x"]]},
        {"commands": "x"},
    ],
)
def test_a_kept_set_with_settings_of_another_type_is_refused(settings, kept, tmp_path):
    write_kept(replace(kept, settings={**kept.settings, **settings}), tmp_path / "kept.npz")
    with pytest.raises(InputError, match=rf"the setting {next(iter(settings))}(\.stream_weight)? is"):
        read_kept(tmp_path / "kept.npz")


def with_two_members(path):
    """Append a second member with the name of the first."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        name = archive.namelist()[0]
        archive.writestr(name, archive.read(name))


def test_two_members_of_one_name_are_refused(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 2))
    thinner = ss.Thinner(2, size=10)
    thinner.extend(x, -x)
    thinner.save(tmp_path / "run.npz")
    thinner.kept.save(tmp_path / "kept.npz")
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x)
    for name, read in (("chain", open_chain), ("kept", ss.Kept.load), ("run", ss.Thinner.load)):
        path = tmp_path / f"{name}.npz"
        read(path)
        with_two_members(path)
        with pytest.raises(SteinstreamError, match=r"two members|not a readable checkpoint"):
            read(path)


def test_an_error_quotes_a_part_of_a_long_header_only(tmp_path):
    path, header = tmp_path / "chain.npy", ("(" * 4000 + ")" * 4000).encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(InputError) as caught:
        open_chain(path)
    assert len(str(caught.value)) < 700


def test_a_number_of_draws_that_is_not_whole_is_refused(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 2))
    kept = ss.thin(x, -x, size=10)
    write_kept(replace(kept, settings={**kept.settings, "seen": 1e-320}), tmp_path / "kept.npz")
    with pytest.raises(InputError, match="the setting seen is 1e-320, expected a whole number"):
        ss.Kept.load(tmp_path / "kept.npz")


# -- chunks of a Zarr store --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 10, 200, -1])
@pytest.mark.parametrize("version", [2, 3])
def test_a_truncated_blosc_chunk_is_refused_before_it_is_decoded(length, version, tmp_path):
    pytest.importorskip("xarray")
    zarr = pytest.importorskip("zarr")
    blosc = pytest.importorskip("numcodecs").Blosc() if version == 2 else zarr.codecs.BloscCodec()
    path, dims = tmp_path / "x.zarr", ["chain", "draw", "k"]
    named = {"dimension_names": dims} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
    group = zarr.open_group(path, mode="w", zarr_format=version)
    array = group.create_array("draws", shape=DRAWS.shape, chunks=DRAWS.shape, dtype="f8", compressors=blosc, **named)
    array[...] = DRAWS
    assert len(next(open_chain(path).blocks()).draws)
    (chunk,) = [file for file in path.rglob("*0") if file.is_file()]
    chunk.write_bytes(chunk.read_bytes()[:length])
    with pytest.raises(InputError, match="Blosc chunk"):
        next(open_chain(path).blocks())


@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_that_states_more_texts_than_it_has_is_refused_before_it_is_decoded(version, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    numcodecs = pytest.importorskip("numcodecs")
    seeds.write_zarr(tmp_path / "x.zarr", version)
    names = tmp_path / "x.zarr" / "sample_stats" / "unconstrained_parameter"
    assert open_chain(tmp_path / "x.zarr").names == ("a", "b", "c")
    compressor = json.loads((names / ".zarray").read_text())["compressor"] if version == 2 else {"id": "zstd"}
    codec, (chunk,) = numcodecs.get_codec(compressor), [file for file in names.rglob("*0") if file.is_file()]
    content = bytearray(codec.decode(chunk.read_bytes()))
    assert content[:4] == (3).to_bytes(4, "little")
    content[:4] = (2**31 - 1).to_bytes(4, "little")  # a list of 17 GB
    chunk.write_bytes(codec.encode(bytes(content)))
    with pytest.raises(InputError, match="states 2147483647 texts"):
        open_chain(tmp_path / "x.zarr")


@pytest.mark.parametrize("codec", ["pickle", "lzma", "bz2"])
def test_other_codecs_are_refused_before_they_run(codec, tmp_path):
    pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    path = tmp_path / "x.zarr"
    seeds.write_zarr(path, 2)
    for name in (".zarray", ".zattrs"):
        assert (path / "sample_stats" / "gradient" / name).is_file()
    metadata = path / "sample_stats" / "gradient" / ".zarray"
    metadata.write_text(metadata.read_text().replace('"id": "blosc"', f'"id": "{codec}"'))
    (path / ".zmetadata").unlink(missing_ok=True)
    with pytest.raises(InputError, match=rf"'{codec}' is not read|cannot be read as Zarr"):
        next(open_chain(path).blocks())
    assert codec in metadata.read_text()


# -- arrays of different lengths in a Zarr store, which has no common dimensions ---------------------------------------


def _store_of(path, lengths):
    """Write a store with arrays of one value per draw, given their lengths by the path of the array."""
    pytest.importorskip("xarray")
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(path, mode="w", zarr_format=3)
    for place, length in lengths.items():
        name = place.rpartition("/")[2]
        values = np.arange(length) if name == "draw" else np.random.default_rng(0).normal(size=(1, length))
        dims = ["draw"] if name == "draw" else ["chain", "draw"]
        root.create_array(place, data=values, dimension_names=dims)


def test_a_coordinate_that_is_shorter_than_the_draws_is_refused(tmp_path):
    _store_of(tmp_path / "x.zarr", {"posterior/a": 50, "posterior/draw": 20})  # was read without end
    with pytest.raises(InputError, match="the coordinate draw"):
        open_chain(tmp_path / "x.zarr")


def test_a_coordinate_of_another_group_that_is_too_short_is_refused(tmp_path):
    _store_of(tmp_path / "x.zarr", {"posterior/a": 50, "log_likelihood/y": 50, "log_likelihood/draw": 20})
    chain = open_chain(tmp_path / "x.zarr")
    with pytest.raises(InputError, match="the coordinate draw"):
        chain.groups(np.array([[0, 40]]))


def test_a_variable_without_some_of_the_draws_is_refused(tmp_path):
    _store_of(tmp_path / "x.zarr", {"posterior/a": 50, "posterior/b": 20})
    chain = open_chain(tmp_path / "x.zarr", draws_name="posterior/a")
    with pytest.raises(InputError, match="lacks some of the draws"):
        chain.variables(np.array([[0, 40], [0, 3]]))

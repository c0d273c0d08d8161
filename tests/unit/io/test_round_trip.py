"""What is written is read again bit for bit, with ids and names, in every format."""

import csv
import gzip
import json
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import open_chain, open_chains, write_kept
from steinstream.result import History, Kept, Variable
from steinstream.validation import concatenate

SUFFIXES = [
    ".npz",
    ".csv",
    ".csv.gz",
    pytest.param(".parquet", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('pyarrow')")),
    pytest.param(".nc", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('h5netcdf')")),
]
ZARR = pytest.param(".zarr", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('zarr')"))
TABLES = [".csv", ".csv.gz", SUFFIXES[3]]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda name: name.rstrip("\0"))


def make(points, ids, names=None):
    history = History(np.arange(3), np.arange(3) + 1, np.array([0.5, 0.25, 1 / 3]), np.array([0.5, 0.1, np.nan]))
    scores = np.nextafter(-points, 0.0)
    settings = {"version": "0.1.0", "kernel": "IMQ(c=0.3, beta=-0.5)"}
    return Kept(points, scores, ids, 0.125, history, settings=settings, names=names)


def whole(chain, **how):
    blocks = list(chain.blocks(**how))
    return concatenate(blocks)[:3]


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_kept_draws_come_back_bit_for_bit(suffix, data, tmp_path_factory):
    n, d = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    points = data.draw(arrays(np.float64, (n, d), elements=st.floats(allow_nan=False)))
    ids = data.draw(arrays(np.int64, (n, 2), elements=st.integers(0, 2**53)))
    names = data.draw(st.none() | st.tuples(*[NAMES] * d))
    kept = make(points, ids, names)
    path = tmp_path_factory.mktemp("round") / f"kept{suffix}"
    if suffix in (".nc", ".csv", ".csv.gz") and any("\0" in name for name in names or ()):
        with pytest.raises(InputError, match=r"(NetCDF|csv) cannot store the name"):
            write_kept(kept, path)
        return
    write_kept(kept, path)
    chain = open_chain(path)
    draws, scores, read_ids = whole(chain, rows=5)
    assert same(draws, kept.draws)
    assert same(scores, kept.scores)
    assert same(read_ids, kept.ids)
    assert chain.names == (names or tuple(f"x{i}" for i in range(d)))
    assert chain.dim == d


@pytest.mark.parametrize("suffix", [*SUFFIXES, ZARR])
@pytest.mark.parametrize(
    "names", [("chain", "draw"), ("a", "score_a"), ("a", "a"), ("", "beta[1,2]"), ("draws", "scores")]
)
def test_a_parameter_may_bear_any_name(suffix, names, tmp_path):
    kept = make(np.arange(6.0).reshape(3, 2), np.array([[0, 5], [1, 2], [1, 9]]), names)
    write_kept(kept, tmp_path / f"kept{suffix}")
    chain = open_chain(tmp_path / f"kept{suffix}")
    draws, scores, ids = whole(chain)
    assert chain.names == names
    assert same(draws, kept.draws) and same(scores, kept.scores) and same(ids, kept.ids)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ZARR])
def test_values_that_are_not_finite_pass_through(suffix, tmp_path):
    kept = make(np.array([[np.nan, np.inf], [-np.inf, -0.0]]), np.zeros((2, 2), np.int64))
    write_kept(kept, tmp_path / f"kept{suffix}")
    draws, _, _ = whole(open_chain(tmp_path / f"kept{suffix}"))
    assert same(draws, kept.draws)


@pytest.mark.parametrize("suffix", [".npz", SUFFIXES[4], ZARR])
def test_every_field_of_a_kept_set_is_read_again(suffix, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)) * [1.0, 0.1, 10.0]
    scores = -x / np.array([1.0, 0.01, 100.0])
    thinner = ss.Thinner(3, size=20, kernel=ss.IMQ(linear=0.5), preconditioner=ss.Preconditioner.scales([1.0, 0.1, 10]))
    noise = rng.normal(size=x.shape)
    thinner.extend(x, scores + noise, second_scores=scores - noise)
    kept = replace(thinner.kept.weighted().ordered(), names=("a", "b", "c"))
    assert kept.second_scores is not None and "second_scores_noise" in kept.settings
    write_kept(kept, tmp_path / f"kept{suffix}")
    found = Kept.load(tmp_path / f"kept{suffix}")
    for name in ("draws", "scores", "second_scores", "ids", "weights", "prefix_ksd"):
        values = getattr(kept, name)
        assert values is None or same(getattr(found, name), values), name
    assert all(map(same, found.history, kept.history))
    assert same(found.preconditioner.factor, kept.preconditioner.factor)
    assert (found.ksd, found.bound, found.names, found.kernel) == (kept.ksd, kept.bound, kept.names, kept.kernel)
    assert found.settings == json.loads(json.dumps(kept.settings)) and found.settings["config"]["size"] == 20
    assert found.ksd_debiased == kept.ksd_debiased


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"draws": np.ones(3)}, "draws has shape"),
        ({"draws": np.full((2, 3), "x")}, "draws has shape .* dtype"),
        ({"scores": np.ones((1, 3))}, "scores has shape"),
        ({"ids": np.zeros((2, 3), int)}, "ids has shape"),
        ({"weights": np.ones(3)}, "weights has shape"),
        ({"second_scores": np.ones((3, 3))}, "second_scores has shape"),
        ({"settings": np.array("{")}, "cannot be read as npz"),
        ({"ksd": None}, "is not a kept set: missing arrays ksd"),
        ({"head": np.array(0), "checksum": np.array(0)}, "is the checkpoint of a run"),
    ],
)
def test_an_npz_file_that_is_not_a_valid_kept_set_is_refused(change, match, tmp_path):
    write_kept(make(np.ones((2, 3)), np.zeros((2, 2), np.int64)), tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as file:
        arrays = {**file, **change}
    np.savez(tmp_path / "kept.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=match):
        Kept.load(tmp_path / "kept.npz")


def test_npz_says_how_to_get_the_result_again(tmp_path):
    kept = make(np.ones((2, 3)), np.zeros((2, 2), np.int64), ("a", "b", "c"))
    write_kept(kept, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz", allow_pickle=False) as file:
        assert json.loads(str(file["settings"])) == kept.settings
        assert file["ksd"] == kept.ksd
        assert file["names"].tolist() == ["a", "b", "c"]
        for name, expected in kept.history._asdict().items():
            assert same(file[f"history_{name}"], expected)


def test_parquet_says_how_to_get_the_result_again(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    kept = make(np.ones((2, 1)), np.zeros((2, 2), np.int64), ("a",))
    write_kept(kept, tmp_path / "kept.parquet")
    table = parquet.read_table(tmp_path / "kept.parquet")
    assert table.column_names == ["chain", "draw", "a", "score_a"]
    about = json.loads(table.schema.metadata[b"steinstream"])
    assert about == {"ksd": kept.ksd, "mmd": None, "settings": kept.settings}


def test_csv_is_plain_for_any_other_tool(tmp_path):
    kept = make(np.array([[0.1, 2.0]]), np.array([[3, 17]]), ("mu", "beta[1,2]"))
    write_kept(kept, tmp_path / "kept.csv")
    lines = (tmp_path / "kept.csv").read_text().splitlines()
    assert lines[0] == 'chain,draw,mu,"beta[1,2]",score_mu,"score_beta[1,2]"'
    assert lines[1].startswith("3,17,0.10000000000000001,2,-0.0")
    assert len(lines) == 2


def test_the_same_set_gives_the_same_bytes(tmp_path):
    kept = make(np.ones((2, 3)), np.zeros((2, 2), np.int64), tuple(string.ascii_lowercase[:3]))
    for suffix in (".npz", ".csv", ".csv.gz"):
        for name in ("a", "b"):
            write_kept(kept, tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


# -- tables: the variables of the user's model are columns, too --------------------------------------------------------


def with_variables(names=("a_unc", "w_unc.1"), **variables):
    """Three weighted, ordered draws of two chains."""
    kept = make(np.random.default_rng(0).normal(size=(3, 2)), np.array([[1, 2], [0, 5], [1, 0]]), names)
    weights, prefixes = np.array([0.5, 1 / 3, 1 / 6]), np.array([3.0, 2.0, 1.0])
    variables = {name: Variable(np.asarray(values)) for name, values in variables.items()}
    return replace(kept, weights=weights, prefix_ksd=prefixes, variables=variables)


def columns_of(path):
    """What any other tool would find: columns of text by title, which must be there once."""
    if path.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        return {title: table[title].to_pylist() for title in table.column_names}
    text = (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="")
    with text:
        titles, *rows = csv.reader(text)
    assert len(set(titles)) == len(titles)
    return dict(zip(titles, zip(*rows, strict=True), strict=True))


def assert_back(path, kept):
    chain = open_chain(path)
    assert all(map(same, whole(chain), (kept.draws, kept.scores, kept.ids))) and chain.names == kept.names
    found = chain.variables(kept.ids)
    assert list(found) == list(kept.variables)
    for name, variable in kept.variables.items():
        assert same(found[name].values, np.asarray(variable.values, dtype=np.float64)), name
        assert found[name].dims == tuple(f"{name}_dim_{axis}" for axis in range(variable.values.ndim - 1))
    some = chain.variables(kept.ids[[2, 1]])
    assert all(same(some[name].values, found[name].values[[2, 1]]) for name in found)


@pytest.mark.parametrize("suffix", TABLES)
def test_variables_of_a_table_come_back(suffix, tmp_path):
    rng = np.random.default_rng(1)
    kept = with_variables(
        a=[0.1, np.nan, -np.inf], w=rng.normal(size=(3, 2)), m=rng.normal(size=(3, 2, 3)), k=[1, 2, 3],
        on=[True, False, True], lp__=[1.0, 2.0, 3.0], one=[[1.0], [2.0], [3.0]],
    )  # fmt: skip
    path = tmp_path / f"kept{suffix}"
    write_kept(kept, path)
    assert_back(path, kept)
    found = columns_of(path)
    assert [title for title in found if not title.startswith("score_")] == [
        "chain", "draw", "a_unc", "w_unc.1", "weight", "order", "a", "w.1", "w.2",
        *(f"m.{i}.{j}" for i in (1, 2) for j in (1, 2, 3)), "k", "on", "lp__", "one.1",
    ]  # fmt: skip
    assert np.array(found["weight"], dtype=float).tolist() == kept.weights.tolist()
    assert np.array(found["order"], dtype=int).tolist() == [0, 1, 2]
    assert np.array(found["w.2"], dtype=float).tolist() == kept.variables["w"].values[:, 1].tolist()


@pytest.mark.parametrize("suffix", TABLES)
def test_a_variable_may_bear_any_name(suffix, tmp_path):
    numbers = [1.0, 2.0, 3.0]
    taken = ("chain", "draw", "weight", "order", "a", "score_a", "score_score_a", "score_", "variable_a", "x", "x,y")
    path = tmp_path / f"kept{suffix}"
    for names in (("a", "score_a"), ("a", "c")):
        kept = with_variables(names, **dict.fromkeys(taken, numbers), b=[numbers] * 3)
        write_kept(kept, path)
        assert_back(path, kept)
    titles = list(columns_of(path))
    assert len(titles) == 2 + 4 + 2 + len(taken) + 3
    assert {"x", "x,y", "b.1", "variable_a", "variable_variable_a", "variable_weight"} <= set(titles)


@pytest.mark.parametrize("suffix", TABLES)
def test_variables_of_several_tables_go_with_their_chains(suffix, tmp_path):
    kept = [with_variables(v=[0.0, 1.0, 2.0]), with_variables(v=[3.0, 4.0, 5.0])]
    for number, each in enumerate(kept):
        write_kept(each, tmp_path / f"{number}{suffix}")
    chain = open_chains([tmp_path / f"{number}{suffix}" for number in range(2)])
    assert chain.variables(np.array([[3, 0], [1, 2], [2, 5]]))["v"].values.tolist() == [5.0, 0.0, 4.0]
    assert chain.variables(np.array([[1, 1]])) == {}


@pytest.mark.parametrize("suffix", TABLES)
def test_what_a_table_cannot_hold_is_left_out_with_a_word(suffix, tmp_path):
    kept = with_variables(word=["a,b", "c", "d"], v=[1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="word .*is left out"):
        write_kept(kept, tmp_path / f"kept{suffix}")
    assert list(open_chain(tmp_path / f"kept{suffix}").variables(kept.ids)) == ["v"]


def test_columns_of_a_foreign_table_that_are_no_numbers_are_left_alone(tmp_path):
    path = tmp_path / "foreign.csv"
    path.write_text("chain,draw,a,score_a,lp,note\n# c\n0,0,1,-1,5,NA\n\n0,1,2,-2,6,yes\n0,2,3,-3,NA,7\n")
    chain = open_chain(path)
    assert whole(chain)[0].tolist() == [[1], [2], [3]]
    found = chain.variables(np.array([[0, 1], [0, 0]]))
    assert list(found) == ["lp"] and found["lp"].values.tolist() == [6, 5]
    path.write_text("chain,draw,a,score_a,b,score_b\n0,0,1,-1,5,-5\n")
    assert open_chain(path).names == ("a", "b") and open_chain(path).variables(np.array([[0, 0]])) == {}

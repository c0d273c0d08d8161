"""A chain is the same stream however it is cut into blocks, and costs the memory of one block."""

import gzip
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream.errors import InputError
from steinstream.io import open_chain
from steinstream.validation import concatenate

CHAINS, LENGTH, DIM = 3, 7, 2
RANDOM = np.random.default_rng(0)
DRAWS = RANDOM.standard_normal((CHAINS, LENGTH, DIM))
SCORES = RANDOM.standard_normal((CHAINS, LENGTH, DIM))
IDS = np.array([(c, i) for c in range(CHAINS) for i in range(LENGTH)])
FLAT = DRAWS.reshape(-1, DIM), SCORES.reshape(-1, DIM)


def lines(*columns, header=""):
    rows = np.column_stack(columns).tolist()
    return header + "".join(",".join(f"{x:.17g}" for x in row) + "\n" for row in rows)


def write_all(folder):
    """The same three chains in every shape a file can have; by name, what to open it with."""
    np.savez(folder / "stored.npz", draws=DRAWS, scores=SCORES)
    np.savez_compressed(folder / "deflated.npz", draws=DRAWS, scores=SCORES)
    fortran = {"draws": np.asfortranarray(DRAWS), "scores": np.asfortranarray(SCORES)}
    np.savez(folder / "fortran.npz", **fortran)
    np.savez(folder / "mixed.npz", draws=DRAWS, scores=fortran["scores"])
    np.savez(folder / "ids.npz", draws=FLAT[0], scores=FLAT[1], ids=IDS.astype(np.uint8))
    np.savez(folder / "big_endian.npz", draws=DRAWS.astype(">f8"), scores=SCORES.astype(">f8"))
    np.save(folder / "draws.npy", DRAWS)
    np.save(folder / "scores.npy", fortran["scores"])
    header = "draw,lp__,score_b,a,chain,score_a,b\n"
    (d, s) = FLAT
    body = lines(IDS[:, 1], d[:, 0], s[:, 1], d[:, 0], IDS[:, 0], s[:, 0], d[:, 1], header=header)
    (folder / "ids.csv").write_text(body)
    (folder / "crlf.csv").write_bytes(b"\xef\xbb\xbf# a comment\r\n" + body.replace("\n", "\r\n").encode() + b"\r\n")
    (folder / "ids.csv.gz").write_bytes(gzip.compress(body.encode()))
    (folder / "counted.csv").write_text(lines(IDS[:, 0], d, s, header="chain, a, b, score_a, score_b\n"))
    (folder / "first.csv").write_text(lines(IDS, d, header="chain,draw,a,b\n"))
    (folder / "second.csv").write_text(lines(s[:, ::-1], header="score_b,score_a\n"))
    opened = {
        "npz, stored": {"path": "stored.npz"},
        "npz, deflated": {"path": "deflated.npz"},
        "npz, by columns": {"path": "fortran.npz"},
        "npz, one by columns": {"path": "mixed.npz"},
        "npz, with ids": {"path": "ids.npz"},
        "npz, big endian": {"path": "big_endian.npz"},
        "npy": {"path": "draws.npy", "scores": "scores.npy"},
        "csv, with ids": {"path": "ids.csv"},
        "csv, lines as in DOS": {"path": "crlf.csv"},
        "csv.gz": {"path": "ids.csv.gz"},
        "csv, chains named, draws counted": {"path": "counted.csv"},
        "csv, two files": {"path": "first.csv", "scores": "second.csv"},
        "csv, listed": {"path": "ids.csv", "draws_name": "a, b", "scores_name": "score_a,score_b"},
    }
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return opened
    ids = {"chain": IDS[:, 0], "draw": IDS[:, 1]}
    flat = {**ids, "a": d[:, 0], "b": d[:, 1], "score_a": s[:, 0], "score_b": s[:, 1], "text": ["x"] * len(d)}
    pyarrow.parquet.write_table(pyarrow.table(flat), folder / "flat.parquet", row_group_size=5)
    for name, kind in (
        ("lists", pyarrow.list_(pyarrow.float64())),
        ("large", pyarrow.large_list(pyarrow.float64())),
        ("fixed", pyarrow.list_(pyarrow.float64(), DIM)),
    ):
        nested = {key: pyarrow.array(value.tolist(), kind) for key, value in (("draws", d), ("scores", s))}
        table = pyarrow.table({**ids, **nested})
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=4)
        opened[f"parquet, {name}"] = {"path": f"{name}.parquet"}
    counted = {key: value for key, value in flat.items() if key != "draw"}
    pyarrow.parquet.write_table(pyarrow.table(counted), folder / "counted.parquet", row_group_size=5)
    return {
        **opened,
        "parquet, flat": {"path": "flat.parquet"},
        "parquet, chains named, draws counted": {"path": "counted.parquet"},
        "parquet, listed": {"path": "flat.parquet", "draws_name": "a,b"},
    }


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chains")
    opened = {}
    for title, how in write_all(folder).items():
        files = {key: folder / how[key] for key in ("path", "scores") if key in how}
        opened[title] = open_chain(**{**how, **files})
    return opened


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 25), skip=st.integers(0, 25))
def test_blocks_make_up_the_whole_for_any_rows_and_skip(chains, rows, skip):
    for title, chain in chains.items():
        blocks = list(chain.blocks(rows, skip))
        for block in blocks:
            assert 1 <= len(block.draws) <= rows, title
            assert len(set(block.ids[:, 0])) == 1, title
            for array, dtype in zip(block[:3], (np.float64, np.float64, np.int64), strict=True):
                assert array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable, title
        whole = concatenate(blocks)[:3] if blocks else [np.empty((0, 2))] * 3
        for got, expected in zip(whole, (*FLAT, IDS), strict=True):
            assert np.array_equal(got, expected[skip:]), title


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 25), skip=st.integers(0, 25))
def test_chains_are_read_in_turns(chains, rows, skip):
    order = np.arange(len(IDS)).reshape(CHAINS, LENGTH).T.ravel()
    for title, chain in chains.items():
        blocks = list(chain.blocks(rows, skip, interleaved=True))
        whole = concatenate(blocks)[:3] if blocks else [np.empty((0, 2))] * 3
        for got, values in zip(whole, (*FLAT, IDS), strict=True):
            assert np.array_equal(got, values[order][skip:]), title


def test_draws_of_mixed_chains_stay_in_the_order_of_the_file(tmp_path):
    (tmp_path / "mixed.csv").write_text("chain,a\n" + "".join(f"{i % 2},{i}\n" for i in (0, 1, 3, 2, 4, 5)))
    chain = open_chain(tmp_path / "mixed.csv")
    draws = np.concatenate([block.draws for block in chain.blocks(4, interleaved=True)])
    assert not chain.is_separable and draws[:, 0].tolist() == [0, 1, 3, 2, 4, 5]


def test_a_chain_says_what_it_is(chains):
    for title, chain in chains.items():
        assert chain.dim == DIM, title
        assert chain.length == (None if title.startswith("csv") else CHAINS * LENGTH), title
        named = "parquet" in title or title.startswith("csv") or "ids" in title
        assert chain.chains == (None if named else CHAINS), title
        flat = title.startswith("csv") or title in ("parquet, flat", "parquet, listed")
        assert chain.names == (("a", "b") if flat or "counted" in title else ("x0", "x1")), title


def test_progress_runs_from_nothing_to_all(chains):
    for title, chain in chains.items():
        seen = [chain.fraction() for _ in chain.blocks(4)]
        assert seen == sorted(seen), title
        assert seen[0] > 0 and seen[-1] == 1.0, title


def test_scores_can_be_negated_without_touching_the_file(chains, tmp_path):
    np.save(tmp_path / "draws.npy", DRAWS)
    np.save(tmp_path / "scores.npy", SCORES)
    for _ in range(2):
        chain = open_chain(tmp_path / "draws.npy", scores=tmp_path / "scores.npy", negate=True)
        blocks = list(chain.blocks(4))
        assert np.array_equal(np.concatenate([block.scores for block in blocks]), -FLAT[1])
        assert np.array_equal(np.concatenate([block.draws for block in blocks]), FLAT[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.int8, np.uint64])
def test_other_numbers_become_float64(dtype, tmp_path):
    draws = np.arange(12).reshape(6, 2).astype(dtype)
    np.savez(tmp_path / "chain.npz", draws=draws, scores=draws[::-1])
    np.save(tmp_path / "draws.npy", draws)
    np.save(tmp_path / "scores.npy", draws[::-1])
    for how in ({"path": "chain.npz"}, {"path": "draws.npy", "scores": "scores.npy"}):
        chain = open_chain(**{key: tmp_path / name for key, name in how.items()})
        blocks = list(chain.blocks(4))
        assert np.array_equal(np.concatenate([block.draws for block in blocks]), draws.astype(np.float64))
        assert blocks[0].draws.dtype == np.float64


def test_arrays_of_other_names_can_be_named(tmp_path):
    np.savez(tmp_path / "chain.npz", theta=FLAT[0], score=FLAT[1], names=["mu", "tau"])
    chain = open_chain(tmp_path / "chain.npz", draws_name="theta", scores_name="score")
    assert chain.names == ("mu", "tau")
    assert np.array_equal(np.concatenate([block.draws for block in chain.blocks()]), FLAT[0])


def test_an_array_called_names_that_is_something_else_is_left_alone(tmp_path):
    for names in (["one"], [1, 2], np.array(["a", None], dtype=object)):
        np.savez(tmp_path / "chain.npz", draws=FLAT[0], scores=FLAT[1], names=names)
        assert open_chain(tmp_path / "chain.npz").names == ("x0", "x1")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "deflated"])
def test_streaming_a_long_npz_costs_the_memory_of_one_block(save, tmp_path):
    draws = np.tile(RANDOM.standard_normal((1000, 16)), (200, 1))
    save(tmp_path / "long.npz", draws=draws, scores=draws)  # 51 MB of numbers
    last = draws[-1].copy()
    del draws
    tracemalloc.start()
    try:
        rows = 0
        for block in open_chain(tmp_path / "long.npz").blocks():
            rows += len(block.draws)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 200_000
    assert np.array_equal(block.draws[-1], last)
    assert peak < 20e6


def test_streaming_a_long_csv_does_not_hold_it(tmp_path):
    text = lines(RANDOM.standard_normal((1000, 8)))
    with gzip.open(tmp_path / "long.csv.gz", "wt", compresslevel=1) as file:
        file.write("a,b,c,d,score_a,score_b,score_c,score_d\n")
        for _ in range(300):
            file.write(text)
    rows = 0
    tracemalloc.start()
    try:
        for block in open_chain(tmp_path / "long.csv.gz").blocks():
            rows += len(block.draws)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 300_000
    assert peak < 40e6  # of 48 MB of text, and 19 MB of numbers; 16 of them are asked for and never touched


def test_streaming_a_parquet_of_one_row_group_does_not_hold_it(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    numbers = arrow.array(RANDOM.standard_normal(1_600_000))
    lists = arrow.ListArray.from_arrays(np.arange(0, 1_600_001, 8), numbers)
    arrow.parquet.write_table(arrow.table({"draws": lists, "scores": lists}), tmp_path / "long.parquet")
    del numbers, lists
    before = arrow.total_allocated_bytes()
    held = [arrow.total_allocated_bytes() - before for _ in open_chain(tmp_path / "long.parquet").blocks()]
    assert max(held) < 10e6  # of 26 MB


def test_importing_io_loads_no_heavy_library():
    code = "import sys, steinstream.io; print(*({'pyarrow', 'pandas', 'numba', 'xarray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("how", [{"rows": 0}, {"rows": -3}, {"skip": -1}])
def test_a_block_of_no_draws_or_a_negative_skip_is_refused(chains, how):
    with pytest.raises(InputError, match=str(next(iter(how.values())))):
        list(chains["npy"].blocks(**how))

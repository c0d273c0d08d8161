"""Published chains: pairs of csv files, with or without names, one line a draw or one line a parameter."""

import gzip
import tracemalloc

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io import open_chain, transposed


def lines(table, names=None, numbers=False):
    rows = [",".join(map(repr, row)) for row in table.tolist()]
    if names:
        rows = [f"{name},{row}" for name, row in zip(names, rows, strict=True)]
    if numbers:
        rows.insert(0, ",".join([""] * bool(names) + [str(i) for i in range(table.shape[1])]))
    return "\n".join([*rows, ""]).encode()


def read(chain, **how):
    return [np.concatenate(part) for part in zip(*chain.blocks(**how), strict=True)]


@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("size", [600, 1 << 16])
def test_one_line_a_parameter_is_read_as_if_it_were_one_line_a_draw(
    names, numbers, zipped, size, tmp_path, monkeypatch
):
    monkeypatch.setattr(transposed, "_CHUNK", size)
    x = np.random.default_rng(0).normal(size=(1000, 3))
    suffix = ".csv.gz" if zipped else ".csv"
    for name, table in (("d", x), ("s", -x)):
        text = lines(table.T, names, numbers)
        (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress(text) if zipped else text)
    chain = open_chain(tmp_path / f"d{suffix}", scores=tmp_path / f"s{suffix}")
    assert chain.names == (tuple(names) if names else ("x0", "x1", "x2"))
    for rows, skip in ((300, 0), (77, 456)):
        draws, scores, ids = read(chain, rows=rows, skip=skip)
        assert np.array_equal(draws, x[skip:]) and np.array_equal(scores, -x[skip:])
        assert ids.tolist() == [[0, i] for i in range(skip, 1000)]
    assert chain.fraction() == 1.0 or zipped


@pytest.mark.parametrize("header", [None, "a,b,c"])
def test_one_line_a_draw_is_read_with_and_without_names(header, tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 3))
    for name, table in (("d", x), ("s", -x)):
        (tmp_path / f"{name}.csv").write_bytes((f"{header}\n".encode() if header else b"") + lines(table))
    draws, scores, _ = read(open_chain(tmp_path / "d.csv", scores=tmp_path / "s.csv"))
    assert np.array_equal(draws, x) and np.array_equal(scores, -x)


def test_only_a_very_wide_file_is_taken_to_be_transposed_and_the_user_has_the_last_word(tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 30))
    wide = np.random.default_rng(0).normal(size=(3, 300))
    for name, table in (("x", x), ("wide", wide)):
        (tmp_path / f"{name}.csv").write_bytes(lines(table))

    def dim(name, **how):
        return open_chain(tmp_path / f"{name}.csv", scores=tmp_path / f"{name}.csv", **how).dim

    assert (dim("x"), dim("x", transposed=True)) == (30, 3)
    assert (dim("wide"), dim("wide", transposed=False)) == (3, 300)


def test_what_is_wrong_is_named_by_line_and_place(tmp_path):
    def error(text, match):
        (tmp_path / "d.csv").write_bytes(text)
        with pytest.raises(InputError, match=match):
            read(open_chain(tmp_path / "d.csv", scores=tmp_path / "d.csv", transposed=True))

    error(b"1,2,3\n4,x,6\n", r"d\.csv, line 2, number 2: 'x' is not a number")
    error(b"1,2,3\n\n4,,6\n", r"d\.csv, line 3, number 2: '' is not a number")
    error(b"1,2,3\n4,5\n", r"d\.csv, line 2: 2 numbers, but line 1 has more")
    error(b"\n# nothing\n", "the chain is empty")


def test_memory_does_not_grow_with_the_number_of_draws(tmp_path):
    peaks = []
    for draws in (40_000, 400_000):
        with (tmp_path / "d.csv").open("w") as file:
            for _ in range(4):
                file.write(",".join(["0.1234567890123456"] * draws) + "\n")
        chain = open_chain(tmp_path / "d.csv", scores=tmp_path / "d.csv")
        next(chain.blocks(2048))
        tracemalloc.start()
        assert sum(len(block.draws) for block in chain.blocks(2048)) == draws
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 1 and peaks[1] < 12  # the larger file has 30 MB

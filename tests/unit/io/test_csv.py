"""Columns of csv files are found as other tools write them."""

import gzip
import re

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import open_chain
from steinstream.validation import concatenate


def read(path, **how):
    chain = open_chain(path, **how)
    draws, scores, ids, *_ = concatenate(list(chain.blocks()))
    return chain.names, draws.tolist(), scores.tolist(), ids.tolist()


def text(path, content):
    path.write_text(content)
    return path


def test_a_pair_without_headers_goes_by_position(tmp_path):
    draws, scores = text(tmp_path / "d.csv", "1,2\n3,4"), text(tmp_path / "s.csv", "5,6\n7,8\n\n")
    assert read(draws, scores=scores) == (("x0", "x1"), [[1, 2], [3, 4]], [[5, 6], [7, 8]], [[0, 0], [0, 1]])


@pytest.mark.parametrize("titles", ["b,a", "score_b,score_a"])
def test_a_pair_with_the_same_names_goes_by_name(titles, tmp_path):
    draws, scores = text(tmp_path / "d.csv", "a,b\n1,2\n"), text(tmp_path / "s.csv", f"{titles}\n6,5\n")
    assert read(draws, scores=scores) == (("a", "b"), [[1, 2]], [[5, 6]], [[0, 0]])


def test_a_pair_with_other_names_goes_by_position(tmp_path):
    draws, scores = text(tmp_path / "d.csv", "a,b\n1,2\n"), text(tmp_path / "s.csv", "ga,gb\n5,6\n")
    assert read(draws, scores=scores)[2] == [[5, 6]]


def test_the_columns_of_a_pair_can_be_listed(tmp_path):
    draws = text(tmp_path / "d.csv", "lp,a,b\n0,1,2\n")
    scores = text(tmp_path / "s.csv", "gb,ga\n6,5\n")
    how = {"scores": scores, "draws_name": "b,a", "scores_name": "gb,ga"}
    assert read(draws, **how) == (("b", "a"), [[2, 1]], [[6, 5]], [[0, 0]])


@pytest.mark.parametrize("header", ["0,1", ",0,1", '"","V1","V2"'])
def test_the_header_and_row_numbers_of_pandas_and_r_are_not_draws(header, tmp_path):
    row = '"7",1,2\n' if header.startswith('"') else "7,1,2\n" if header.startswith(",") else "1,2\n"
    path = text(tmp_path / "d.csv", f"{header}\n{row}")
    assert read(path, scores=path)[1] == [[1, 2]]


def test_a_draw_of_whole_numbers_is_not_a_header(tmp_path):
    path = text(tmp_path / "d.csv", "1,2\n3,4\n")
    assert read(path, scores=path)[1] == [[1, 2], [3, 4]]


def test_other_columns_may_hold_anything(tmp_path):
    path = text(tmp_path / "c.csv", "when,mu,score_mu,lp__\nmonday,1,2,\ntuesday,3,4,-\n")
    assert read(path) == (("mu",), [[1], [3]], [[2], [4]], [[0, 0], [0, 1]])


def test_a_listed_name_may_have_a_comma(tmp_path):
    path = text(tmp_path / "c.csv", '"b[1,2]",g\n1,2\n')
    assert read(path, draws_name='"b[1,2]"', scores_name="g")[:3] == (("b[1,2]",), [[1]], [[2]])


def test_columns_called_draws_and_scores_are_draws_and_scores(tmp_path):
    assert read(text(tmp_path / "c.csv", "draws,scores\n1,2\n"))[:3] == (("draws",), [[1]], [[2]])


def test_nan_and_inf_are_numbers(tmp_path):
    path = text(tmp_path / "c.csv", "a,score_a\nnan,-inf\nInf,NaN\n")
    _, draws, scores, _ = read(path)
    assert np.array_equal(draws, [[np.nan], [np.inf]], equal_nan=True)
    assert np.array_equal(scores, [[-np.inf], [np.nan]], equal_nan=True)


def test_chains_that_take_turns_are_counted_each_for_itself(tmp_path):
    rows = "".join(f"{i % 2},{i},{i}\n" for i in range(6))
    path = text(tmp_path / "c.csv", "chain,a,score_a\n" + rows)
    assert read(path)[3] == [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]


def test_blank_lines_and_comments_between_draws_are_passed_over(tmp_path):
    path = text(tmp_path / "c.csv", "#1,2\n\na,score_a\n1,2\n\n# adaptation, done\n#9,9\n3,4\n\n\n")
    assert read(path)[1] == [[1], [3]]
    assert [block.ids.tolist() for block in open_chain(path).blocks(skip=1)] == [[[0, 1]]]


def test_a_comment_that_looks_like_a_row_is_still_a_comment(tmp_path):
    path = text(tmp_path / "c.csv", "lp__,a,score_a\n0,1,2\n#0,9,9\n0,3,4\n")
    assert read(path)[1] == [[1], [3]]


# One line per parameter


def transposed(names, numbers):
    """A file of 3 parameters and 1000 draws with one line per parameter, and its draws."""
    x = np.random.default_rng(0).normal(size=(1000, 3))
    rows = [",".join(map(repr, row)) for row in x.T.tolist()]
    if names:
        rows = [f"{name},{row}" for name, row in zip("abc", rows, strict=True)]
    if numbers:
        rows.insert(0, ",".join([""] * names + [str(i) for i in range(1000)]))
    return x, "\n".join([*rows, ""])


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_transposed_file_is_refused_with_the_line_that_transposes_it(names, numbers, suffix, tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    x, content = transposed(names, numbers)
    path = tmp_path / f"d{suffix}"
    path.write_bytes(gzip.compress(content.encode()) if suffix.endswith("gz") else content.encode())
    with pytest.raises(InputError, match=r"1\d\d\d columns and \d lines: .* one line per parameter") as caught:
        open_chain(path, scores=path)
    line = re.search(r"pd\.read_csv.*?False\)", caught.value.remedy).group()
    eval(line, {"pd": pd})
    found, draws, _, _ = read(tmp_path / "transposed.csv", scores=tmp_path / "transposed.csv")
    assert np.array_equal(draws, x) and found == (("a", "b", "c") if names else ("x0", "x1", "x2"))


def test_a_wide_file_with_names_is_not_taken_to_be_transposed(tmp_path):
    wide = np.random.default_rng(0).normal(size=(3, 300))
    rows = "".join(",".join(map(repr, row)) + "\n" for row in wide.tolist())
    with pytest.raises(InputError, match="300 columns and 3 lines") as caught:
        read(text(tmp_path / "d.csv", rows), scores=tmp_path / "d.csv")
    assert "add a header" in caught.value.remedy
    text(tmp_path / "d.csv", ",".join(f"a{i}" for i in range(300)) + "\n" + rows)
    assert read(tmp_path / "d.csv", scores=tmp_path / "d.csv")[1] == wide.tolist()
    few = "".join(",".join(map(repr, row)) + "\n" for row in wide[:, :30].tolist())
    assert read(text(tmp_path / "f.csv", few), scores=tmp_path / "f.csv")[1] == wide[:, :30].tolist()


@pytest.mark.parametrize("field", ["NA", "", "0x10", "1_0", "1\0"])
def test_one_bad_field_in_the_first_row_does_not_make_a_column_text(tmp_path, field):
    path = tmp_path / "chain.csv"
    path.write_text("a,b\n" + f"{field},1\n" + "0.5,2\n" * 300)
    chain = open_chain(path)
    assert chain.names == ("a", "b")
    with pytest.raises(InputError, match=r"line 2, column a: .* is not a number"):
        list(chain.blocks())


def test_a_column_without_numbers_is_text(tmp_path):
    path = tmp_path / "chain.csv"
    path.write_text("model,b\n" + "M1,1\nM2,2\n" * 2)
    chain = open_chain(path)
    assert chain.names == ("b",) and chain.taken.left_out == {"model": "not numbers"}


def test_a_single_row_does_not_show_that_a_column_is_text(tmp_path):
    path = tmp_path / "chain.csv"
    path.write_text("a,b\nNA,1\n")
    with pytest.raises(InputError, match="'NA' is not a number"):
        list(open_chain(path).blocks())


def test_a_zero_byte_in_a_header_is_refused(tmp_path):
    path = tmp_path / "chain.csv"
    path.write_bytes(b"a,b\0\n1,2\n3,4\n")
    with pytest.raises(InputError, match="line 1: a title of the header contains a zero byte"):
        open_chain(path)


def test_a_name_with_a_zero_byte_is_refused_before_it_is_written(tmp_path):
    kept = ss.thin(np.random.default_rng(0).normal(size=(50, 2)), size=5).with_names(["a\0b", "c"])
    with pytest.raises(InputError, match="csv cannot store the name"):
        kept.save(tmp_path / "kept.csv")
    assert list(tmp_path.iterdir()) == []

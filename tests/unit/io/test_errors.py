"""Every bad file gets one error that names file, place and remedy; no library's own error comes through."""

import gzip
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream.errors import InputError
from steinstream.io import check_output, open_chain

GOOD = np.arange(12.0).reshape(6, 2)


def error(path, match, **how):
    """The error that opening and reading ``path`` gives."""
    with pytest.raises(InputError, match=match) as caught:
        for _ in open_chain(path, **how).blocks(4):
            pass
    assert str(path.parent) in caught.value.problem
    assert caught.value.remedy
    return caught.value


def opening_error(path, match, **how):
    """The error that opening alone gives."""
    with pytest.raises(InputError, match=match) as caught:
        open_chain(path, **how)
    assert caught.value.remedy
    return caught.value


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def text(path, content):
    path.write_text(content)
    return path


# What is asked for is not there


def test_a_missing_file_is_named_with_its_neighbour(tmp_path):
    npz(tmp_path / "chain.npz", draws=GOOD, scores=GOOD)
    assert "chain.npz?" in opening_error(tmp_path / "chian.npz", "no such file").remedy
    np.save(tmp_path / "draws.npy", GOOD)
    opening_error(tmp_path / "draws.npy", "scores.npy: there is no such file", scores=tmp_path / "scores.npy")
    opening_error(tmp_path / "no" / "chain.npz", "no such file")
    opening_error(tmp_path, "is a folder")


def test_an_unknown_suffix_lists_the_known_ones(tmp_path):
    caught = opening_error(text(tmp_path / "chain.dat", "1"), "chain.dat")
    assert ".npz, .npy, .csv, .csv.gz, .parquet" in caught.remedy


def test_an_unknown_array_lists_what_is_there(tmp_path):
    path = npz(tmp_path / "chain.npz", draws=GOOD, score=GOOD)
    caught = opening_error(path, "no array scores; it has draws, score")
    assert "Did you mean score?" in caught.remedy
    assert "--scores-name" in caught.remedy


def test_an_unknown_column_lists_what_is_there(tmp_path):
    path = text(tmp_path / "chain.csv", "alpha,beta,score_alpha,score_beta\n1,2,3,4\n")
    caught = opening_error(path, "no column alpa; it has alpha, beta, score_alpha", draws_name="alpa,beta")
    assert "Did you mean alpha?" in caught.remedy


def test_columns_of_a_file_without_titles_cannot_be_named(tmp_path):
    headless = text(tmp_path / "chain.csv", "1,2\n3,4\n")
    assert "--scores FILE" in opening_error(headless, "no header", scores_name="b").remedy


def test_a_file_of_scores_beside_a_file_with_both_is_refused(tmp_path):
    path = npz(tmp_path / "chain.npz", draws=GOOD, scores=GOOD)
    assert "Leave out the file of scores" in opening_error(path, "contains draws and scores", scores=path).remedy
    np.save(tmp_path / "draws.npy", GOOD)
    opening_error(tmp_path / "draws.npy", "must be in a .npy file", scores=path)
    opening_error(text(tmp_path / "a.csv", "1\n2\n"), "must be in a csv file", scores=path)


def test_a_score_without_its_column_is_an_error_not_a_smaller_chain(tmp_path):
    path = text(tmp_path / "chain.csv", "a,b,score_a,score_c\n1,2,3,4\n")
    opening_error(path, "column score_c is the score of a column c")


def test_columns_that_do_not_pair_up_are_refused(tmp_path):
    path = text(tmp_path / "chain.csv", "a,b,ga,gb\n1,2,3,4\n")
    opening_error(path, "2 columns of draws .* but 1 of scores", draws_name="a,b", scores_name="ga")
    opening_error(path, "no column draws", scores_name="ga,gb")
    twice = text(tmp_path / "twice.csv", "a,a,score_a\n1,2,3\n")
    opening_error(twice, "2 columns named a")


# Shapes


@pytest.mark.parametrize("shape", [(6,), (1, 2, 3, 4), (), (6, 0)])
def test_arrays_of_another_rank_are_refused(shape, tmp_path):
    caught = opening_error(npz(tmp_path / "c.npz", draws=np.ones(shape), scores=np.ones(shape)), "draws has shape")
    assert str(shape) in caught.problem and "(n, 1)" in caught.remedy
    np.save(tmp_path / "d.npy", np.ones(shape))
    opening_error(tmp_path / "d.npy", "has shape", scores=tmp_path / "d.npy")


@pytest.mark.parametrize("other", [(5, 2), (6, 3), (1, 6, 2)])
def test_scores_of_another_shape_are_refused(other, tmp_path):
    path = npz(tmp_path / "chain.npz", draws=GOOD, scores=np.ones(other))
    caught = opening_error(path, "scores has shape")
    assert str(other) in caught.problem and "(6, 2)" in caught.problem


def test_an_empty_chain_is_called_empty(tmp_path):
    opening_error(npz(tmp_path / "c.npz", draws=np.ones((0, 2)), scores=np.ones((0, 2))), "the chain is empty")
    np.save(tmp_path / "d.npy", np.ones((2, 0, 3)))
    opening_error(tmp_path / "d.npy", "the chain is empty", scores=tmp_path / "d.npy")
    for content in ("", "a,score_a\n", "# nothing\n\n", "a,score_a\n\n# nothing\n"):
        opening_error(text(tmp_path / "c.csv", content), "the chain is empty")


@pytest.mark.parametrize("ids", [np.zeros((5, 2), int), np.zeros((6, 3), int), np.zeros((6, 2))])
def test_ids_that_do_not_fit_are_refused(ids, tmp_path):
    opening_error(npz(tmp_path / "c.npz", draws=GOOD, scores=GOOD, ids=ids), r"ids has shape .* expected .*\(6, 2\)")


def test_arrays_that_are_not_real_numbers_are_refused(tmp_path):
    for bad in (GOOD.astype(complex), GOOD.astype(str), GOOD > 1):
        opening_error(npz(tmp_path / "c.npz", draws=bad, scores=GOOD), "draws has dtype")


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("executed",))

    bombs = np.array([[Bomb()]], dtype=object)
    opening_error(npz(tmp_path / "c.npz", draws=bombs, scores=bombs), "Python objects, which are never unpickled")
    np.save(tmp_path / "d.npy", bombs)
    opening_error(tmp_path / "d.npy", "Python objects", scores=tmp_path / "d.npy")


# Lines of csv

HEADER = "a,b,score_a,score_b\n"


def rows(count):
    return "".join(f"{i},1.5,-2,3e-4\n" for i in range(count))


@pytest.mark.parametrize("before", [0, 7, 60_000])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_line_with_too_few_or_too_many_fields_is_named(before, ending, tmp_path):
    for bad, count in (("1,2,3", 3), ("1,2,3,4,5", 5)):
        content = "# by a sampler\n" + HEADER + rows(before) + "\n" + bad + "\n" + rows(3)
        path = tmp_path / "chain.csv"
        path.write_bytes(content.replace("\n", ending).encode())
        error(path, f"chain.csv, line {before + 4}: {count} fields, expected 4")


@pytest.mark.parametrize("before", [0, 60_000])
@pytest.mark.parametrize("bad", ["abc", "", "1.2.3", "1_0", "--1", "1e", "0x1"])
def test_a_field_that_is_no_number_is_named(before, bad, tmp_path):
    path = text(tmp_path / "chain.csv", HEADER + rows(before) + f"1,2,{bad},4\n" + rows(2))
    error(path, f"line {before + 2}, column score_a: '{bad}' is not a number")


def test_lines_are_counted_from_the_start_even_after_a_skip(tmp_path):
    path = text(tmp_path / "chain.csv", HEADER + rows(10) + "1,2\n")
    with pytest.raises(InputError, match="line 12: 2 fields"):
        list(open_chain(path).blocks(skip=9))


def test_a_column_without_a_header_is_named_by_its_number(tmp_path):
    draws, scores = text(tmp_path / "d.csv", "1,2\n3,x\n"), text(tmp_path / "s.csv", "1,2\n3,4\n")
    error(draws, "d.csv, line 2, column 2: 'x'", scores=scores)


@pytest.mark.parametrize(("draws", "scores"), [(9, 7), (7, 9), (8, 4), (4, 8), (1, 3)])
def test_files_of_unequal_length_are_refused_with_the_shorter_ones_length(draws, scores, tmp_path):
    d, s = text(tmp_path / "d.csv", rows(draws)), text(tmp_path / "s.csv", rows(scores))
    short = "d.csv" if draws < scores else "s.csv"
    for how in ({"rows": 4}, {"rows": 100}, {"rows": 3, "skip": 1}):
        with pytest.raises(InputError, match=f"{short} ends after {min(draws, scores)} rows, but .* is longer"):
            list(open_chain(d, scores=s).blocks(**how))


def test_files_of_unequal_width_are_refused(tmp_path):
    d, s = text(tmp_path / "d.csv", "1,2\n"), text(tmp_path / "s.csv", "1,2,3\n")
    opening_error(d, "s.csv has 3 columns of scores, but .*d.csv has 2 of draws", scores=s)
    opening_error(d, "d.csv has no header, so no column a", scores=s, draws_name="a")


@pytest.mark.parametrize("bad", ["1.5", "nan", "inf"])
def test_an_id_that_is_no_whole_number_is_refused(bad, tmp_path):
    path = text(tmp_path / "c.csv", f"draw,a,score_a\n1,2,3\n{bad},2,3\n")
    error(path, f"row 2, column draw: {bad} is not a whole number")


# Damage


@pytest.mark.parametrize("name", ["c.npz", "c.npy", "c.csv.gz", "c.parquet", "c.csv"])
@pytest.mark.parametrize("content", [b"", b"\x00", b"PK\x03\x04rubbish", b"\x93NUMPY\x01\x00", b"\xff" * 300])
def test_a_file_of_another_kind_gets_one_error(name, content, tmp_path):
    if name == "c.parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    error(path, name, **({"scores": path} if name in ("c.npy", "c.csv") else {}))


def test_a_truncated_gz_is_called_damaged(tmp_path):
    path = tmp_path / "c.csv.gz"
    noise = np.random.default_rng(0).standard_normal((20_000, 2))
    body = "a,score_a\n" + "".join(f"{x},{y}\n" for x, y in noise.tolist())
    path.write_bytes(gzip.compress(body.encode())[:-1000])
    assert "truncated" in error(path, "c.csv.gz cannot be read as csv").remedy


@settings(deadline=None, max_examples=150)
@given(data=st.data(), deflate=st.booleans())
def test_a_damaged_npz_is_read_or_refused_but_never_crashes(data, deflate, tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "c.npz"
    draws = np.random.default_rng(0).standard_normal((50, 2))
    (np.savez_compressed if deflate else np.savez)(path, draws=draws, scores=draws, ids=np.zeros((50, 2), int))
    spoil(path, data)
    try:
        for _ in open_chain(path).blocks(7):
            pass
    except InputError as caught:
        assert "c.npz" in caught.problem


@settings(deadline=None, max_examples=100)
@given(data=st.data(), kind=st.sampled_from(["npy", "csv", "csv.gz"]))
def test_a_damaged_file_is_read_or_refused_but_never_crashes(data, kind, tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / f"c.{kind}"
    if kind == "npy":
        np.save(path, GOOD)
    else:
        body = ("chain,a,score_a\n" + "".join(f"{i // 20},{i}.5,{-i}e-1\n" for i in range(40))).encode()
        path.write_bytes(body if kind == "csv" else gzip.compress(body))
    spoil(path, data)
    try:
        for _ in open_chain(path, scores=path if kind == "npy" else None).blocks(7):
            pass
    except InputError as caught:
        assert f"c.{kind}" in caught.problem


def spoil(path, data):
    """Change some bytes of a file, or cut it."""
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])


def test_an_npz_whose_array_is_shorter_than_its_header_says_is_refused(tmp_path):
    path = npz(tmp_path / "c.npz", draws=GOOD, scores=GOOD)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("draws.npy", members["draws.npy"])
        archive.writestr("scores.npy", members["scores.npy"][:-8])
    opening_error(path, "c.npz ends in the middle of scores")


def test_a_truncated_npy_is_refused(tmp_path):
    np.save(tmp_path / "d.npy", GOOD)
    (tmp_path / "s.npy").write_bytes((tmp_path / "d.npy").read_bytes()[:-1])
    opening_error(tmp_path / "d.npy", "s.npy ends in the middle", scores=tmp_path / "s.npy")


# Parquet


@pytest.fixture
def parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    def write(**columns):
        arrow.parquet.write_table(arrow.table(columns), tmp_path / "c.parquet")
        return tmp_path / "c.parquet"

    return write


def test_parquet_columns_that_are_not_there_or_not_numbers_are_refused(parquet):
    opening_error(parquet(a=["x"], lp=[2.0]), "no column of draws among a, lp")
    opening_error(parquet(a=["x"], score_a=[2.0]), "column a has type string, expected numbers")
    opening_error(parquet(draws=[["x"]], scores=[[1.0]]), "column draws has type string, expected numbers")
    caught = opening_error(parquet(draws=[[1.0]], score=[[1.0]]), "no column scores; it has draws, score")
    assert "Did you mean score?" in caught.remedy
    opening_error(parquet(draws=[[1.0]], scores=[1.0]), "draws contains lists, but scores contains single numbers")
    opening_error(parquet(draws=[[]], scores=[[]]), "row 1, column draws: |has type null")


def test_parquet_lists_of_another_length_are_named_by_row(parquet):
    path = parquet(draws=[[1.0, 2.0]] * 9, scores=[[1.0, 2.0]] * 6 + [[1.0]] + [[1.0, 2.0]] * 2)
    error(path, "row 7, column scores: 1 numbers, expected 2")
    path = parquet(draws=[[1.0, 2.0], None], scores=[[1.0, 2.0]] * 2)
    error(path, "row 2, column draws: 0 numbers, expected 2")


def test_an_empty_parquet_is_called_empty(parquet):
    import pyarrow

    none = pyarrow.array([], pyarrow.float64())
    opening_error(parquet(a=none, score_a=none), "the chain is empty")


def test_a_truncated_or_damaged_parquet_is_refused(parquet):
    noise = np.random.default_rng(0).standard_normal(5000)
    path = parquet(a=noise, score_a=noise)
    content = path.read_bytes()
    for length in (4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        error(path, "c.parquet cannot be read as parquet")


def test_missing_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "c.parquet").write_bytes(b"PAR1")
    for act in (open_chain, check_output):
        with pytest.raises(InputError, match="require pyarrow") as caught:
            act(tmp_path / "c.parquet")
        assert caught.value.remedy == 'pip install "steinstream[parquet]"'

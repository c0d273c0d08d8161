"""Files as sources of workers: workers refuse the files that one stream refuses; a folder gives its own files only."""

import os

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import CheckpointError, InputError, OutputError

X = np.random.default_rng(0).normal(size=(2, 400, 2))


def table(path, columns, values):
    np.savetxt(path, values, fmt="%.17g", delimiter=",", header=columns, comments="")
    return path


def thin(paths, **how):
    return ss.parallel.thin(paths, size=10, workers=0, **how)


@pytest.fixture
def pair(tmp_path):
    """Two files of draws, and one of the scores of the first."""
    draws = [table(tmp_path / f"d{number}.csv", "a,b", x) for number, x in enumerate(X)]
    return draws, table(tmp_path / "s.csv", "a,b", -X[0])


def test_a_checkpoint_of_other_arrays_of_the_same_file_is_refused(tmp_path):
    path, work = tmp_path / "two.npz", tmp_path / "work"
    np.savez(path, draws=X[0], scores=-X[0], other=3 * X[0], oscores=-X[0] / 3)
    first = thin([path], folder=work)
    with pytest.raises(CheckpointError, match=r"\(read differ\)"):
        thin([path], folder=work, read={"draws_name": "other", "scores_name": "oscores"})
    assert np.array_equal(thin([path], folder=work).draws, first.draws)


def test_a_checkpoint_of_other_scores_is_refused(pair, tmp_path):
    (draws, _), scores = pair
    work, how = tmp_path / "work", {"scores": scores}
    first = thin([draws], folder=work, read=how)
    assert np.array_equal(thin([draws], folder=work, read=how).draws, first.draws)
    about = scores.stat()
    os.utime(scores, ns=(about.st_atime_ns, about.st_mtime_ns + 10**9))
    with pytest.raises(CheckpointError, match=r"\(scores differ\)"):
        thin([draws], folder=work, read=how)


def test_one_file_of_scores_belongs_to_one_chain(pair):
    draws, scores = pair
    assert len(thin(draws[:1], read={"scores": scores})) == 10
    with pytest.raises(InputError, match=r"s\.csv, was given with 2 chains"):
        thin(draws, read={"scores": scores})
    with pytest.raises(InputError, match=r"s\.csv, was given with 2 chains"):
        thin(draws, read={"output": scores})


def test_chains_with_other_parameters_are_refused_and_common_names_are_kept(tmp_path):
    both = np.concatenate([X, -X], axis=2)
    one, other = (table(tmp_path / f"{i}.csv", "a,b,score_a,score_b", both[i]) for i in range(2))
    assert thin([one, other]).names == ("a", "b")
    swapped = table(tmp_path / "swapped.csv", "b,a,score_b,score_a", both[1])
    with pytest.raises(InputError, match=r"swapped\.csv has the parameters b, a, .*0\.csv has a, b"):
        thin([one, swapped])


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    path = tmp_path / "chain.npz"
    np.savez(path, draws=X[0], scores=-X[0])
    with pytest.raises(OutputError, match="or a part of this path, is a file") as refused:
        thin([path], folder=path / "sub")
    assert "--checkpoint" in refused.value.remedy


def test_scores_may_be_the_second_argument():
    x = np.random.default_rng(0).normal(size=(3, 200, 2))
    pairs = thin((x, -x))
    np.testing.assert_array_equal(ss.parallel.thin(x, -x, size=10, workers=0).ids, pairs.ids)
    np.testing.assert_array_equal(ss.parallel.thin([*x], [*-x], size=10, workers=0).ids, pairs.ids)
    for chains, scores in (([*x], [*-x[:2]]), ("chain.npz", -x), (x, "scores.npz")):
        with pytest.raises(InputError, match=r"ss\.parallel\.thin\(draws, scores\)"):
            ss.parallel.thin(chains, scores, size=10, workers=0)

"""Several files are the chains of one run, one after another."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io import open_chain, open_chains
from tests.stan_runs import whole


@pytest.fixture
def run(tmp_path):
    """Two chains of 1000 draws, in files whose length only a pass over them shows."""
    rng, paths = np.random.default_rng(0), [tmp_path / f"out-diagnostic-{i}.csv" for i in (1, 2)]
    for path in paths:
        x = rng.normal(size=(1000, 2))
        header = "a0,a1,score_a0,score_a1\n"
        path.write_text(header + "".join(f"{a!r},{b!r},{-a!r},{-b!r}\n" for a, b in x.tolist()))
    return paths


def test_several_files_are_chains(run):
    together = open_chains([run[0].parent / "out-diagnostic-*.csv"])
    assert (together.chains, together.title) == (2, "out-diagnostic-1.csv out-diagnostic-2.csv")
    draws, scores, ids = whole(together, rows=300)
    for number, path in enumerate(run):
        x, s, own = whole(open_chain(path))
        mine = ids[:, 0] == number
        assert (
            np.array_equal(draws[mine], x)
            and np.array_equal(scores[mine], s)
            and np.array_equal(ids[mine, 1], own[:, 1])
        )
    assert together.fraction() == 1.0


@pytest.mark.parametrize("skip", [0, 1, 999, 1000, 1001, 1999, 2000, 2500])
def test_several_files_can_be_entered_anywhere(skip, run):
    together = open_chains(run)
    everything = whole(together)
    rest = list(together.blocks(rows=256, skip=skip))
    for at, part in enumerate(everything):
        found = np.concatenate([part[:0], *(block[at] for block in rest)])
        assert np.array_equal(found, part[skip:])


@pytest.mark.parametrize("burn_in", [0, 10, 0.5])
@pytest.mark.parametrize("skip", [0, 3, 900])
def test_files_are_read_in_turns(skip, burn_in, run, tmp_path):
    shorter = tmp_path / "shorter.csv"
    shorter.write_text("".join(run[0].read_text().splitlines(keepends=True)[:401]))
    together = open_chains([*run, shorter], burn_in=burn_in)
    draws, scores, ids = whole(together)
    order = np.lexsort((ids[:, 0], (ids[:, 1] + 1) / np.array([1000, 1000, 400])[ids[:, 0]]))
    found = list(together.blocks(rows=100, skip=skip, interleaved=True))
    for at, part in enumerate((draws, scores, ids)):
        assert np.array_equal(np.concatenate([block[at] for block in found]), part[order][skip:])


def test_chains_within_files_are_numbered_on(tmp_path):
    paths = []
    for number, chains in enumerate([2, 3]):
        x = np.arange(chains * 4.0).reshape(chains, 4, 1) + 100 * number
        paths.append(tmp_path / f"c{number}.npz")
        np.savez(paths[-1], draws=x, scores=-x)
    csv = tmp_path / "c.csv"
    csv.write_text("chain,a,score_a\n" + "".join(f"{i % 2},{i},{i}\n" for i in range(4)))
    together = open_chains([*paths])
    assert together.length == 20 and sorted(set(whole(together)[2][:, 0].tolist())) == [0, 1, 2, 3, 4]
    single = tmp_path / "d.csv"
    single.write_text("a,score_a\n9,9\n")
    mixed = open_chains([csv, single])
    assert mixed.chains is None
    assert whole(mixed)[2].tolist() == [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0]]
    assert [block.ids.tolist() for block in mixed.blocks(skip=4)] == [[[2, 0]]]


def test_files_of_a_pattern_are_in_natural_order(tmp_path):
    for number in (10, 9, 1):
        (tmp_path / f"c-{number}.csv").write_text(f"a,score_a\n{number},0\n")
    assert whole(open_chains([str(tmp_path / "c-*.csv")]))[0].ravel().tolist() == [1, 9, 10]
    with pytest.raises(InputError, match="no file matches"):
        open_chains([str(tmp_path / "d-*.csv")])


def test_chains_of_two_models_do_not_go_together(run, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,score_a\n1,2\n")
    with pytest.raises(InputError, match=r"other\.csv has the parameters a, .* has a0"):
        open_chains([run[0], other])
    with pytest.raises(InputError, match="A file of scores goes with one chain, but 2 chains"):
        open_chains(run, scores=other)

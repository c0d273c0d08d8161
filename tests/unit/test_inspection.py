"""An inspection counts draws, repeats and bad values, and judges the sign of the scores, for any block size."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.inspection import Inspection
from steinstream.io import open_chain
from steinstream.validation import Block, consecutive_ids


def inspect(draws, scores, ids=None, block=None):
    ids = consecutive_ids(0, 0, len(draws)) if ids is None else ids
    inspection = Inspection(draws.shape[1])
    for begin in range(0, len(draws), block or len(draws)):
        rows = slice(begin, begin + (block or len(draws)))
        inspection.add(Block(draws[rows], scores[rows], ids[rows]))
    return inspection


def normal(count=1000, dim=3):
    return np.random.default_rng(0).normal(size=(count, dim))


def test_the_shape_counts_chains_draws_and_parameters():
    x = normal(5000)
    ids = np.concatenate([consecutive_ids(0, 0, 3000), consecutive_ids(1, 0, 2000)])
    inspection = inspect(x, -x, ids)
    assert inspection.shape(("a", "b", "c")) == "2 chains x 2 000 to 3 000 draws, 3 parameters (a, b, c)"
    assert inspection.lengths == {0: 3000, 1: 2000}
    assert "(p0, p1, p2, p3, p4, p5, ...)" in inspect(normal(dim=8), -normal(dim=8)).shape(
        tuple(f"p{j}" for j in range(8))
    )


@pytest.mark.parametrize(
    ("factor", "words"),
    [(-1.0, "sign as expected (mean of <x - mean, score> is -"), (1.0, "look negated"), (-0.3, "sign plausible, but")],
)
def test_the_sign_of_the_scores(factor, words):
    x = normal()
    inspection = inspect(x, factor * x)
    assert inspection.sign().startswith(words) and "expected -3" in inspection.sign()
    assert inspection.negated == (factor > 0)
    assert [line.startswith("scores: ") for line in inspection.warnings()] == ([] if factor == -1.0 else [True])


def test_the_shape_of_chains_of_different_lengths_has_the_least_and_the_largest():
    inspection = Inspection(dim=1)
    for chain, length in enumerate((9, 16, 12, 13)):
        x = np.zeros((length, 1))
        inspection.add(Block(x, x, consecutive_ids(chain, 0, length)))
    assert inspection.shape(("x",)).startswith("4 chains x 9 to 16 draws")


def test_the_sign_of_wide_scores_is_judged_by_the_evaluated_coordinates():
    x = np.random.default_rng(0).normal(size=(50, 25_000))
    for sign, words in ((1.0, "look negated"), (-1.0, "sign as expected")):
        inspection = inspect(x, sign * x)
        assert inspection.negated == (sign > 0) and inspection.sign().startswith(words)


@pytest.mark.parametrize("block", [None, 1, 7])
def test_repeats_are_counted_across_blocks_but_not_across_chains(block):
    x = normal(100)
    x[50:] = x[49]
    ids = np.concatenate([consecutive_ids(0, 0, 60), consecutive_ids(1, 0, 40)])
    inspection = inspect(x, -x, ids, block)
    assert inspection.repeated == 49 and inspection.repeats() == "49% of draws repeat their predecessor"


def test_a_chain_that_hardly_moves_is_a_warning():
    x = np.repeat(normal(2), 100, axis=0)
    assert any(line.startswith("repeats: 99%") for line in inspect(x, -x).warnings())


def test_bad_values_are_counted_and_the_first_is_named():
    x, s = normal(1000, 2), -normal(1000, 2)
    assert inspect(x, s).bad() == "none: all values are finite"
    x[7, 0], s[20:30], x[40] = np.nan, np.nan, np.inf
    inspection = inspect(x, s, block=16)
    assert inspection.bad_draws == 12 and inspection.missing == {"draws": 1, "scores": 20}
    assert inspection.bad() == (
        "12 of 1 000 draws not finite, the first is chain 0, draw 7 (NaN: 0.05 % of the draws and 1 % of the scores); "
        "steinstream thin --on-bad skip leaves them out"
    )
    assert inspection.sign().startswith("sign as expected")  # by the other draws
    assert any(line.startswith("bad values: 12 of") for line in inspection.warnings())


def test_the_expected_size_is_that_of_sqrt_growth_and_memory_grows_with_it():
    inspection = inspect(normal(), -normal())
    assert inspection.expected_size() == 84  # ceil(sqrt(1000 log 1000))
    assert inspection.megabytes(100) < inspection.megabytes(1_000_000)
    assert Inspection(2).expected_size() == 1 and Inspection(2).megabytes(1) >= 1


@pytest.mark.parametrize("block", [None, 7])
def test_draws_without_scores_are_described(block):
    x = normal(100)
    x[50] = x[49]
    x[7, 1] = np.nan
    inspection = inspect(x, np.zeros((100, 0)), block=block)
    assert not inspection.has_scores and not inspection.negated and inspection.sign() == "none"
    assert inspection.shape(("a", "b", "c")) == "1 chain x 100 draws, 3 parameters (a, b, c)"
    assert (inspection.repeated, inspection.bad_draws, inspection.missing) == (1, 1, {"draws": 1, "scores": 0})
    assert inspection.warnings() == [f"bad values: {inspection.bad()}"]


def test_any_file_is_described_with_the_way_to_scores(tmp_path):
    x = normal(100, 2)
    rows = "".join(f"{i % 4 + 1},{i // 4},{a},{b},-1\n" for i, (a, b) in enumerate(x.tolist()))
    (tmp_path / "draws.csv").write_text(".chain,.iteration,mu,tau,lp__\n" + rows)
    chain = open_chain(tmp_path / "draws.csv")
    lines = dict(Inspection.of(chain).lines(chain))
    assert lines[""] == "4 chains x 25 draws, 2 parameters (mu, tau)"
    assert lines["draws"] == "draws.csv, columns mu, tau" and lines["parameters"] == "2: mu, tau"
    assert lines["ids"] == ".chain, .iteration" and lines["left out"] == "lp__ (log density)"
    assert lines["scores"].startswith("none: ") and 'see "Draws without scores"' in lines["scores"]
    assert lines["repeats"].startswith("0%") and lines["invalid"].startswith("none")


def test_a_file_with_scores_is_described_with_their_sign(tmp_path):
    x = normal(1000, 2)
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x)
    chain = open_chain(tmp_path / "chain.npz")
    lines = dict(Inspection.of(chain).lines(chain))
    assert lines["scores"].startswith("array scores, sign as expected") and "left out" not in lines

"""Chains of unequal length contribute in proportion to it, and a run can stop and continue at every draw."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ArraySource, ChainSource, MarkedBlock
from steinstream.io import open_chains
from steinstream.validation import Block, consecutive_ids

LENGTHS = {"about equal": [1000, 999, 1000, 1000], "one short": [100, 1500, 1500], "1 to 4": [500, 1000, 1500, 2000]}


def independent_chains(lengths, seed, dim=3):
    """Return independent standard normal draws as chains of the given lengths."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(length, dim)) for length in lengths]


def array_source(chains, with_scores=True):
    return ArraySource(
        [
            MarkedBlock(Block(x, -x if with_scores else x[:, :0], consecutive_ids(number, 0, len(x))))
            for number, x in enumerate(chains)
        ]
    )


def write(folder, chains, kind):
    """Write chains to one file with a column of chains, or to one file each, and open them."""
    if kind == "one csv":
        rows = [f"{number},{','.join(map(repr, x))}" for number, own in enumerate(chains) for x in own.tolist()]
        names = ",".join(f"x{i}" for i in range(chains[0].shape[1]))
        (folder / "chains.csv").write_text("\n".join([f"chain,{names}", *rows]) + "\n")
        return open_chains([folder / "chains.csv"])
    for number, x in enumerate(chains):
        if kind == "csv":
            header = ",".join(f"x{i}" for i in range(x.shape[1]))
            np.savetxt(folder / f"c-{number}.csv", x, delimiter=",", header=header, comments="", fmt="%.17g")
        else:
            np.savez(folder / f"c-{number}.npz", draws=x)
    return open_chains([folder / f"c-*.{kind}"])


@pytest.mark.parametrize("with_scores", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_independent_chains_contribute_in_proportion_to_their_length(lengths, with_scores):
    """Kept draws per chain, from six runs, differ from the share by at most four sds of a random selection."""
    share, kept = np.array(lengths) / sum(lengths), np.zeros(len(lengths))
    for seed in range(6):
        thinner = ss.api.thin_source(
            array_source(independent_chains(lengths, seed), with_scores), ss.ThinConfig(size=100)
        )
        kept += np.bincount(thinner.kept.ids[:, 0], minlength=len(lengths))
    tolerance = 4 * np.sqrt(600 * share * (1 - share))
    assert (np.abs(kept - 600 * share) <= tolerance).all(), (kept, 600 * share, tolerance)


@pytest.mark.parametrize("kind", ["one csv", "csv", "npz"])
def test_files_give_the_result_of_arrays(kind, tmp_path):
    chains = independent_chains([40, 90, 130, 7], 1)
    stored = ChainSource(write(tmp_path, chains, kind), rows=50)
    config = ss.ThinConfig(size=20)
    ours, theirs = (ss.api.thin_source(source, config).kept for source in (stored, array_source(chains, False)))
    np.testing.assert_array_equal(ours.ids, theirs.ids)
    np.testing.assert_array_equal(ours.draws, theirs.draws)


@pytest.mark.parametrize("kind", ["arrays", "one csv", "csv", "npz"])
def test_a_run_continues_at_every_draw_with_the_same_result(kind, tmp_path):
    chains = independent_chains([9, 20, 5, 31], 2, dim=2)
    source = array_source(chains, False) if kind == "arrays" else ChainSource(write(tmp_path, chains, kind), rows=7)

    def draws(skip=0):
        blocks = [marked.block for marked in source.blocks(skip, interleaved=True)]
        return [np.concatenate([block[at] for block in blocks]) for at in (0, 2)]

    everything = draws()
    whole = ss.Thinner(2, size=8, preconditioner="identity")
    whole.extend(everything[0], ids=everything[1])
    for position in range(1, 65):
        thinner = ss.Thinner(2, size=8, preconditioner="identity")
        thinner.extend(everything[0][:position], ids=everything[1][:position])
        rest = draws(position)
        thinner.extend(rest[0], ids=rest[1])
        np.testing.assert_array_equal(thinner.kept.ids, whole.kept.ids)
        np.testing.assert_array_equal(thinner.kept.draws, whole.kept.draws)

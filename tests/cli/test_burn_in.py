"""``--burn-in`` leaves out the first draws of each chain, by number or by share, and keeps the ids of the others."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.io import open_chain, open_chains
from steinstream.io.discard_burn_in import without_burn_in


@pytest.fixture
def chains(tmp_path):
    """Two chains of 400 draws in one file, which start far from the target."""
    x = np.random.default_rng(3).normal(size=(2, 400, 2))
    x[:, :100] += 30.0
    np.savez(tmp_path / "chains.npz", draws=x, scores=-x)
    return x


@pytest.mark.parametrize("burn_in", ["100", "0.25", "25%"])
def test_thin_equals_the_library_on_the_remaining_draws(steinstream, chains, tmp_path, burn_in):
    ran = steinstream("thin", "chains.npz", "-o", "kept.npz", "--size", 30, "--burn-in", burn_in)
    assert ran.returncode == 0 and "kept 30 of 600 draws" in ran.stdout, ran.stderr
    kept, expected = ss.Kept.load(tmp_path / "kept.npz"), ss.thin(chains[:, 100:], -chains[:, 100:], size=30)
    assert np.array_equal(kept.draws, expected.draws)
    assert np.array_equal(kept.ids, expected.ids + np.array([0, 100]))  # the ids are those of the file
    assert np.array_equal(chains[tuple(kept.ids.T)], kept.draws)


def test_other_methods_leave_out_the_same_draws(steinstream, chains, tmp_path):
    words = ["thin", "chains.npz", "-o", "kept.npz", "--size", 6, "--method", "stride", "--burn-in", 100]
    assert steinstream(*words).returncode == 0
    assert ss.Kept.load(tmp_path / "kept.npz").ids[:, 1].min() >= 100


def test_a_share_is_taken_of_each_chain(tmp_path):
    for i, length in enumerate((10, 40)):
        np.savez(tmp_path / f"{i}.npz", draws=np.full((length, 1), float(i)), scores=np.zeros((length, 1)))
    source = without_burn_in(open_chains([tmp_path / "0.npz", tmp_path / "1.npz"]), 0.5)
    ids = np.concatenate([block.ids for block in source.blocks(rows=7)])
    assert ids.tolist() == [[0, i] for i in range(5, 10)] + [[1, i] for i in range(20, 40)]


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("skip", [0, 1, 30, 64])
def test_reading_can_start_anywhere(tmp_path, rows, skip):
    x = np.arange(100.0).reshape(2, 50, 1)
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x)
    source = without_burn_in(open_chain(tmp_path / "chain.npz"), 18)
    draws = [block.draws for block in source.blocks(rows, skip)]
    assert np.array_equal(np.concatenate([np.empty((0, 1)), *draws]), x[:, 18:].reshape(-1, 1)[skip:])


def test_a_run_is_continued_with_the_same_burn_in_only(steinstream, chains, tmp_path):
    from steinstream.io import checkpoint

    words = ["thin", "chains.npz", "-o", "kept.npz", "--size", 30, "--checkpoint", "state.npz"]
    state = interrupted(steinstream, words, tmp_path)
    assert checkpoint.read(state)
    ran = steinstream(*words, "--resume", "--burn-in", 50)
    assert ran.returncode == 2 and "--burn-in 100, but 50 was given" in ran.stderr
    assert steinstream(*words, "--resume", "--burn-in", 100).returncode == 0
    assert np.array_equal(
        ss.Kept.load(tmp_path / "kept.npz").draws, ss.thin(chains[:, 100:], -chains[:, 100:], size=30).draws
    )


def interrupted(steinstream, words, folder):
    """Stop a run after its first block, and return its checkpoint."""
    from unittest.mock import patch

    from steinstream.cli._hooks import ThinHooks
    from steinstream.cli.progress import Stop

    def stop(hooks):
        return hooks._stage == "thinning"

    with patch.object(ThinHooks, "stop", stop), patch.object(Stop, "code", 130):
        ran = steinstream(*words, "--burn-in", 100)
    assert ran.returncode == 130 and "--resume" in ran.stderr
    return folder / "state.npz"

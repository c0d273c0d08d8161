"""Convergence of a source is that of its draws, however often and from where it is read."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ArraySource, thin_source
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import CheckpointError
from steinstream.validation import consecutive_ids
from steinstream.watched_source import WatchedSource, with_source
from tests.chains import autoregression

CHAINS = np.stack([autoregression(700, 2, 0.5, seed) for seed in range(3)])


def source():
    return ArraySource.of(CHAINS, -CHAINS)


def expected():
    convergence = RunningConvergence(2)
    for number, chain in enumerate(CHAINS):
        convergence.add(consecutive_ids(number, 0, len(chain)), chain)
    return convergence.summary()


@pytest.mark.parametrize("settings", [{}, {"passes": 3}, {"preconditioner": ss.Preconditioner.identity()}])
def test_every_draw_counts_once(settings):
    watched = WatchedSource(source())
    thinned = thin_source(watched, ss.ThinConfig(size=20, **settings)).kept
    kept = with_source(thinned, "tool", watched.convergence)
    assert kept.settings["source"] == {"tool": "tool", **expected()}
    assert kept.settings["seen"] == 2100
    assert np.array_equal(thinned.ids, thin_source(source(), ss.ThinConfig(size=20, **settings)).kept.ids)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("read", "skip"), [(900, 900), (900, 850)])
def test_a_restored_source_continues_at_any_draw(interleaved, read, skip):
    first = WatchedSource(source())
    position = 0
    for block, _, _ in first.blocks(interleaved=interleaved):
        position += len(block.ids)
        if position >= read:
            break
    second = WatchedSource(source())
    second.restore(first.state())
    for _ in second.blocks(min(skip, position), interleaved=interleaved):
        pass
    assert second.convergence.summary() == expected()


def test_an_invalid_state_is_an_error():
    with pytest.raises(CheckpointError, match="convergence in the checkpoint is invalid"):
        WatchedSource(source()).restore({"read": "all"})

"""A history has one entry per recorded step in each of its arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

import steinstream as ss
from steinstream.result import History


def test_an_empty_history_has_no_steps():
    assert [len(values) for values in History.empty()] == [0, 0, 0, 0]
    assert History.empty().step.dtype == History.empty().size.dtype == np.int64


def test_a_single_step_without_a_stream_term_has_no_mmd():
    history = History.single(100, 7, 0.5)
    assert [values.tolist() for values in history[:3]] == [[100], [7], [0.5]] and math.isnan(history.mmd[0])


def test_the_last_entry_describes_the_kept_set():
    draws = np.random.default_rng(0).normal(size=(500, 2))
    for history in ("log", "all", 7):
        kept = ss.thin(draws, -draws, 20, history=history)
        last = [values[-1] for values in kept.history]
        assert last == pytest.approx([500, len(kept), kept.ksd, kept.mmd], rel=1e-9)
        assert (np.diff(kept.history.step) > 0).all()

"""The arrays of the kept draws start on cache lines and keep their contents when they are enlarged."""

from __future__ import annotations

import numpy as np

from steinstream._engine.state import (
    NONE,
    STATE_SCALARS,
    aligned,
    empty_state,
    enlarged,
    new_record,
    record_values,
    set_record,
)


def test_arrays_start_on_a_cache_line():
    for shape in ((3,), (5, 7), (2, 3, 2, 16)):
        for kind in (np.float64, np.float32):
            assert aligned(*shape, kind=kind).ctypes.data % 64 == 0


def test_a_record_round_trips_through_its_values():
    record = new_record(STATE_SCALARS)
    record["draws"], record["total"] = 3, 0.25
    other = new_record(STATE_SCALARS)
    set_record(other, record_values(record))
    assert other == record and other["draws"] == 3


def test_an_enlarged_state_has_free_slots_and_labels_and_the_same_contents():
    state = empty_state(2, 3)
    state.tiles[:], state.ids[:], state.copies[:] = 1.5, 7, 2.0
    state.scalars["slots"], state.scalars["free"], state.scalars["total"] = 16, NONE, 0.5
    larger = enlarged(state)
    assert len(larger.copies) > 16 and len(larger.following) > 16
    assert larger.scalars["free"] == 16 and larger.following[-1] == NONE
    assert larger.scalars["total"] == 0.5 and larger.scalars["slots"] == 16
    assert (larger.tiles[:1] == 1.5).all() and (larger.ids[:16] == 7).all() and (larger.copies[16:] == 0.0).all()
    assert (larger.influence[16:] == -np.inf).all()
    larger.scalars["slots"] = 3
    assert state.scalars["slots"] == 16, "records are not shared"

"""Kept burn-in is detected and does not affect the other checks."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from tests.chains import autoregression, fired


def test_burn_in_is_found_and_the_rest_is_checked_without_it():
    x = autoregression(4000, 2, 0.5, 0)
    x[:400] += np.linspace(60, 6, 400)[:, None]
    found = ss.thin(x, -x, growth="none", stream_weight=0.0).diagnose()
    assert fired(found) == {"burn-in"} and found["burn-in"].value == pytest.approx(0.1, abs=0.02)
    assert "discard the first" in found["burn-in"].advice
    assert ss.thin(x, -x, size=200).diagnose().ok  # thinning removes it, and the stream is checked without it

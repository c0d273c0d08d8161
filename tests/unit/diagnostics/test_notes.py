"""Notes name what limits a diagnosis."""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics import diagnose
from steinstream.diagnostics.notes import notes_of_settings
from tests.chains import as_stream


def test_the_share_of_clipped_ratios_is_named():
    is_proxy, notes = notes_of_settings({"proxy": "Gaussian", "clip": 3.0, "clipped": 0.163})
    assert is_proxy and "clipped at 16% of the draws" in notes[0]
    is_proxy, notes = notes_of_settings({"proxy": "Gaussian"})
    assert is_proxy and "scores of a proxy density" in notes[0]
    assert notes_of_settings({"seen": 100}) == (False, ())


def test_one_parameter_with_heavy_tails_is_named():
    x = np.random.default_rng(0).normal(size=(3000, 3))
    x[:, 1] = np.random.default_rng(1).standard_t(3, size=3000)
    notes = diagnose(x[::30], as_stream(x).ids[::30], as_stream(x), ["a", "b", "c"]).notes
    assert len(notes) == 1 and notes[0].startswith("heavy tails in 1 parameter (kurtosis") and "of b)" in notes[0]


def test_a_normal_stream_has_no_notes():
    x = np.random.default_rng(0).normal(size=(3000, 3))
    assert diagnose(x[::30], as_stream(x).ids[::30], as_stream(x)).notes == ()

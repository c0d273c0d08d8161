"""Fourier features approximate the base kernel; cosine and sine are accurate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine import fourier_features
from steinstream.kernels import PROFILES


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([ss.IMQ(), ss.IMQ(c=2.0, beta=-0.3), ss.RBF(), ss.RBF(h=0.5)]), st.integers(1, 12))
def test_many_features_approximate_the_base_kernel(kernel, dim):
    x = np.random.default_rng(dim).normal(size=(6, dim))
    waves = fourier_features.features(x, fourier_features.frequencies(kernel, dim, np.array(1.0), 4096))
    compiled = kernel.compiled(dim)
    u = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    phi = PROFILES[compiled.profile](u, compiled.first, compiled.second)[0]
    assert waves @ waves.T / 4096 == pytest.approx(phi / phi[0, 0], abs=0.05)


@given(st.floats(-1e6, 1e6))
def test_features_are_cosine_and_sine(turns):
    exact = turns - round(turns)  # the integer part of an angle in turns has no effect
    cosine, sine = fourier_features.wave(turns)
    assert cosine == pytest.approx(math.cos(2 * math.pi * exact), abs=0.51 * fourier_features.GRID)
    assert sine == pytest.approx(math.sin(2 * math.pi * exact), abs=0.51 * fourier_features.GRID)
    assert fourier_features.wave(-turns) == (cosine, -sine) or abs(abs(exact) - 0.5) < 1e-9

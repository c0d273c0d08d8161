"""Streams for tests, made by hypothesis: plain, repeated, tied, burnt in."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import steinstream as ss

kernels = st.sampled_from(
    [
        *(ss.IMQ(), ss.IMQ(c=0.5), ss.IMQ(c=2.0, beta=-0.3), ss.RBF(), ss.RBF(h=0.7)),
        *(ss.IMQ(linear=0.1), ss.RBF(linear=1.0)),
    ]
)
growths = st.sampled_from(["none", "linear", "sqrt", "power:0.5", "power:1.5", "constant:5", 7, lambda t: 3 + t // 4])
budgets = st.sampled_from([0.0, 0.05, "constant:0.2", "decaying", "share:1.0", lambda t: 1.0 / t])
rules = st.sampled_from(["paper", "monotone"])


@st.composite
def streams(draw, max_dim=50, max_length=40, min_length=1):
    """Draws and scores (n, d).

    ``tied``: few states and their mirror images, visited again and again, so that exact ties abound.
    ``repeated``: a chain that stays where it is most of the time. ``burnt``: starts far out, with huge scores.
    """
    dim = draw(st.one_of(st.integers(1, min(4, max_dim)), st.integers(1, max_dim)))
    length = draw(st.integers(min_length, max_length))
    style = draw(st.sampled_from(["plain", "repeated", "tied", "burnt"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.normal(size=(length, dim)) * rng.choice([0.1, 1.0, 3.0])
    s = -x + 0.3 * rng.normal(size=x.shape)
    if style == "repeated":
        stay = np.maximum.accumulate(np.where(rng.random(length) < 0.3, np.arange(length), 0))
        x, s = x[stay], s[stay]
    elif style == "tied":
        few = draw(st.integers(1, 4))
        x, s = np.vstack([x[:few], -x[:few]]), np.vstack([s[:few], -s[:few]])
        visits = rng.integers(0, len(x), size=length)
        x, s = x[visits], s[visits]
    elif style == "burnt":
        out = max(1, length // 4)
        x[:out] += 20.0
        s[:out] *= 10.0 ** rng.integers(1, 6)
    return x, s

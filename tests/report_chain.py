"""The chain that the tests of the report use, and how to read numbers from a report."""

from __future__ import annotations

import re

import numpy as np

#: Names that a page, a style sheet or matplotlib could take for something else.
NAMES = ("<script>alert(1)</script>", "</style></svg><b>bold", "$x$ & #009e73 1.23456", "tau")


def write_chain(path):
    """Write two chains with a burn-in and with dangerous names."""
    draws = np.random.default_rng(0).normal(size=(2, 3000, 4)) * [1.0, 0.1, 10.0, 1.0]
    draws[:, :100] += np.linspace(30, 0, 100)[:, None]
    np.savez(path, draws=draws, scores=-draws / [1.0, 0.01, 100.0, 1.0], names=np.array(NAMES))
    return path


def numbers(text):
    """Return the numbers at the top of a report, with all digits."""
    return {name: float(value) for name, value in re.findall(r'data-number="(\w+)" data-value="([^"]*)"', text)}

"""The published algorithm: its corrected variant is that of this package, the published one breaks its bound."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.targets import Mixture

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "published" / "run.py"


@pytest.fixture(scope="module")
def published():
    spec = spec_from_file_location("published", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stream():
    return Mixture([[0, 0], [1, 1], [2, 2], [3, 3]], covariances=0.25).sample(10_000, seed=0)


@pytest.mark.parametrize(("kernel", "base"), [("imq", ss.IMQ()), ("rbf", ss.RBF())])
@pytest.mark.parametrize("growth", ["sqrt", 10])
def test_the_corrected_algorithm_is_the_one_of_the_package(published, stream, kernel, base, growth):
    rows = published.run("corrected", kernel, *stream, 5, growth)
    settings = {**ss.PAPER, "kernel": base, "growth": growth, "candidates": 5, "history": "all"}
    thinner = ss.Thinner(2, **settings)
    thinner.extend(*stream)
    at = rows[:, 0].astype(int) - 1
    assert rows[:, 1].tolist() == thinner.history.size[at].tolist()
    np.testing.assert_allclose(rows[:, 2], thinner.history.ksd[at], rtol=1e-6)
    assert rows[-1, 3] == 0.0  # thinning with budget 0 never increases KSD


@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_ksd_has_the_kernel_of_the_paper_whatever_selected_the_draws(published, stream, precision):
    draws, scores = (part[:200].astype(precision) for part in stream)
    for kernel, base in (("imq", ss.IMQ()), ("rbf", ss.RBF())):
        rows = published.run("published", kernel, draws, scores, 1, "none")
        x, s = draws.astype(float), scores.astype(float)
        expected = ss.ksd(x, s, kernel=base, preconditioner=ss.Preconditioner.identity())
        assert rows[-1, 1] == 200
        assert rows[-1, 2] == pytest.approx(expected, rel=1e-6)


def test_the_published_algorithm_increases_ksd_and_keeps_more(published, stream):
    rows, corrected = (published.run(name, "imq", *stream, 5, 10) for name in published.ALGORITHMS)
    assert 0.2 < rows[-1, 3] < 0.6
    assert rows[-1, 1] > 1.3 * corrected[-1, 1]

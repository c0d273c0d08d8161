"""The code in the report reproduces the kept set."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.report import provenance

SETTINGS = (
    {"size": 60},
    {"growth": "linear", "budget": 0.01, "rule": "monotone"},
    {"budget": "decaying", "growth": "power:0.4"},
    {"passes": 2, "size": 30},
    {"passes": "auto", "size": 30},
    {"preconditioner": "streaming", "kernel": ss.RBF(h=2.0)},
    {"preconditioner": "scales", "kernel": ss.IMQ(linear=0.1)},
    {"preconditioner": "identity"},
    {"candidates": 3, "stream_weight": 1.0, "size": 20},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_code_reproduces_the_set(chain, folder, settings):
    with np.load(chain) as arrays:
        names = {"draws": arrays["draws"], "scores": arrays["scores"]}
    kept = ss.thin(**names, **settings)
    kept.save(folder / "again.npz")
    stored = ss.Kept.load(folder / "again.npz")
    for one in (kept, stored):
        exec(provenance.python_code(one, str(folder / "again.npz")), here := dict(names))
        assert here["kept"].ids.tolist() == kept.ids.tolist() and here["kept"].ksd == kept.ksd


def test_weights_and_order_are_part_of_the_code(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"][:, 200:], arrays["scores"][:, 200:]
    kept = ss.thin(draws, scores, size=40)
    code = provenance.python_code(kept.weighted(like=draws))
    assert "kept.weighted(like=draws, effective_share=0.95)  # draws without burn-in" in code
    assert "kept.weighted(effective_share=0.8)" in provenance.python_code(kept.weighted(effective_share=0.8))
    assert provenance.python_code(kept.ordered()).endswith("\nkept = kept.ordered()")


def test_sets_that_thin_did_not_make_have_no_code(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    one, two = (ss.thin(draws[c], scores[c], size=40) for c in (0, 1))
    assert provenance.python_code(ss.merge([one, two], size=50)) is None
    assert provenance.python_code(ss.thin(draws, scores, growth=lambda step: 30.0)) is None
    one.settings["config"] = {"size": "many", "kernel": 7}
    assert provenance.python_code(one) is None


def test_commands_are_chained_by_their_outputs():
    x = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(x, -x, size=20)
    assert provenance.recorded_commands(kept) == []
    kept.settings["commands"] = ["steinstream thin chain.npz --size 20", "steinstream refine weighted.npz --order"]
    assert provenance.recorded_commands(kept, "a b.npz") == [
        "steinstream thin chain.npz --size 20 -o weighted.npz",
        "steinstream refine weighted.npz --order -o 'a b.npz'",
    ]

"""Every combination of settings gives a valid result, or an `InputError` with a remedy.

Settings are drawn from the fields of `ThinConfig`, so a new setting takes part by itself.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.errors import InputError
from steinstream.thinner.config import COMMAND_LINE, ThinConfig
from tests.thinners import assert_same

#: Values of settings whose type does not determine them.
VALUES: dict[str, list[Any]] = {
    "size": [1, 4, 12, 12, 200],
    "growth": ["none", "sqrt", "constant:5"],
    "budget": [0.05, "decaying", "share:1.0"],
    "passes": [2, "auto"],
    "kernel": [ss.RBF(), ss.IMQ(linear=0.1)],
    "preconditioner": ["scales", "identity", "streaming", ss.Warmup("scales", 20), ss.Streaming(first=10)],
    "stream_weight": [0.0, 0.3, 10.0],
    "stream_on": ["draws", "features", "both"],
    "history": ["all", 3, None],
    "storage": ["float32"],
}


def values_of(field):
    """Return values of a setting: those above, the choices of the command line, or some values of its type."""
    if field.name in VALUES:
        return VALUES[field.name]
    if field.name in COMMAND_LINE and COMMAND_LINE[field.name].choices:
        return list(COMMAND_LINE[field.name].choices)
    kind = get_type_hints(ThinConfig)[field.name]
    of_types = {bool: [True, False], int: [2, 3], float: [0.5]}
    values = [value for each in get_args(kind) or (kind,) for value in of_types.get(each, [])]
    assert values, f"VALUES has no values of the new setting {field.name}"
    return values


rarely = st.sampled_from([False, False, False, True])


@st.composite
def configurations(draw):
    """Settings: the size is given three times out of four, and any other one once."""
    chosen = {}
    for field in fields(ThinConfig):
        if draw(rarely) != (field.name == "size"):
            chosen[field.name] = draw(st.sampled_from(values_of(field)))
    return chosen


@st.composite
def chains(draw):
    """Draws (chains, n, d), and their scores or none."""
    count, length = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3, 25, 60, 120]))
    dim, style = draw(st.sampled_from([1, 3])), draw(st.sampled_from(["plain", "constant", "whole", "repeated", "bad"]))
    x = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(count, length, dim))
    if style == "constant":
        x[..., 0] = 2.5
    elif style == "whole":
        x = np.round(2 * x)
    elif style == "repeated":
        x = np.repeat(x, 4, axis=1)[:, :length]
    elif style == "bad":
        x[0, 0, 0] = np.nan
    return x, -x if draw(st.booleans()) else None


def call_or_input_error(function):
    """Return the result, or None after an `InputError` with a remedy; any other error and any warning fails."""
    try:
        return function()
    except InputError as error:
        assert error.remedy, error
        return None


@settings(max_examples=40, deadline=None)
@given(chains(), configurations(), rarely, rarely, st.integers(1, 40))
@pytest.mark.filterwarnings("ignore::steinstream.ScoresWarning")
def test_every_combination_of_settings_gives_a_valid_result_or_a_remedy(
    tmp_path_factory, chain, choice, pins, costs, block
):
    x, s = chain
    given = {}
    if choice.get("cost_weight") or costs:
        given["costs"] = np.ones(x.shape[:2])
        choice.setdefault("cost_weight", 1.0)
    if pins:
        given["pinned"] = np.zeros(x.shape[:2], dtype=bool)
        given["pinned"][0, 0] = True  # the last draws may be too few for a step
    if choice.get("stream_on") in ("features", "both"):
        given["features"] = np.sum(x, axis=2)
    kept = call_or_input_error(lambda: ss.thin(x, s, **choice, **given))
    if kept is not None:
        assert_valid(kept, x, s, choice, given)
        use(kept, tmp_path_factory.mktemp("kept") / "kept.npz")

    ids = np.array([(c, i) for c in range(len(x)) for i in range(x.shape[1])])
    rows = {"ids": ids} | {name: values.reshape(len(ids)) for name, values in given.items()}
    flat, scores = x.reshape(len(ids), -1), None if s is None else s.reshape(len(ids), -1)
    whole = call_or_input_error(lambda: ss.Thinner(x.shape[2], **choice))
    if whole is None:
        return
    parts, path = ss.Thinner(x.shape[2], **choice), tmp_path_factory.mktemp("thinner") / "run.npz"

    def extend(thinner, part):
        return thinner.extend(
            flat[part], None if scores is None else scores[part], **{name: rows[name][part] for name in rows}
        )

    if call_or_input_error(lambda: extend(whole, slice(None))) is None:
        return
    for first in range(0, len(ids), block):
        extend(parts, slice(first, first + block))
        parts.save(path)
        parts = ss.Thinner.load(path)
    assert (whole.seen, whole.skipped, whole.steps) == (parts.seen, parts.skipped, parts.steps)
    if len(whole):
        assert_same(whole, parts)
        assert_valid(whole.kept, x, s, choice, given)
        before = parts.start_pass() and parts.objective
        extend(parts, slice(None))
        assert parts.objective <= before + 1e-9 * (abs(before) + 1.0)


def assert_valid(kept, x, s, choice, given):
    """Kept draws are draws of the chain, and their measures are those of the independent functions."""
    precision = np.float32 if choice.get("storage") == "float32" else np.float64
    chain, index = kept.ids.T
    assert np.array_equal(kept.draws, x[chain, index].astype(precision)) and np.isfinite(kept.draws).all()
    assert len(np.unique(kept.ids, axis=0)) == len(kept) <= choice.get("size", math.inf)
    if s is not None:
        assert np.array_equal(kept.scores, s[chain, index].astype(precision))
        measured = ss.ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner)
        assert kept.ksd == (pytest.approx(measured, rel=1e-6) if precision is np.float32 else measured)
    assert math.isfinite(kept.mmd) == (choice.get("stream_weight") != 0.0)
    if "pinned" in given and np.isfinite(x).all():
        assert [0, 0] in kept.ids.tolist()


def use(kept, path):
    """Everything that does not need another package."""
    repr(kept), str(kept.summary()), kept.diagnose(), kept.quantile([0.0, 0.5]), kept.to_runs()
    assert np.isfinite(kept.mean()).all() and np.isfinite(kept.cov()).all()
    weighted, ordered = kept.weighted(), kept.ordered()
    assert weighted.weights.sum() == pytest.approx(1.0)
    merged = ss.merge([kept, kept], size=len(kept))
    assert len(merged) == len(kept) and set(map(tuple, ordered.ids.tolist())) == set(map(tuple, kept.ids.tolist()))
    for each in (kept, weighted, ordered):
        each.save(path)
        again = ss.Kept.load(path)
        assert np.array_equal(again.ids, each.ids) and repr(again) == repr(each)

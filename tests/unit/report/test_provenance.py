"""The code in the report reproduces the kept set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.baselines import selector
from steinstream.baselines.methods import problem_from_arrays, to_kept
from steinstream.report import provenance
from steinstream.report.sections import reproduce
from steinstream.validation import consecutive_ids

SETTINGS = (
    {"size": 60},
    {"growth": "linear", "budget": 0.01, "rule": "monotone"},
    {"budget": "decaying", "growth": "power:0.4"},
    {"passes": 2, "size": 30},
    {"passes": "auto", "size": 30},
    {"preconditioner": "streaming", "kernel": ss.RBF(h=2.0)},
    {"preconditioner": ss.Warmup("scales", 50), "size": 20},
    {"preconditioner": "scales", "kernel": ss.IMQ(linear=0.1)},
    {"preconditioner": "identity"},
    {"candidates": 3, "stream_weight": 1.0, "size": 20},
    {"storage": "float32", "size": 20, "history": None},
    dict(ss.PAPER),
)


def by_thinner(draws, scores, passes=1, second_scores=None, **settings):
    """Thin one chain by a thinner, in two blocks, with the given number of passes."""
    columns = {"scores": scores, "second_scores": second_scores, "ids": consecutive_ids(0, 0, len(draws))}
    thinner = ss.Thinner(2, **settings)
    for number in range(passes):
        if number:
            thinner.start_pass()
        for rows in (slice(0, 100), slice(100, None)):
            thinner.extend(draws[rows], **{name: a[rows] for name, a in columns.items() if a is not None})
    return thinner.kept


#: Kept sets that were not made by `ss.thin` with scores and settings alone, as functions of draws and scores.
OTHER_WAYS = {
    "without scores": lambda draws, scores: ss.thin(draws, size=25),
    "without scores, ordered": lambda draws, scores: ss.thin(draws, size=25).ordered(),
    "ordered": lambda draws, scores: ss.thin(draws, scores, size=25).ordered(),
    "weighted": lambda draws, scores: ss.thin(draws, scores, size=25).weighted(effective_share=0.8),
    "a chain with draws that are not finite": lambda draws, scores: ss.thin(draws, scores, 25, on_bad="skip"),
    "a thinner with second scores": lambda draws, scores: by_thinner(
        draws[0], scores[0], second_scores=2.0 * scores[0], size=20
    ),
    "a thinner": lambda draws, scores: by_thinner(draws[0], scores[0], size=20),
    "a thinner without scores": lambda draws, scores: by_thinner(draws[0], None, size=20),
    "a thinner with passes": lambda draws, scores: by_thinner(draws[0], scores[0], passes=2, size=20),
    "a thinner with the settings of the paper": lambda draws, scores: by_thinner(draws[0], scores[0], **ss.PAPER),
}


@pytest.fixture
def arrays(chain):
    with np.load(chain) as stored:
        return stored["draws"][:, :, :2], stored["scores"][:, :, :2]


def assert_reproduced(kept, path, **arrays):
    """Run the code of a kept set and of the same set read from a file."""
    kept.save(path)
    for one in (kept, ss.Kept.load(path)):
        exec(provenance.python_code(one, str(path)), here := dict(arrays))
        assert here["kept"].ids.tolist() == kept.ids.tolist()
        assert np.array_equal(here["kept"].ksd, kept.ksd, equal_nan=True)
        assert provenance.obstacle(one) is None


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_code_reproduces_the_set(arrays, folder, settings):
    draws, scores = arrays
    assert_reproduced(ss.thin(draws, scores, **settings), folder / "again.npz", draws=draws, scores=scores)


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_the_code_reproduces_a_set_made_in_another_way(arrays, folder, way):
    draws, scores = (array.copy() for array in arrays)
    if "not finite" in way:
        draws[0, 300] = np.nan
    kept = OTHER_WAYS[way](draws, scores)
    used = slice(0, 1) if "thinner" in way else slice(None)
    given = {"draws": draws[used]} | ({} if "without scores" in way else {"scores": scores[used]})
    assert_reproduced(kept, folder / "other.npz", **given)


OBSTACLES = {
    "costs of the draws are not recorded": lambda x, s: ss.thin(x, s, 20, cost_weight=1.0, costs=np.ones(len(x))),
    "pins of the draws are not recorded": lambda x, s: ss.thin(x, s, 20, pinned=np.arange(len(x)) == 7),
    "features of the draws are not recorded": lambda x, s: ss.thin(x, s, 20, features=x[:, :1]),
    "draws of the initial set are not recorded": lambda x, s: by_thinner(
        x, s, initial=(x[:5], s[:5]), preconditioner="identity"
    ),
    "the log densities of the draws are not recorded": lambda x, s: ss.thin(
        x, size=20, log_density=0.5 * np.sum(x * s, axis=1)
    ),
    "a setting is a function, or cannot be read": lambda x, s: ss.thin(x, s, growth=lambda step: 30.0),
    "the set was merged from others": lambda x, s: ss.merge([ss.thin(x, s, size=20), ss.thin(x, s, size=30)]),
    "these are not all kept draws": lambda x, s: ss.thin(x, s, 20).ordered().prefix(5),
    "scores were added to the kept draws afterwards": lambda x, s: with_scores(ss.thin(x, size=20), s),
    "another method selected the draws": lambda x, s: by_stride(x, s),
    "the settings are not recorded": lambda x, s: replace(ss.thin(x, s, 20), settings={}),
}


def with_scores(kept, scores):
    return kept.with_scores(scores[kept.indices])


def by_stride(draws, scores):
    problem = problem_from_arrays(draws, scores, 20)
    return to_kept(problem, "stride", selector("stride")(problem))


@pytest.mark.parametrize("reason", OBSTACLES)
def test_a_set_that_code_cannot_reproduce_says_why(arrays, folder, reason):
    draws, scores = (array[0] for array in arrays)
    kept = OBSTACLES[reason](draws, scores)
    kept.save(folder / "obstacle.npz")
    for one in (kept, ss.Kept.load(folder / "obstacle.npz")):
        assert provenance.obstacle(one) == reason and provenance.python_code(one) is None
    assert f"Python code is not shown: {reason}." in str(reproduce(kept, "kept.npz"))


def test_weights_and_order_are_part_of_the_code(chain):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"][:, 200:], arrays["scores"][:, 200:]
    kept = ss.thin(draws, scores, size=40)
    code = provenance.python_code(kept.weighted(like=draws))
    assert "kept.weighted(like=draws, effective_share=0.95)  # draws without burn-in" in code
    assert "kept.weighted(effective_share=0.8)" in provenance.python_code(kept.weighted(effective_share=0.8))
    assert provenance.python_code(kept.ordered()).endswith("\nkept = kept.ordered()")


def test_settings_that_cannot_be_read_have_no_code(arrays):
    kept = ss.thin(*arrays, size=40)
    kept.settings["config"] = {"size": "many", "kernel": 7}
    assert provenance.python_code(kept) is None


def test_commands_are_chained_by_their_outputs():
    x = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(x, -x, size=20)
    assert provenance.recorded_commands(kept) == []
    kept.settings["commands"] = ["steinstream thin chain.npz --size 20", "steinstream refine weighted.npz --order"]
    assert provenance.recorded_commands(kept, "a b.npz") == [
        "steinstream thin chain.npz --size 20 -o weighted.npz",
        "steinstream refine weighted.npz --order -o 'a b.npz'",
    ]

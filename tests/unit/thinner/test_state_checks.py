"""A forged checkpoint, with a valid checksum, ends in a CheckpointError before compiled code sees it."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream._engine.penalties import PENALTY_SCALARS
from steinstream.errors import CheckpointError
from steinstream.io import checkpoint

RANDOM = np.random.default_rng(0)
DRAWS = RANDOM.normal(size=(300, 3))


def thinner(scores=True, features=False, second=False, pinned=False, draws=DRAWS, **settings):
    made = ss.Thinner(3, **{"size": 20, **settings})
    made.extend(
        draws,
        -draws if scores else None,
        features=draws[:, :2] ** 2 if features else None,
        second_scores=-draws if second else None,
        pinned=np.arange(len(draws)) < 2 if pinned else None,
    )
    return made


SCALES = ss.Preconditioner.scales([1.0, 1.0, 1.0])
THINNERS = {
    "default": {},
    "paper": ss.PAPER,
    "empty": {"draws": DRAWS[:0]},
    "without scores": {"scores": False},
    "features": {"features": True, "preconditioner": SCALES},
    "features without scores": {"features": True, "scores": False},
    "pins without stream term": {**ss.PAPER, "pinned": True},
    "second scores": {"second": True, "preconditioner": SCALES},
    "warm-up": {"preconditioner": ss.Warmup("scales", draws=400)},
    "candidates": {"candidates": 7},
    "float32": {"storage": "float32", "preconditioner": SCALES},
    "long": {"draws": RANDOM.normal(size=(5000, 3))},
}


@pytest.mark.parametrize("name", THINNERS)
def test_every_state_that_a_thinner_writes_is_valid(name, tmp_path):
    made = thinner(**THINNERS[name])
    made.save(tmp_path / "run.npz")
    loaded = ss.Thinner.load(tmp_path / "run.npz")
    for one in (made, loaded):
        if name != "empty":
            one.extend(
                DRAWS,
                None if made.state.layout and not made.state.layout.has_scores else -DRAWS,
                features=DRAWS[:, :2] ** 2 if "features" in name else None,
                second_scores=-DRAWS if name == "second scores" else None,
            )
    assert len(loaded) == len(made) and loaded.state.steps == made.state.steps
    assert name == "empty" or np.array_equal(loaded.kept.ids, made.kept.ids)


# -- forged values -----------------------------------------------------------------------------------------------------


def set_value(content, path, value):
    """Replace a value, or delete it."""
    *parents, last = path.split(".")
    for name in parents:
        content = content[name]
    if value is DELETED:
        del content[last]
    else:
        content[last] = value(content[last]) if callable(value) else value


DELETED = object()


def at(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


def scaled(name, factor):
    """Multiply one of the penalty scalars, or set it to the factor if it is 0."""

    def change(scalars):
        place = PENALTY_SCALARS.names.index(name)
        return at(place, scalars[place] * factor or factor)(scalars)

    return change


FORGED = {
    "latest beyond the states": ("state.kept.latest", lambda _: np.array(20)),
    "latest far beyond": ("state.kept.latest", lambda _: np.array(10**12)),
    "latest below -1": ("state.kept.latest", lambda _: np.array(-2)),
    "latest that is not an array": ("state.kept.latest", 3),
    "short terms of the bound": ("state.bound", lambda bound: bound[:3]),
    "terms of the bound that are NaN": ("state.bound", lambda bound: bound * np.nan),
    "missing points": ("state.kept.draws", DELETED),
    "missing total": ("state.kept.total", DELETED),
    "missing stream": ("state.kept.stream", DELETED),
    "unknown array": ("state.kept.more", lambda _=None: np.zeros(3)),
    "missing kept": ("state.kept", None),
    "missing subsample": ("state.subsample", DELETED),
    "short points": ("state.kept.draws", lambda points: points[:5]),
    "narrow points": ("state.kept.draws", lambda points: np.ascontiguousarray(points[:, :4])),
    "float32 points": ("state.kept.draws", lambda points: points.astype(np.float32)),
    "big-endian points": ("state.kept.draws", lambda points: points.astype(">f8")),
    "points by columns": ("state.kept.draws", np.asfortranarray),
    "NaN points": ("state.kept.draws", at((0, 0), np.nan)),
    "infinite influence": ("state.kept.influence", at((0, 0), np.inf)),
    "no copies": ("state.kept.copies", at(0, 0)),
    "negative copies": ("state.kept.copies", at(0, -5)),
    "too many copies": ("state.kept.copies", at(0, 1000)),
    "copies that overflow": ("state.kept.copies", lambda copies: copies * 2**62),
    "influences of other draws": ("state.kept.influence", lambda influence: influence[::-1].copy()),
    "influences that are too large": ("state.kept.influence", lambda influence: influence * 1.01),
    "another total": ("state.kept.total", lambda total: total * [1.01, 1, 1]),
    "a large correction of the total": ("state.kept.total", at(1, 1e100)),
    "a negative largest diagonal": ("state.kept.total", at(2, -1.0)),
    "a stream sum that is too large": ("state.kept.stream_sum", at(3, 1e100)),
    "a negative stream sum": ("state.kept.stream_sum", at(3, -1.0)),
    "a stream of another length": ("state.kept.penalty_scalars", lambda scalars: scalars * 1.01),
    "a weight of the stream term that is too large": ("state.kept.penalty_scalars", scaled("gamma", 1e3)),
    "another sum over pairs of kept draws": ("state.kept.penalty_scalars", scaled("kept_total", 1.01)),
    "another sum over the stream": ("state.kept.penalty_scalars", scaled("stream_total", 1.01)),
    "a large correction of the sum over the stream": ("state.kept.penalty_scalars", scaled("stream_total_low", 1e100)),
    "negative penalty scalars": ("state.kept.penalty_scalars", lambda scalars: -scalars),
    "ids of another shape": ("state.kept.ids", lambda ids: ids[:, :2].copy()),
    "ids that are too large": ("state.kept.ids", at((0, 0), 2**62)),
    "short stream sums": ("state.kept.stream_sum", lambda sums: sums[:1]),
    "short penalty scalars": ("state.kept.penalty_scalars", lambda scalars: scalars[:5]),
    "levels out of range": ("state.kept.stream_levels", at(-1, 48)),
    "negative levels": ("state.kept.stream_levels", at(0, -1)),
    "a level above the highest": ("state.kept.stream_levels", at(-1, 1)),
    "highest level out of range": ("state.kept.stream_numbers", at(1, 60)),
    "a high level of few draws": ("state.kept.stream_numbers", at(1, 40)),
    "a stream of fewer draws than its summary": ("state.kept.stream_numbers", at(0, 3)),
    "a stream with a negative squared error": ("state.kept.stream_squared_error", lambda _: np.array(-1.0)),
    "a stream of negative length": ("state.kept.stream_numbers", at(0, -1)),
    "draws of the stream that are NaN": ("state.kept.stream", at((0, 0), np.nan)),
    "negative due of the estimator": ("state.estimator.window.due", -1),
    "due that has passed": ("state.estimator.window.due", 300),
    "due that is not whole": ("state.estimator.window.due", 400.5),
    "estimator without moments": ("state.estimator.window.moments", DELETED),
    "short moments": ("state.estimator.window.moments.mean", lambda mean: mean[:2]),
    "moments of another shape": ("state.estimator.window.moments.second", lambda second: second[:1]),
    "negative counts": ("state.estimator.window.moments.counts", at(0, -1)),
    "no estimator": ("state.estimator", None),
    "changes that are text": ("state.estimator.changes", ["a"]),
    "due of a chain": ("state.worth.chains.0.due", 0),
    "a length of 0": ("state.worth.chains.0.batches.numbers", at(0, 0)),
    "batches out of range": ("state.worth.chains.0.batches.numbers", at(1, 128)),
    "short sums of batches": ("state.worth.chains.0.batches.sums", lambda sums: sums[:5]),
    "burn-in beyond the chain": ("state.worth.chains.0.burn_in", 10**9),
    "a chain without a number": ("state.worth.chains.x", lambda _=None: {}),
    "no worth": ("state.worth", None),
    "zero dimensions": ("state.dim", 0),
    "other dimensions": ("state.dim", 4),
    "very many dimensions": ("state.dim", 10**18),
    "dimensions that are true": ("state.dim", True),
    "negative steps": ("state.counters.steps", -1),
    "steps that are text": ("state.counters.steps", "many"),
    "more skipped than seen": ("state.counters.skipped", 301),
    "fewer seen than kept": ("state.counters.seen", 3),
    "pending draws of another shape": ("state.pending.draws", lambda _: np.zeros((5, 2))),
    "pending draws without scores": ("state.pending.draws", lambda _: np.zeros((5, 3))),
    "subsample of unequal lengths": ("state.subsample.ids", lambda ids: ids[:5]),
    "subsample with equal indices": ("state.subsample.indices", lambda indices: indices * 0),
    "subsample with a negative index": ("state.subsample.indices", at(0, -1)),
    "stride of 0": ("state.subsample.stride", 0),
    "history of unequal lengths": ("state.history.ksd", lambda ksd: ksd[:3]),
    "history of text": ("state.history.size", lambda size: size.astype("U3")),
    "pass of 0": ("state.current_pass.number", 0),
    "pass with an unknown value": ("state.current_pass.speed", lambda _=None: 3),
    "pass that holds nothing": ("state.current_pass.held", 0),
    "identity of another length": ("state.stein_identity.mean_draw", lambda mean: mean[:1]),
    "singular preconditioner": ("state.preconditioner.factor", lambda factor: factor * 0),
    "another preconditioner": ("state.preconditioner.factor", at((2, 0), 0.0)),
    "another centre": ("state.preconditioner.centre", lambda _: np.full(3, 1e-6)),
    "draws that are not those of the kernel": ("state.kept.raw", at((3, 1), 0.25)),
    "preconditioner of other dimensions": ("state.preconditioner.factor", lambda _: np.eye(4)),
    "layout of other dimensions": ("state.layout.dim", 2),
    "layout without scores": ("state.layout.has_scores", False),
    "layout with second scores": ("state.layout.has_second_scores", True),
    "unknown stream_on": ("state.layout.stream_on", "sums"),
    "layout with density ratios": ("state.layout.has_ratios", True),
    "no layout": ("state.layout", None),
    "a note that is a list": ("state.note", [1]),
    "unknown kernel": ("config.kernel.name", "Matern"),
    "kernel with an unknown setting": ("config.kernel.power", lambda _=None: 2.0),
    "kernel out of range": ("config.kernel.c", -1.0),
    "unknown setting": ("config.speed", lambda _=None: 3),
    "missing growth": ("config.growth", DELETED),
    "negative size": ("config.size", -3),
    "size that is text": ("config.size", "twenty"),
    "unknown preconditioner": ("config.preconditioner", {"type": "Magic"}),
    "stream weight that is text": ("config.stream_weight", "much"),
    "stream weight that is 0": ("config.stream_weight", 0.0),
    "validate_scores that is a number": ("config.validate_scores", 3),
    "very many passes": ("config.passes", 10**30),
    "an infinite bound of a pass": ("state.current_pass.bound", float("inf")),
    "a bound that is too large": ("state.current_pass.bound", 1e200),
    "a negative root": ("state.current_pass.initial_root", -1.0),
    "a past KSD that is true": ("state.current_pass.past_ksd", [True]),
    "a negative past KSD": ("state.current_pass.past_ksd", [-1.0]),
    "more effective draws than draws": ("state.worth.effective_draws", 301.0),
    "an infinite moment": ("state.stein_identity.moment", float("inf")),
    "another storage": ("config.storage", "float32"),
    "no state": ("state", DELETED),
    "no configuration": ("config", DELETED),
    "a configuration that is a list": ("config", [1, 2]),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run.npz"
    thinner().save(path)
    return path


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_checkpoint_is_refused(case, saved, tmp_path):
    path, value = FORGED[case]
    content = checkpoint.read(saved)
    if case in ("unknown array", "a chain without a number", "pass with an unknown value", "unknown setting") or (
        case == "kernel with an unknown setting"
    ):
        set_value(content, path, value())
    else:
        set_value(content, path, value)
    checkpoint.write(tmp_path / "forged.npz", content)  # with its checksum
    with pytest.raises(CheckpointError) as caught:
        ss.Thinner.load(tmp_path / "forged.npz")
    assert "forged.npz" in caught.value.problem and caught.value.remedy


FORGED_FLOAT32 = {
    "a matrix of another shape": ("state.kept.matrix", lambda matrix: matrix[:, :3].copy()),
    "another matrix": ("state.kept.matrix", lambda matrix: matrix * 1.01),
    "missing rows": ("state.kept.draws", DELETED),
    "sketches of another length": ("state.kept.stream_term.sketches", lambda sketches: sketches[:3]),
    "levels out of range": ("state.kept.stream_term.stream_levels", at(-1, 48)),
    "a projection of another shape": ("state.layout.features.projection", lambda _: np.eye(2)),
    "features of length 0": ("state.layout.features.width", 0),
    "features whose map needs gigabytes": ("state.layout.features.width", 1 << 27),
}


@pytest.mark.parametrize("case", FORGED_FLOAT32)
def test_a_forged_checkpoint_in_float32_is_refused(case, tmp_path):
    thinner(**THINNERS["float32"]).save(tmp_path / "run.npz")
    content = checkpoint.read(tmp_path / "run.npz")
    set_value(content, *FORGED_FLOAT32[case])
    checkpoint.write(tmp_path / "forged.npz", content)
    with pytest.raises(CheckpointError):
        ss.Thinner.load(tmp_path / "forged.npz")


def test_a_level_with_more_draws_than_it_has_space_for_is_refused(tmp_path):
    thinner(draws=RANDOM.normal(size=(5000, 3))).save(tmp_path / "run.npz")
    content = checkpoint.read(tmp_path / "run.npz")
    kept = content["state"]["kept"]
    levels = kept["stream_levels"]
    assert levels.max() > 0
    rows = np.concatenate([np.zeros(1500, np.int64), np.arange(len(levels))])  # draws of level 0, repeated
    kept |= {name: kept[name][rows] for name in ("stream", "stream_levels", "stream_ids")}
    kept["stream_numbers"] = np.array([10**6, kept["stream_numbers"][1]])
    checkpoint.write(tmp_path / "forged.npz", content)
    with pytest.raises(CheckpointError, match="too many draws"):
        ss.Thinner.load(tmp_path / "forged.npz")


def test_a_compressed_checkpoint_is_refused_before_it_is_expanded(saved, tmp_path):
    with np.load(saved) as file:
        np.savez_compressed(tmp_path / "run.npz", **file)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        ss.Thinner.load(tmp_path / "run.npz")

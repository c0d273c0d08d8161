"""A slow chain is corrected by its scores; other chains, and those that the correction would harm, are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ArraySource, MarkedBlock, RunHooks, Stopped, thin_source
from steinstream.thinner import Thinner, corrected_stream
from steinstream.thinner.chain_worth import stream_factor
from steinstream.thinner.corrected_stream import DRAWS
from steinstream.validation import Block, consecutive_ids

IDENTITY = ss.Preconditioner.identity()


def slow_chain(count=8000, dim=3, seed=0, rho=0.999):
    rng = np.random.default_rng(seed)
    x = np.empty((count, dim))
    x[0] = rng.normal(size=dim)
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=dim)
    return x


def block_of(x, scores=None):
    return Block(x, -x if scores is None else scores, consecutive_ids(0, 0, len(x)))


def correct(block, preconditioner=IDENTITY, **settings):
    return corrected_stream.corrected_stream(ss.ThinConfig(**settings), preconditioner, block)


@pytest.mark.parametrize("kernel", [ss.IMQ(), ss.IMQ(linear=0.5), ss.RBF(h=2.0)])
def test_the_corrected_stream_is_stein_thinning_with_repetition(kernel):
    block = block_of(slow_chain(400, 2))
    found = correct(block, kernel=kernel)
    z = found.sample.draws - found.sample.draws.mean(axis=0)
    used = kernel if kernel.linear else type(kernel)(**{**vars(kernel), "linear": 1.0})
    matrix = used.matrix(z, found.sample.scores, z, found.sample.scores)
    counts, sums = np.zeros(len(z)), 0.5 * np.diag(matrix).copy()
    for _ in range(DRAWS):
        best = int(np.argmin(sums))
        counts[best] += 1
        sums += matrix[best]
    assert found.counts.sum() == DRAWS and found.counts.max() > 1
    assert np.array_equal(found.counts, counts)
    assert np.array_equal(found.draws.ids[:, 1], np.repeat(found.sample.ids[:, 1], counts.astype(int)))


def test_a_chain_that_mixes_or_has_no_scores_is_not_corrected():
    mixing, slow = np.random.default_rng(0).normal(size=(2000, 3)), slow_chain(2000)
    assert correct(block_of(mixing)) is None
    assert correct(block_of(slow, np.zeros((2000, 0)))) is None
    assert correct(block_of(slow)) is not None
    for settings in (
        {"start": "stream"},
        {"stream_weight": 0.0},
        {"growth": "sqrt"},
        {"size": 501},
        {"storage": "float32"},
    ):
        chain = slow_chain(4000)
        kept = ss.thin(chain, -chain, **{"size": 50, **settings})
        assert "corrected_stream" not in kept.settings
    assert "corrected_stream" not in ss.thin(mixing, -mixing, size=50).settings


def test_a_correction_that_avoids_large_scores_is_not_used(monkeypatch):
    """A funnel: the scores in its neck are large."""
    noise = slow_chain(4000, 10, seed=3, rho=0.99)
    v = 1.5 * noise[:, :1]
    x = np.exp(v / 2) * noise[:, 1:]
    scores = np.hstack([-v / 1.5**2 - 4.5 + 0.5 * (x**2).sum(1, keepdims=True) * np.exp(-v), -x * np.exp(-v)])
    block = block_of(np.hstack([v, x]), scores)
    whitened = ss.Preconditioner.estimate("covariance", block.draws)
    assert correct(block, whitened) is None
    monkeypatch.setattr(corrected_stream, "_LEAST_SHARE", 0.0)
    corrected = correct(block, whitened).draws.draws
    assert np.quantile(corrected[:, 0], 0.05) > np.quantile(v, 0.05) + 0.5


@pytest.mark.parametrize("settings", [{}, {"passes": 2}, {"candidates": 4}])
def test_the_kept_draws_of_a_slow_chain_are_better(settings):
    errors = []
    for seed in range(3):
        x = slow_chain(seed=seed)
        kept = [ss.thin(x, -x, size=100, **settings), ss.thin(x, -x, size=100, start="stream", **settings)]
        assert kept[0].settings["corrected_stream"] and len(np.unique(kept[0].ids, axis=0)) == 100
        assert "corrected_stream" not in kept[1].settings
        errors.append([np.abs(each.draws.std(axis=0) - 1).mean() for each in kept])
    ours, before = np.mean(errors, axis=0)
    assert ours < 0.8 * before


def test_the_objective_is_that_of_the_corrected_stream_with_its_full_weight():
    x = slow_chain()
    thinner = thin_source(ArraySource.of(x, -x), ss.ThinConfig(size=40))
    kept, summary = thinner.kept, thinner.kept.stream_summary
    assert 0.95 * DRAWS <= len(summary.draws) <= DRAWS  # without draws that were found to be burn-in later
    assert summary.weights.sum() == len(summary.draws)
    z, s = kept.preconditioner.apply(kept.draws, kept.scores)
    y = kept.preconditioner.apply_to_draws(summary.draws)
    phi = ss.IMQ().base_matrix
    mmd2 = phi(z, z).mean() - 2 * phi(z, y).mean() + phi(y, y).mean()
    assert kept.mmd == pytest.approx(np.sqrt(mmd2), rel=1e-6)
    assert thinner.state.require_dictionary().stream_weight == stream_factor(1.0, 3) == 1.0
    assert kept.settings["trust"] < 0.1
    assert "independent draws, so its distribution was corrected by the scores" in kept.chain_worth
    assert kept.ksd == pytest.approx(np.sqrt(ss.IMQ().matrix(z, s, z, s).mean()), rel=1e-9)


def test_the_first_pass_does_not_increase_the_objective():
    x = slow_chain()
    thinner = thin_source(ArraySource.of(x, -x), ss.ThinConfig(size=40))
    assert thinner.objective <= thinner.current_pass.initial_root**2 * (1 + 1e-9)


class _Pieces(RunHooks):
    """Saves and loads the thinner after every block."""

    def __init__(self):
        self.thinner = None

    def on_thinner(self, thinner):
        self.thinner = thinner

    def stop(self):
        return self.thinner is not None and self.thinner.seen > 0


def test_blocks_and_checkpoints_do_not_change_a_bit(tmp_path):
    x = slow_chain()
    config = ss.ThinConfig(size=40, passes=2)
    whole = thin_source(ArraySource.of(x, -x), config).kept
    source = ArraySource([MarkedBlock(block_of(x))])
    pieces = [MarkedBlock(block_of(x).take(slice(start, start + 1300))) for start in range(0, len(x), 1300)]

    class Blocks(ArraySource):
        def blocks(self, skip=0, *, interleaved=False):
            for piece in pieces:
                rows = piece.take(slice(skip, None))
                skip = max(skip - len(piece.block.draws), 0)
                if len(rows.block.draws):
                    yield rows

    thinner, stops = None, 0
    while True:
        try:
            thinner = thin_source(Blocks(source.chains), config, thinner=thinner, hooks=_Pieces())
            break
        except Stopped as stopped:
            stopped.thinner.save(tmp_path / "checkpoint.npz")
            thinner, stops = Thinner.load(tmp_path / "checkpoint.npz"), stops + 1
    kept = thinner.kept
    assert stops > 10 and kept.settings["corrected_stream"]
    assert np.array_equal(kept.ids, whole.ids) and (kept.ksd, kept.mmd) == (whole.ksd, whole.mmd)


def test_a_corrected_set_says_why_it_differs_from_the_chain():
    chain = slow_chain(8000, rho=0.995)
    kept = ss.thin(chain, -chain, size=100)
    assert np.abs(kept.draws.mean(axis=0)).max() < 0.05 < np.abs(chain.mean(axis=0)).max()
    assert kept.stream_error is None  # a corrected chain is no summary of the whole chain
    found = kept.diagnose()
    assert any("corrected by its scores" in note for note in found.notes)
    assert [finding.name for finding in found.findings if finding.fired] == ["slow"]


@pytest.mark.parametrize(
    "settings", [{}, {"candidates": 3}, {"preconditioner": "scales"}, {"preconditioner": ss.Warmup()}]
)
def test_a_thinner_corrects_a_slow_chain_from_its_subsample(settings):
    errors = []
    for seed in range(3):
        x = slow_chain(seed=seed)
        thinner = Thinner(3, size=100, **settings)
        thinner.extend(x, -x, chain=7)
        before = thinner.kept
        corrected = thinner.corrected()
        assert np.array_equal(corrected.draws, x[corrected.ids[:, 1]]) and set(corrected.ids[:, 0]) == {7}
        assert corrected.ksd == pytest.approx(
            ss.ksd(corrected.draws, corrected.scores, preconditioner=corrected.preconditioner), rel=1e-9
        )
        assert corrected.settings["corrected_stream"] and corrected.settings["seen"] == len(x)
        assert corrected.settings["burn_in"] == before.settings["burn_in"]  # of the chain, not of the subsample
        assert np.array_equal(thinner.kept.ids, before.ids) and "corrected_stream" not in thinner.kept.settings
        errors.append([np.abs(each.draws.std(axis=0) - 1).mean() for each in (corrected, before)])
    ours, online = np.mean(errors, axis=0)
    assert ours < 0.8 * online


def test_a_thinner_returns_its_kept_draws_where_thin_corrects_nothing():
    slow, mixing = slow_chain(4000), np.random.default_rng(0).normal(size=(2000, 3))
    for x, settings in (
        (mixing, {}),
        (slow, {"start": "stream"}),
        (slow, {"stream_weight": 0.0}),
        (slow, {"preconditioner": "identity"}),
        (slow, {"preconditioner": IDENTITY}),
        (slow, {"growth": "sqrt"}),
        (slow, {"storage": "float32", "preconditioner": "scales"}),
        (slow, {"features": lambda draw: draw**2}),
        (slow, {"initial": (slow[:5], -slow[:5])}),
    ):
        thinner = Thinner(3, **{"size": 50, **settings})
        thinner.extend(x, -x)
        assert np.array_equal(thinner.corrected().ids, thinner.kept.ids)
    pinned = Thinner(3, size=50)
    pinned.extend(slow, -slow, pinned=np.arange(4000) == 17)
    assert np.array_equal(pinned.corrected().ids, pinned.kept.ids)
    unscored = Thinner(3, size=50)
    unscored.extend(slow)
    assert np.array_equal(unscored.corrected().ids, unscored.kept.ids)

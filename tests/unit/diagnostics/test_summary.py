"""The summary shows kept draws and stream next to each other, rounded so that differences are visible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from tests.chains import autoregression


def kept_set(scale=1.0, centre=0.0, size=60):
    """Return a kept set of a correlated chain, with names."""
    x = autoregression(3000, 2, 0.5, 0)
    return ss.thin(centre + scale * x, -x / scale, size=size, names=["mu", "log_tau"])


def test_the_numbers_are_those_of_kept_draws_and_stream():
    kept = kept_set()
    table = kept.summary()
    assert np.allclose(table.mean, kept.draws.mean(axis=0)) and np.allclose(table.sd, kept.draws.std(axis=0))
    assert np.allclose(table.stream.mean, kept.stream.draws.mean(axis=0))
    assert np.allclose(table.stream.quantiles[0.95], np.quantile(kept.stream.draws, 0.95, axis=0), atol=0.01)
    for name in ("mean", "sd", "5%", "50%", "95%"):
        away = (table.statistics[name] - table.stream.statistics[name]) / table.stream.sd
        assert np.allclose(table.difference[name], away)
    error = np.sqrt(1 / 1000 + 1 / 60)  # the stream is worth a third of its draws
    assert table.standard_error == pytest.approx(error, rel=0.05)


def test_a_set_from_a_file_is_compared_with_the_summary_of_its_stream(tmp_path):
    kept = kept_set()
    kept.save(tmp_path / "kept.npz")
    table, before = ss.Kept.load(tmp_path / "kept.npz").summary(), kept.summary()
    assert np.array_equal(table.mean, before.mean) and table.stream.count == 3000
    assert np.allclose(table.stream.mean, before.stream.mean, atol=0.02)
    assert np.allclose(table.stream.sd, before.stream.sd, rtol=0.02)
    assert np.allclose(table.difference["95%"], before.difference["95%"], atol=0.05)
    assert table.standard_error == pytest.approx(1 / np.sqrt(60)) and "3000 draws of the stream" in str(table)


def test_rows_and_dictionary_have_the_same_numbers():
    table = kept_set().summary(quantiles=(0.1, 0.9))
    assert table.columns == ("parameter", "set", "mean", "sd", "10%", "90%")
    rows = table.rows()
    assert [row[:2] for row in rows[3:]] == [("log_tau", name) for name in ("kept", "stream", "difference")]
    assert rows[4][2:] == tuple(table.to_dict()["log_tau"]["stream"].values())
    assert table.to_dict()["mu"]["standard error"]["mean"] == table.standard_error[0]


@pytest.mark.parametrize(("scale", "centre"), [(1.0, 0.0), (1e-6, 1.1), (1e-20, 0.0), (1e8, 5.0), (3.0, 1e15)])
def test_differences_of_a_fiftieth_of_the_sd_are_visible(scale, centre):
    kept = kept_set(scale, centre)
    moved = replace(kept, draws=kept.stream.draws[:: len(kept.stream.draws) // 60][:60])
    moved = replace(moved, draws=moved.draws + 0.02 * scale, ids=kept.ids[: len(moved.draws)])
    for line, other in zip(*(str(one.summary()).splitlines() for one in (kept, moved)), strict=True):
        if line.split()[0] in ("mu", "log_tau"):
            assert line != other
    cells = str(kept.summary()).splitlines()[1].split()[2:7]
    own = kept.summary()
    for cell, value in zip(cells, (own.mean[0], own.sd[0], *(q[0] for q in own.quantiles.values())), strict=True):
        assert abs(float(cell) - value) <= max(own.stream.sd[0] / 200, abs(value) * 1e-15)


def test_the_table_is_aligned():
    lines = str(kept_set().summary()).splitlines()
    assert lines[0].split() == ["mean", "sd", "5%", "50%", "95%", "se", "of", "mean"]
    assert [line.split()[0] for line in lines[1:7]] == ["mu", "stream", "difference", "log_tau", "stream", "difference"]
    ends = {len(line) for line in (lines[0], lines[3], lines[6])}
    assert len(ends) == 1 and lines[7].startswith("60 kept draws, 3000 draws of the stream")


def test_a_set_without_its_stream_shows_the_kept_draws_only():
    kept = replace(kept_set(), stream=None, stream_summary=None)
    table = kept.summary()
    assert table.stream is None and table.difference == {} and table.standard_error is None
    assert [line.split()[0] for line in str(table).splitlines()] == ["mean", "mu", "log_tau"]
    assert list(table.to_dict()["mu"]) == ["kept"]


@pytest.mark.parametrize("scored", [True, False])
def test_a_chain_of_one_or_two_draws_has_a_summary(scored):
    x = np.array([[1.0, 2.0], [4.0, 8.0]])
    for count in (1, 2):
        table = ss.thin(x[:count], -x[:count] if scored else None, size=2).summary()
        assert table.stream.count == count and np.allclose(table.stream.mean, x[:count].mean(axis=0))


def test_weights_count():
    kept = kept_set()
    weights = np.where(np.arange(60) < 20, 3.0, 1.0)
    table = replace(kept, weights=weights / weights.sum()).summary()
    repeated = np.repeat(kept.draws, weights.astype(int), axis=0)
    assert np.allclose(table.mean, repeated.mean(axis=0)) and np.allclose(table.sd, repeated.std(axis=0))


def test_burn_in_of_the_stream_is_left_out():
    x = autoregression(3000, 2, 0.5, 0)
    x[:200] += np.linspace(80, 8, 200)[:, None]
    table = ss.thin(x, -x, size=60).summary()
    assert table.stream.count < 2850 and np.abs(table.difference["mean"]).max() < 0.3


def test_quantiles_of_integers_are_values_that_occur():
    x = np.random.default_rng(0).poisson(4.0, size=(3000, 2)).astype(float)
    x[:, 1] = x[:, 1] > 3
    table = ss.thin(x, size=50).summary()
    for part in (table, table.stream):
        assert all(np.array_equal(values, np.round(values)) for values in part.quantiles.values())
    assert np.abs(table.difference["50%"]).max() == 0.0


def test_the_summary_and_the_sentence_about_the_chain_leave_out_the_same_burn_in():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    x[:500] += np.linspace(30, 0, 500)[:, None]
    kept = ss.thin(x, -x, size=100)
    end = kept.burn_in_ends[0]
    assert 400 < end < 600 and f"its first {end} draws are burn-in" in kept.chain_worth
    table = kept.summary()
    assert table.stream.count == (kept.stream.ids[:, 1] >= end).sum() and np.abs(table.stream.sd - 1).max() < 0.05
    assert kept.diagnose().effective > 2000


def test_constant_parameters_and_streams_without_scores_are_shown():
    kept = kept_set()
    draws, stream = kept.draws.copy(), kept.stream._replace(draws=kept.stream.draws.copy())
    draws[:, 1] = stream.draws[:, 1] = 7.0
    bare = stream._replace(scores=np.zeros((len(stream.draws), 0)))
    table = replace(kept, draws=draws, stream=bare).summary()
    assert table.difference["mean"][1] == 0.0 and "7" in str(table).splitlines()[4]
    moved = replace(kept, draws=draws + 1.0, stream=bare).summary()
    assert np.isnan(moved.difference["mean"][1]) and str(moved).splitlines()[6].split()[1] == "-"


def test_wrong_probabilities_and_empty_sets_are_errors():
    with pytest.raises(InputError, match="between 0 and 1"):
        kept_set().summary(quantiles=(5, 95))
    with pytest.raises(InputError, match="empty"):
        ss.Thinner(2).kept.summary()

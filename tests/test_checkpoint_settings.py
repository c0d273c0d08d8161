"""Whatever settings a run was made with, its checkpoint can be written and read, and says when it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream import schedules
from steinstream.errors import CheckpointError, InputError

X = np.random.default_rng(0).normal(size=(200, 2))


def twenty(step):
    return 20.0


def saved(path, **settings):
    thinner = ss.Thinner(2, **settings)
    thinner.extend(X, -X)
    thinner.save(path)
    return thinner


@pytest.mark.parametrize(
    "settings",
    [
        {"preconditioner": ss.Warmup("scales", draws=np.int64(1000))},
        {"preconditioner": ss.Streaming(first=np.int64(50), forget=np.int32(80), centred=np.bool_(True))},
        {"validate_scores": np.bool_(True)},
        {"history": np.int64(7)},
        {"size": np.int64(30), "candidates": np.int64(2)},
        {"budget": schedules.Constant(np.float64(0.1))},
        {"budget": schedules.Share(np.float32(0.5))},
        {"budget": schedules.Constant(1)},
        {"growth": schedules.Power(np.float64(0.5))},
        {"growth": schedules.Constant(np.int64(12)), "budget": "decaying"},
    ],
    ids=str,
)
def test_numbers_of_numpy_are_as_good_as_pythons(tmp_path, settings):
    path = tmp_path / "run.npz"
    thinner = saved(path, **settings)
    loaded = ss.Thinner.load(path)
    assert loaded.ksd == thinner.ksd and loaded.settings == thinner.settings
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_a_decaying_budget_goes_with_a_growth_of_ones_own(tmp_path):
    path = tmp_path / "run.npz"
    thinner = saved(path, growth=twenty, budget="decaying")
    loaded = ss.Thinner.load(path, growth=twenty)
    assert loaded.ksd == thinner.ksd and loaded.budget == schedules.Decaying(twenty)
    with pytest.raises(CheckpointError, match=r"growth function of your own.*growth=\.\.\."):
        ss.Thinner.load(path)


def test_a_decaying_budget_of_another_growth_must_be_given_again(tmp_path):
    path, own = tmp_path / "run.npz", schedules.Decaying(schedules.Linear())
    saved(path, growth="sqrt", budget=own)
    with pytest.raises(CheckpointError, match="budget function of your own"):
        ss.Thinner.load(path)
    assert ss.Thinner.load(path, budget=own).budget == own


def test_a_schedule_that_contradicts_the_file_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    saved(path, growth="sqrt", budget="decaying")
    with pytest.raises(CheckpointError, match="made with growth sqrt, and twenty is given"):
        ss.Thinner.load(path, growth=twenty)
    with pytest.raises(CheckpointError, match=r"made with budget decaying, and constant:0\.5 is given"):
        ss.Thinner.load(path, budget=schedules.Constant(0.5))
    same = {"growth": schedules.SquareRoot(), "budget": schedules.Decaying(schedules.SquareRoot())}
    assert str(ss.Thinner.load(path, **same).growth) == "sqrt"


@pytest.mark.parametrize("history", [True, 0, -1, 2.5, "some"])
def test_a_history_that_is_none_is_refused(history):
    with pytest.raises(InputError, match="history must be"):
        ss.Thinner(2, history=history)


@pytest.mark.parametrize("schedule", [schedules.Constant, schedules.Power, schedules.Share])
@pytest.mark.parametrize("value", ["much", None, -1.0, np.nan])
def test_a_schedule_needs_a_number(schedule, value):
    with pytest.raises(InputError, match=r"number|negative|between"):
        schedule(value)


def test_sizes_of_numpy_are_taken_for_merging():
    parts = [ss.thin(X, -X, size=20) for _ in range(4)]
    one, other = ss.merge(parts, size=10, fan_in=2), ss.merge(parts, size=np.int64(10), fan_in=np.int64(2))
    assert np.array_equal(one.ids, other.ids)
    for wrong in ({"size": True}, {"size": 2.5}, {"size": "3"}, {"fan_in": True}, {"fan_in": 2.5}):
        with pytest.raises(InputError, match="whole number"):
            ss.merge(parts, **wrong)

"""A checkpoint can be written and read with any settings; functions must be given again."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream import schedules
from steinstream.errors import CheckpointError, InputError, OutputError

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
def test_numpy_numbers_are_stored_as_python_numbers(tmp_path, settings):
    path = tmp_path / "run.npz"
    thinner = saved(path, **settings)
    loaded = ss.Thinner.load(path)
    assert loaded.ksd == thinner.ksd and loaded.settings == thinner.settings
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_a_decaying_budget_can_depend_on_a_function(tmp_path):
    path = tmp_path / "run.npz"
    thinner = saved(path, growth=twenty, budget="decaying")
    loaded = ss.Thinner.load(path, growth=twenty)
    assert loaded.ksd == thinner.ksd and loaded.config.budget_schedule == schedules.Decaying(twenty)
    with pytest.raises(CheckpointError, match=r"growth that is a function.*growth=\.\.\."):
        ss.Thinner.load(path)


def test_a_decaying_budget_of_another_growth_must_be_given_again(tmp_path):
    path, own = tmp_path / "run.npz", schedules.Decaying(schedules.Linear())
    saved(path, growth="sqrt", budget=own)
    with pytest.raises(CheckpointError, match="budget that is a function"):
        ss.Thinner.load(path)
    assert ss.Thinner.load(path, budget=own).config.budget_schedule == own


def test_a_schedule_that_contradicts_the_file_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    saved(path, growth="sqrt", budget="decaying")
    with pytest.raises(CheckpointError, match="written with growth sqrt, but twenty was given"):
        ss.Thinner.load(path, growth=twenty)
    with pytest.raises(CheckpointError, match=r"written with budget decaying, but constant:0\.5 was given"):
        ss.Thinner.load(path, budget=schedules.Constant(0.5))
    same = {"growth": schedules.SquareRoot(), "budget": schedules.Decaying(schedules.SquareRoot())}
    assert str(ss.Thinner.load(path, **same).config.growth) == "sqrt"


def test_any_setting_that_is_given_must_be_that_of_the_file(tmp_path):
    path = tmp_path / "run.npz"
    thinner = saved(path, size=20)
    assert ss.Thinner.load(path, size=20).ksd == thinner.ksd
    with pytest.raises(CheckpointError, match="written with size 20, but 30 was given"):
        ss.Thinner.load(path, size=30)
    with pytest.raises(InputError, match=r"Unknown setting 'bugdet'. Did you mean budget\?"):
        ss.Thinner.load(path, bugdet=0.1)


def test_full_disk_while_saving_a_checkpoint(tmp_path, monkeypatch):
    thinner = ss.Thinner(2)
    thinner.push([1.0, 2.0], [-1.0, -2.0])

    def no_space(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", no_space)
    with pytest.raises(OutputError, match=r"no space left.*Free some space"):
        thinner.save(tmp_path / "run.npz")

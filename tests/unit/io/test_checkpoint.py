"""Checkpoints: configuration plus state, complete or absent, and damage is reported."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import CheckpointError, InputError
from steinstream.io import checkpoint

SETTINGS = [
    {},
    {"size": 20, "rule": "monotone", "budget": "decaying", "kernel": "rbf:h=2"},
    {"size": 20, "preconditioner": ss.Streaming(first=50)},
    {"preconditioner": ss.Warmup("scales", draws=400)},
    {"size": 20, "stream_weight": 1.0, "candidates": 3, "history": 7},
    {"size": 20, "storage": "float32", "on_bad": "skip"},
]


def normal(count: int, dim: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, dim))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_checkpoint_is_configuration_and_state(settings, tmp_path):
    x = normal(600)
    thinner = ss.Thinner(3, **settings)
    thinner.extend(x[:350], -x[:350])
    thinner.note = {"file": "chain.npz", "lines": [1, 2]}
    thinner.save(tmp_path / "run.npz")
    loaded = ss.Thinner.load(tmp_path / "run.npz")
    assert loaded.config == thinner.config and loaded.note == thinner.note and len(loaded) == len(thinner)
    for one in (thinner, loaded):
        one.extend(x[350:], -x[350:])
    assert np.array_equal(loaded.kept.ids, thinner.kept.ids) and loaded.ksd == thinner.ksd
    assert loaded.settings == thinner.settings


def test_equal_thinners_write_equal_bytes(tmp_path):
    x = normal(200)
    for name, block in (("a", 200), ("b", 17)):
        thinner = ss.Thinner(3, size=20, validate_scores=False)
        for first in range(0, 200, block):
            thinner.extend(x[first : first + block], -x[first : first + block])
        thinner.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_cut_of_the_file_is_reported(tmp_path):
    thinner = ss.Thinner(2)
    thinner.extend(normal(50, 2), -normal(50, 2))
    thinner.save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="not a readable checkpoint"):
            ss.Thinner.load(tmp_path / "cut.npz")


def test_a_changed_value_is_found_by_the_checksum(tmp_path):
    thinner = ss.Thinner(2)
    thinner.extend(normal(50, 2), -normal(50, 2))
    thinner.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["state.kept.draws"][0, 0] += 1.0
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(CheckpointError, match="checksum does not match"):
        ss.Thinner.load(tmp_path / "run.npz")


def test_other_files_and_formats_are_rejected(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="No checkpoint exists at"):
        ss.Thinner.load(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", draws=np.zeros(3))
    with pytest.raises(CheckpointError, match="not a steinstream checkpoint"):
        ss.Thinner.load(tmp_path / "other.npz")
    monkeypatch.setattr(checkpoint, "FORMAT", 99)
    ss.Thinner(2).save(tmp_path / "later.npz")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="checkpoint format 99"):
        ss.Thinner.load(tmp_path / "later.npz")


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path):
    thinner = ss.Thinner(2)
    thinner.save(tmp_path / "run.npz")
    before = (tmp_path / "run.npz").read_bytes()
    thinner.note = {"array": np.zeros(2), "object": object()}
    with pytest.raises(InputError, match="must fit into JSON"):
        thinner.save(tmp_path / "run.npz")
    assert (tmp_path / "run.npz").read_bytes() == before


@pytest.mark.parametrize("name", ["head", "checksum"])
def test_numbers_that_are_no_characters_are_damage(name, tmp_path):
    thinner = ss.Thinner(3, size=5)
    thinner.extend(normal(20), -normal(20))
    thinner.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as file:
        arrays = dict(file)
    length = arrays[name].nbytes // 4
    arrays[name] = np.full(length, 0x110000, dtype=np.uint32).view(arrays[name].dtype).reshape(())
    if name == "head":
        del arrays["checksum"]
        arrays["checksum"] = np.array(checkpoint._checksum(arrays))
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(CheckpointError, match=r"not a valid checkpoint|is damaged"):
        checkpoint.read(tmp_path / "run.npz")

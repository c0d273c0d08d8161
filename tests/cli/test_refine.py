"""``steinstream refine``, and the same options of ``thin``, give the results of the library."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.result import Kept


def test_refine_equals_the_library(steinstream, chain, tmp_path):
    assert steinstream("thin", chain, "-o", "kept.npz", "--size", 30).returncode == 0
    ran = steinstream("refine", "kept.npz", "-o", "new.npz", "--weights", "--order")
    assert ran.returncode == 0, ran.stderr
    expected = Kept.load(tmp_path / "kept.npz").weighted().ordered()
    found = Kept.load(tmp_path / "new.npz")
    assert np.array_equal(found.weights, expected.weights) and np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.prefix_ksd, expected.prefix_ksd)
    assert "effective size" in ran.stdout and "of the first 15" in ran.stdout
    measured = steinstream("ksd", "new.npz").stdout
    assert f"with weights  ·  KSD {found.ksd:.6g}" in measured


def test_draws_without_scores_are_weighted_and_ordered(steinstream, tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.random.default_rng(0).normal(size=(2000, 2)))
    assert steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 30).returncode == 0
    ran = steinstream("refine", "kept.npz", "-o", "new.npz", "--weights", "--order")
    assert ran.returncode == 0, ran.stderr
    found = Kept.load(tmp_path / "new.npz")
    assert found.weights.sum() == pytest.approx(1.0) and found.prefix_ksd is None and found.prefix_mmd is not None
    assert "MMD" in ran.stdout and "KSD" not in ran.stdout


def test_thin_adds_the_same_weights_and_order(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 30)
    steinstream("refine", "kept.npz", "-o", "two.npz", "--weights", "--order")
    extra = ["--weights", "--order"]
    ran = steinstream("thin", chain, "-o", "one.npz", "--size", 30, "--checkpoint", "c.npz", "--resume", *extra)
    assert ran.returncode == 0, ran.stderr
    one, two = (Kept.load(tmp_path / name) for name in ("one.npz", "two.npz"))
    for name in ("draws", "scores", "ids", "weights", "prefix_ksd"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert one.ksd == two.ksd
    assert {**one.settings, "commands": 0} == {**two.settings, "commands": 0}
    assert [len(kept.settings["commands"]) for kept in (one, two)] == [1, 2]
    ran = steinstream("thin", chain, "-o", "s.npz", "--size", 30, "--method", "stride", "--weights")
    assert ran.returncode == 0, ran.stderr
    assert Kept.load(tmp_path / "s.npz").weights.shape == (30,)


def test_nothing_to_do_is_an_error(steinstream, chain):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 5)
    ran = steinstream("refine", "kept.npz", "-o", "new.npz")
    assert ran.returncode == 2 and "nothing to do" in ran.stderr and "Traceback" not in ran.stderr

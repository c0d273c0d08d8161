"""``steinstream refine``, and the same options of ``thin``, give the results of the library."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.result import Kept


def test_refine_equals_the_library(steinstream, chain, tmp_path):
    assert steinstream("thin", chain, "-o", "kept.npz", "--size", 30).returncode == 0
    ran = steinstream("refine", "kept.npz", "-o", "new.npz", "--weights", "chain", "--chain", chain, "--order")
    assert ran.returncode == 0, ran.stderr
    with np.load(chain) as arrays:
        expected = Kept.load(tmp_path / "kept.npz").weighted(like=arrays["draws"]).ordered()
    found = Kept.load(tmp_path / "new.npz")
    assert found.weights == pytest.approx(expected.weights, abs=1e-9)  # the moments are summed in other blocks
    assert np.array_equal(found.ids, expected.ids) and np.array_equal(found.prefix_ksd, expected.prefix_ksd)
    assert "effective size" in ran.stdout and "of the first 15" in ran.stdout
    measured = steinstream("ksd", "new.npz").stdout
    assert f"with weights  ·  KSD {found.ksd:.6g}" in measured


def test_thin_adds_the_same_weights_and_order(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 30)
    steinstream("refine", "kept.npz", "-o", "two.npz", "--weights", "stein", "--order")
    extra = ["--weights", "stein", "--order"]
    ran = steinstream("thin", chain, "-o", "one.npz", "--size", 30, "--checkpoint", "c.npz", "--resume", *extra)
    assert ran.returncode == 0, ran.stderr
    one, two = (Kept.load(tmp_path / name) for name in ("one.npz", "two.npz"))
    for name in ("draws", "scores", "ids", "weights", "prefix_ksd"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert one.ksd == two.ksd
    assert {**one.settings, "commands": 0} == {**two.settings, "commands": 0}
    assert [len(kept.settings["commands"]) for kept in (one, two)] == [1, 2]
    ran = steinstream("thin", chain, "-o", "s.npz", "--size", 30, "--method", "stride", "--weights", "chain")
    assert ran.returncode == 0, ran.stderr
    assert Kept.load(tmp_path / "s.npz").weights.shape == (30,)


def test_burn_in_can_be_left_out_of_the_moments(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(2000, 2))
    s = -x
    x[:500] += 8.0
    s[:500] = -x[:500]
    np.savez(tmp_path / "chain.npz", draws=x, scores=s)
    steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 40)
    with_it = steinstream("refine", "kept.npz", "-o", "a.npz", "--weights", "chain", "--chain", "chain.npz")
    assert with_it.returncode == 0 and "--burn-in" in with_it.stderr
    without = ["--weights", "chain", "--chain", "chain.npz", "--burn-in", 500]
    ran = steinstream("refine", "kept.npz", "-o", "b.npz", *without)
    assert ran.returncode == 0 and not ran.stderr
    assert np.abs(Kept.load(tmp_path / "b.npz").expect(lambda z: z) - x[500:].mean(axis=0)).max() < 0.01


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "nothing to do"),
        (["--weights", "chain"], "require each other"),
        (["--weights", "stein", "--chain", "chain.npz"], "require each other"),
        (["--weights", "chain", "--chain", "chain.npz", "--burn-in", "99999"], "no draws after a burn-in"),
    ],
)
def test_missing_options_are_named(steinstream, chain, options, problem):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 5)
    ran = steinstream("refine", "kept.npz", "-o", "new.npz", *options)
    assert ran.returncode == 2 and problem in ran.stderr and "Traceback" not in ran.stderr

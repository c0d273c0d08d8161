"""``steinstream merge`` gives the results of the library."""

from __future__ import annotations

import re

import numpy as np
import pytest

import steinstream as ss


@pytest.fixture
def parts(tmp_path):
    """Three kept sets, also written as part-0.npz to part-2.npz."""
    x = np.random.default_rng(0).normal(size=(3, 500, 3)) * [1.0, 2.0, 3.0]
    kept = [ss.thin(chain, -chain / np.array([1.0, 4.0, 9.0]), size=30) for chain in x]
    for number, part in enumerate(kept):
        part.save(tmp_path / f"part-{number}.npz")
    return kept


def same(path, kept):
    written = ss.Kept.load(path)
    return np.array_equal(written.ids, kept.ids) and written.ksd == kept.ksd


def test_merge_equals_the_library(steinstream, parts, tmp_path):
    names = [f"part-{number}.npz" for number in range(3)]
    ran = steinstream("merge", *names, "-o", "all.npz")
    assert ran.returncode == 0, ran.stderr
    assert same(tmp_path / "all.npz", ss.merge(parts))
    ran = steinstream("merge", *names, "-o", "kept.npz", "--size", 20, "--masses", "1,2,3", "--stream-weight", 0.3)
    kept = ss.merge(parts, size=20, masses=[1, 2, 3], stream_weight=0.3)
    assert same(tmp_path / "kept.npz", kept)
    head, *lines = ran.stdout.splitlines()
    assert "kept 20 of 90 draws in 3 sets, which represent 1 500 draws" in head
    assert f"KSD {kept.ksd:.3g} (at most {kept.settings['merged']['bound']:.3g})" in head
    lines = [line for line in lines if line.split()[:1] and line.split()[0].startswith("part-")]
    assert [line.split()[0] for line in lines] == names
    assert sum(int(line.split()[1]) for line in lines) == 20
    assert sum(float(re.search(r"([\d.]+) %", line)[1]) for line in lines) == pytest.approx(100, abs=0.2)
    by_ksd = ["--merge-budget", "1e-3,1e-4", "--fan-in", 2, "--stream-weight", 0]
    ran = steinstream("merge", *names, "-o", "tree.npz", *by_ksd)
    tree = ss.merge(parts, merge_budget=[1e-3, 1e-4], fan_in=2, stream_weight=0.0)
    assert same(tmp_path / "tree.npz", tree)
    assert f", {tree.settings['merged']['bound_by_budget']:.3g} by the budgets)" in ran.stdout


def test_sets_that_cannot_be_merged_are_refused(steinstream, parts, tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.ones((3, 3)), scores=np.ones((3, 3)))
    for arguments, message in (
        (["part-0.npz", "missing.npz"], "missing.npz: there is no such file"),
        (["part-0.npz", "chain.npz"], "chain.npz"),
        (["part-0.npz", "--masses", "length"], "--masses must be a number or several, got 'length'"),
        (["part-0.npz", "--merge-budget", "-1"], "merge_budget must be"),
        (["part-0.npz", "--size", "0"], "--size: 0 is out of range"),
        (["part-0.npz", "--fan-in", "1"], "--fan-in: 1 is out of range"),
        (["part-0.npz", "--stream-weight", -1], "stream_weight must be"),
        (["part-0.npz", "--masses", "1,2"], "masses must be 1 positive numbers"),
    ):
        ran = steinstream("merge", *arguments, "-o", "out.npz")
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("change", [{"draws": np.full((30, 3), np.nan)}, {"weights": np.full(30, -1.0)}])
def test_a_forged_set_is_refused_and_the_earlier_output_stays(change, steinstream, parts, tmp_path):
    with np.load(tmp_path / "part-1.npz") as stored:
        np.savez(tmp_path / "forged.npz", **{**stored, **change})
    (tmp_path / "out.npz").write_bytes(b"an earlier file")
    ran = steinstream("merge", "part-0.npz", "forged.npz", "-o", "out.npz")
    assert ran.returncode == 2 and "forged.npz is not a valid kept set" in ran.stderr
    assert (tmp_path / "out.npz").read_bytes() == b"an earlier file"

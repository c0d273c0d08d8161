"""``steinstream demo`` samples a posterior, thins it and writes the results."""

from __future__ import annotations

import numpy as np
import pytest


def test_demo_writes_kept_draws_a_picture_and_a_report(steinstream, tmp_path):
    pytest.importorskip("matplotlib")
    ran = steinstream("demo", "--draws", 12_000, "-o", "out")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    with np.load(tmp_path / "out" / "kept.npz") as written:
        assert len(written["draws"]) >= np.sqrt(12_000 * np.log(12_000))
        assert (np.abs(written["draws"].mean(axis=0) - np.log([1, 3, 0.5, 1])) < 0.1).all()
    for word in ("every draw", "without burn-in", "KSDT-LINEAR", "KSDT-SQRT"):
        assert word in ran.stdout


def test_a_chain_that_is_shorter_than_its_burn_in_has_no_row_without_it(steinstream):
    ran = steinstream("demo", "--draws", 2000, "-o", "out")
    assert ran.returncode == 0 and "every draw" in ran.stdout and "without burn-in" not in ran.stdout, ran.stderr

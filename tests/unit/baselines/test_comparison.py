"""Comparison of the methods: rows equal what the methods give, and failures are rows too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream import baselines
from steinstream.baselines.comparison import rows_of_process
from steinstream.baselines.methods import problem_from_arrays
from steinstream.errors import InputError

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc for the peak memory")


def test_rows_equal_what_the_methods_give_and_failures_are_rows_too(chain, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    seen = []
    rows = ss.compare(chain, sizes=[40, 10, 4000], methods=["ksdt", "random-thinning"], seed=7, on_row=seen.append)
    assert rows == seen
    assert [(row.method, row.size) for row in rows] == [
        (name, size) for name in ("ksdt", "random_thinning") for size in (10, 40, 4000)
    ]
    with np.load(chain) as arrays:
        x, s = arrays["draws"], arrays["scores"]
    preconditioner = ss.thin(x, s, size=5).preconditioner
    for row in rows:
        if row.size == 4000:
            assert "size is 4000, but the chain has only 3000 draws" in row.problem and np.isnan(row.ksd)
            continue
        chosen = getattr(baselines, row.method)(x, s, row.size, seed=7)[:, 1]
        assert row.problem == "" and row.distinct == len(set(chosen))
        assert row.ksd == ss.ksd(x[chosen], s[chosen], preconditioner=preconditioner)
        assert row.normalised_ksd == row.ksd * row.size**0.5
        assert row.seconds > 0 and row.reading > 0 and 0 <= row.megabytes < 50


@needs_proc
def test_memory_has_the_chain_only_where_a_method_holds_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(250_000, 5))  # 20 MB with the scores
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    rows = ss.compare(tmp_path / "c.npz", sizes=[20, 21], methods=["ksdt", "stein_thinning"])
    used = {(row.method, row.size): row.megabytes for row in rows}
    for size in (20, 21):  # what the first one left must not hide what the second one takes
        assert used["ksdt", size] < 10 and 38 < used["stein_thinning", size] < 80


class Deadly:
    """A stream that ends its process."""

    def __call__(self):
        os._exit(9)


def test_rows_of_a_process_that_died_give_the_reason():
    draws = np.random.default_rng(0).normal(size=(100, 2))
    problem = problem_from_arrays(draws, -draws, 5, preconditioner="identity")._replace(blocks=Deadly())
    rows = list(rows_of_process(problem, "stride", [5, 6]))
    assert [row.size for row in rows] == [5, 6]
    assert all("ended with code 9" in row.problem for row in rows)


def test_arrays_give_the_rows_of_a_file_and_bad_draws_can_be_skipped(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 2))
    s = -x
    x[7, 1] = np.nan
    np.savez(tmp_path / "c.npz", draws=x, scores=s)
    settings = {"sizes": [20], "methods": ["stein_thinning"]}
    with pytest.raises(InputError, match="draw 7 is nan"):
        ss.compare(x, s, **settings)
    (one,) = ss.compare(x, s, on_bad="skip", **settings)
    (other,) = ss.compare(tmp_path / "c.npz", on_bad="skip", **settings)
    assert (one.ksd, one.distinct) == (other.ksd, other.distinct) and one.problem == ""


def test_requests_that_make_no_sense_are_refused(chain):
    x = np.zeros((300, 2))
    with pytest.raises(InputError, match="nothing to compare"):
        ss.compare(chain, sizes=[])
    with pytest.raises(InputError, match="nothing to compare"):
        ss.compare(chain, methods=[])
    with pytest.raises(InputError, match="scores is required"):
        ss.compare(x)
    with pytest.raises(InputError, match=r"scores must be None.*open_chain"):
        ss.compare(chain, x)
    with pytest.raises(InputError, match="size is 3001, but the chain has only 3000 draws"):
        ss.compare(chain, sizes=[3001])

"""The comparison of methods: numbers are those of the library, and failures are rows with a reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream import baselines
from steinstream.baselines.comparison import Row, _in_a_process, compare
from steinstream.baselines.job import Job, job
from steinstream.errors import InputError

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc to tell peak memory")


def test_rows_are_what_the_library_says_and_failures_are_rows_too(chain, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    told = []
    rows = compare(chain, sizes=[40, 10, 4000], methods=["ksdt", "random-thinning"], seed=7, progress=told.append)
    assert rows == told
    assert [(row.method, row.size) for row in rows] == [
        (name, size) for name in ("ksdt", "random_thinning") for size in (10, 40, 4000)
    ]
    with np.load(chain) as arrays:
        x, s = arrays["draws"], arrays["scores"]
    preconditioner = ss.thin(x, s, size=5).preconditioner
    for row in rows:
        if row.size == 4000:
            assert "4000 draws were asked for, but the chain has 3000" in row.problem and np.isnan(row.ksd)
            continue
        chosen = getattr(baselines, row.method)(x, s, row.size, seed=7)[:, 1]
        assert row.problem == "" and row.distinct == len(set(chosen))
        assert row.ksd == ss.ksd(x[chosen], s[chosen], preconditioner=preconditioner)
        assert row.normalised_ksd == row.ksd * row.size**0.5
        assert 0 < row.seconds < 5 and 0 < row.reading < 5 and 0 <= row.megabytes < 50


@needs_proc
def test_memory_has_the_chain_only_where_a_method_holds_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(250_000, 5))  # 20 MB with the scores
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    rows = compare(tmp_path / "c.npz", sizes=[20, 21], methods=["ksdt", "stein_thinning"])
    used = {(row.method, row.size): row.megabytes for row in rows}
    for size in (20, 21):  # what the first one left must not hide what the second one takes
        assert used["ksdt", size] < 10 and 38 < used["stein_thinning", size] < 80


class Deadly:
    """A stream that takes its process along."""

    def __call__(self):
        os._exit(9)


def test_a_process_that_dies_leaves_rows_that_say_so():
    draws = np.random.default_rng(0).normal(size=(100, 2))
    work: Job = job(draws, -draws, 5, None, "identity")._replace(blocks=Deadly())
    rows = list(_in_a_process(work, "stride", [5, 6]))
    assert [row.size for row in rows] == [5, 6]
    assert all("ended with code 9" in row.problem for row in rows)


def test_an_empty_request_is_refused(chain):
    with pytest.raises(InputError, match="nothing to compare"):
        compare(chain, sizes=[])


def test_the_picture_has_a_line_for_every_method_that_worked(tmp_path):
    pytest.importorskip("matplotlib")
    from steinstream.report import plots

    axes = plots.pyplot().figure().subplots()
    plots.by_size(axes, {"stride": ([10, 20], [0.9, 0.8]), "ksdt": ([10, 20], [0.5, 0.4])}, "KSD")
    stride, ours = axes.get_lines()
    assert ours.get_label() == "ksdt" and ours.get_ydata().tolist() == [0.5, 0.4]
    assert ours.get_linewidth() > stride.get_linewidth() and ours.get_color() != stride.get_color()
    rows = [Row("ksdt", 10, 0.5, 1.0, 10, 0.1, 0.1, 1.0), Row("reservoir", 10, problem="no")]
    for some in (rows, rows[1:]):
        plots.comparison(tmp_path / "c.png", some)
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")

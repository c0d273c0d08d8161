"""A chain is summarised in one pass and bounded memory, whatever it is given as."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import steinstream as ss
from steinstream.report.chain_summary import stream_subsample, summarise_chain


def rows(block):
    """Return the draws of a block, sorted by id: a thinner reads the chains in turns, a summary one after another."""
    return block.draws[np.lexsort(block.ids.T[::-1])].tolist()


def test_the_subsample_is_the_one_that_a_thinner_holds(chain):
    with np.load(chain) as arrays:
        kept = ss.thin(arrays["draws"], arrays["scores"], size=120)
        for summary in (summarise_chain(kept, ss.io.open_chain(chain)), summarise_chain(kept, [chain])):
            assert rows(summary.stream) == rows(kept.stream)
            assert summary.found == 120 and summary.seen == 6000 and not summary.from_thinner
        assert rows(stream_subsample(kept, chain, None)) == rows(kept.stream)
        given = stream_subsample(kept, arrays["draws"], arrays["scores"])
    assert rows(given) == rows(kept.stream)
    assert summarise_chain(kept, None).from_thinner


def test_a_chain_is_never_held_whole(folder):
    draws = np.random.default_rng(0).normal(size=(300_000, 8))  # 19 MB, and as much for the scores
    np.savez(folder / "long.npz", draws=draws, scores=-draws)
    kept = ss.thin(draws[:1000], -draws[:1000], size=50)
    source, calls = ss.io.open_chain(folder / "long.npz"), []
    tracemalloc.start()
    summary = summarise_chain(kept, source, lambda chain, seen: calls.append(seen))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert summary.seen == 300_000 and summary.found == 50 and len(summary.block.draws) > 10_000
    assert peak < 20e6  # draws and scores take 38
    assert calls == sorted(calls) and calls[-1] == 300_000


def test_an_array_has_no_inspection_and_a_stream_without_scores(chain):
    with np.load(chain) as arrays:
        kept = ss.thin(arrays["draws"], arrays["scores"], size=20)
        summary = summarise_chain(kept, arrays["draws"])
    assert summary.inspection is None and summary.found == 20
    assert summary.stream.scores.shape == (len(summary.stream.draws), 0)
    assert summarise_chain(kept, summary) is summary
    assert np.array_equal(stream_subsample(kept, summary, None).draws, summary.stream.draws)
    with pytest.raises(ss.SteinstreamError, match="at least 20 draws of the chain"):
        stream_subsample(kept, kept.draws[:10], None)


def test_an_array_with_scores_is_inspected_and_checked(chain, tmp_path):
    with np.load(chain) as arrays:
        draws, scores = arrays["draws"], arrays["scores"]
    kept = ss.thin(draws, scores, size=20)
    summary = summarise_chain(kept, draws, scores=scores)
    assert summary.inspection is not None and summary.stream.has_scores
    complete, without = (kept.report(tmp_path / "r.html", draws, *rest).html for rest in ([scores], []))
    assert "KSD, evenly spaced" in complete and "only kept draws have scores" not in complete
    assert "only kept draws have scores" in without
    assert "nothing shows whether the stream" not in without
    with pytest.raises(ss.SteinstreamError, match="without an array of draws"):
        summarise_chain(kept, chain, scores=scores)


def test_few_draws_are_not_compared():
    x = np.random.default_rng(0).normal(size=(19, 2))
    kept = ss.thin(x, -x)
    assert summarise_chain(kept, None) is None and summarise_chain(kept, x) is None


def test_wrong_chains_are_rejected(chain):
    with np.load(chain) as arrays:
        kept = ss.thin(arrays["draws"], arrays["scores"], size=20)
    with pytest.raises(ss.SteinstreamError, match="The chain has 3 dimensions, the kept draws have 4"):
        summarise_chain(kept, np.zeros((100, 3)))
    with pytest.raises(ss.SteinstreamError, match=r"shape \(100,\) and dtype float64"):
        summarise_chain(kept, np.zeros(100))
    with pytest.raises(ss.SteinstreamError, match="The chain has 3 dimensions"):
        stream_subsample(kept, np.zeros((100, 3)), np.zeros((100, 3)))

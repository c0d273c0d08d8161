"""What the live page is told is what the thinner has, and the run never waits for it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from live import Listener, fed, normal, often, same_points, stuck

import steinstream as ss
from steinstream.live import snapshot
from steinstream.live.client import Viewer

__all__ = ["often"]

# -- what comes over the wire


@pytest.mark.parametrize("settings", [{}, {"size": 30}, {"preconditioner": ss.Streaming()}, {"storage": "float32"}])
def test_differences_add_up_to_what_is_kept(settings):
    draws = normal(1200, 3)
    draws[1::3] = draws[::3]  # states repeat
    thinner = fed(ss.Thinner(3, **settings), draws[:100])
    with thinner.serve() as page, Listener(page.url, "?x=2&y=0") as listener:
        for first in range(100, 1200, 100):
            fed(thinner, draws[first : first + 100])
            said = listener.hear_until(lambda said: said.get("draws") == thinner.seen)
            assert (said["kept"], said["ksd"], said["steps"]) == (len(thinner), thinner.ksd, thinner.steps)
            assert same_points(listener, thinner.kept.draws[:, [2, 0]])
        assert listener.about["dim"] == 3 and listener.about["x"] == 2


def test_draws_far_from_zero_stay_apart():
    draws = normal(500)
    thinner = ss.Thinner(2, size=20, validate_scores=False)
    thinner.extend(1e9 + draws, -draws)
    with thinner.serve() as page, Listener(page.url) as listener:
        listener.hear_until(lambda said: "all" in said)
        assert np.allclose(
            np.sort(listener.draws[:, 0] + listener.origin[0]), np.sort(thinner.kept.draws[:, 0]), 0, 1e-5
        )


def test_one_dimension_is_shown_along_the_chain_and_numbers_beyond_are_the_last():
    thinner = fed(ss.Thinner(1, size=20), normal(300, 1))
    with thinner.serve() as page, Listener(page.url, "?x=-1&y=99") as listener:
        listener.hear_until(lambda said: "all" in said)
        kept = thinner.kept
        assert same_points(listener, np.column_stack([kept.ids[:, 1] + 1.0, kept.draws[:, 0]]))


def test_a_warmup_and_further_passes_are_told():
    draws = normal(400)
    thinner = ss.Thinner(2, size=20, preconditioner=ss.Warmup(draws=200))
    with thinner.serve() as page, Listener(page.url) as listener:
        fed(thinner, draws[:150])
        said = listener.hear_until(lambda said: said.get("draws") == 150)
        assert not said["settled"] and said["ksd"] is None and said["kept"] == len(thinner)
        fed(thinner, draws[150:])
        said = listener.hear_until(lambda said: said.get("draws") == 400)
        assert said["settled"] and said["ksd"] == thinner.ksd
        thinner.start_pass()
        fed(thinner, draws[:300])
        said = listener.hear_until(lambda said: (said.get("pass"), said.get("draws")) == (2, 300))
        assert said["ksd"] == thinner.ksd and same_points(listener, thinner.kept.draws)


def test_any_history_gives_a_short_curve():
    with fed(ss.Thinner(2, size=10, history="all"), normal(3000)).serve() as page, Listener(page.url) as listener:
        curve = listener.hear_until(lambda said: "curve" in said)["curve"]
        assert 100 < len(curve["step"]) <= 400 and curve["step"][0] == 1 and curve["step"][-1] == 3000


# -- two threads


@pytest.mark.parametrize("settings", [{"size": 300}, {"preconditioner": ss.Streaming()}, {"candidates": 4}])
def test_every_snapshot_is_whole_and_the_run_is_the_same_to_the_last_bit(settings, monkeypatch):
    monkeypatch.setattr(snapshot, "_PIECE", 0.002)
    draws = normal(400_000)
    plain, thinner = ss.Thinner(2, **settings), ss.Thinner(2, **settings)
    seen, over = [], threading.Event()
    with thinner.serve():
        look = thinner._watch.look

        def peek():
            while not over.is_set():
                now = look(frozenset((0, 1)))
                if now is not None and (not seen or seen[-1] is not now):
                    seen.append(now)

        viewer = threading.Thread(target=peek)
        viewer.start()
        for count in (1, 1, 5000, 1) * 75:
            fed(thinner, draws[thinner.seen : thinner.seen + count])
            if len({now.steps for now in seen}) > 20:
                break
        over.set()
        viewer.join()
    fed(plain, draws[: thinner.seen])
    assert thinner.ksd == plain.ksd and np.array_equal(thinner.kept.ids, plain.kept.ids)
    assert len({now.steps for now in seen}) > 20
    for now in seen[:: max(1, len(seen) // 60)]:
        points = np.column_stack([now.columns[0], now.columns[1]])
        assert len(points) == now.size and now.draws // settings.get("candidates", 1) == now.steps
        if settings == {"size": 300} and now.size:
            assert np.array_equal(points, draws[now.arrived - 1])
            assert now.ksd == pytest.approx(ss.ksd(points, -points), rel=1e-9)


def test_a_run_that_began_in_another_thread_is_not_read_while_it_runs(monkeypatch):
    thinner = ss.Thinner(2, size=10)
    inside, go_on = threading.Event(), threading.Event()

    def growth(step):
        inside.set()
        go_on.wait(60)
        return 10.0

    thinner = ss.Thinner(2, growth=growth)
    run = threading.Thread(target=fed, args=(thinner, normal(100)))
    run.start()
    assert inside.wait(60)
    with thinner.serve():
        for _ in range(3):
            assert thinner._watch.look(frozenset((0,))) is None
        go_on.set()
        run.join()
        assert thinner._watch.look(frozenset((0,))).size == len(thinner)


def test_without_a_page_open_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(snapshot.Watch, "take", lambda self: pytest.fail("nobody looks"))
    thinner = ss.Thinner(2, size=20)
    with thinner.serve():
        fed(thinner, normal(3000))
    assert thinner._watch is None


def test_who_does_not_read_holds_up_nobody_and_nothing_piles_up(monkeypatch):
    told = {}
    message = Viewer.message
    monkeypatch.setattr(
        Viewer, "message", lambda self, *a: (told.update({self.x: told.get(self.x, 0) + 1}), message(self, *a))[1]
    )
    monkeypatch.setattr(Viewer, "_draws", lambda self, watch, told, now: {"origin": [0, 0], "all": "A" * 400_000})
    thinner = fed(ss.Thinner(3, size=50), normal(100, 3))
    with thinner.serve() as page, stuck(page.url, "events?x=2") as _, Listener(page.url, "?x=0") as listener:
        draws = normal(10_000, 3, seed=1)

        def news(count):
            for _ in range(count):
                before = thinner.seen
                fed(thinner, draws[before % 9000 : before % 9000 + 5])
                listener.hear_until(lambda said: said.get("draws") == thinner.seen)
            return told[2]

        news(20)
        counts = [news(20) for _ in range(5)]
        assert counts[-1] == counts[-2] and counts[-1] < 60  # what the system buffers, and no more
        assert told[0] >= 120
        began = time.monotonic()
    assert time.monotonic() - began < 20  # and it can be closed

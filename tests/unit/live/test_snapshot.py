"""Snapshots are consistent, and taking them does not change the run."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import steinstream as ss
from steinstream.live import ThinnerObserver, snapshot
from tests.live import fed, normal


@pytest.mark.parametrize("settings", [{"size": 300}, {"preconditioner": ss.Streaming()}, {"candidates": 4}])
def test_every_snapshot_is_consistent_and_the_run_is_the_same_bit_for_bit(settings, monkeypatch):
    monkeypatch.setattr(snapshot, "_CALL_SECONDS", 0.002)
    draws = normal(400_000)
    plain, thinner = ss.Thinner(2, **settings), ss.Thinner(2, **settings)
    seen, over = [], threading.Event()
    with thinner.serve():
        observer = thinner.observer

        def observe():
            while not over.is_set():
                now = observer.snapshot(frozenset((0, 1)))
                if now is not None and (not seen or seen[-1] is not now):
                    seen.append(now)

        client = threading.Thread(target=observe)
        client.start()
        for count in (1, 1, 5000, 1) * 75:
            fed(thinner, draws[thinner.seen : thinner.seen + count])
            if len({now.steps for now in seen}) > 20:
                break
        over.set()
        client.join()
    fed(plain, draws[: thinner.seen])
    assert thinner.ksd == plain.ksd and np.array_equal(thinner.kept.ids, plain.kept.ids)
    assert len({now.steps for now in seen}) > 20
    for now in seen[:: max(1, len(seen) // 60)]:
        points = np.column_stack([now.columns[0], now.columns[1]])
        assert len(points) == now.size and now.draws // settings.get("candidates", 1) == now.steps
        if settings == {"size": 300} and now.size:
            assert np.array_equal(points, draws[now.arrived - 1])
            assert now.ksd == pytest.approx(ss.ksd(points, -points), rel=1e-9)


def test_a_run_that_began_in_another_thread_is_not_read_while_it_runs():
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
            assert thinner.observer.snapshot(frozenset((0,))) is None
        go_on.set()
        run.join()
        assert thinner.observer.snapshot(frozenset((0,))).size == len(thinner)


def test_without_an_open_page_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(ThinnerObserver, "_take", lambda self: pytest.fail("no client asked for a snapshot"))
    thinner = ss.Thinner(2, size=20)
    with thinner.serve():
        fed(thinner, normal(3000))
    assert thinner.observer is None

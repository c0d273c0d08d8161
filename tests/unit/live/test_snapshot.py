"""Snapshots are consistent, and taking them does not change the run."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

import steinstream as ss
from steinstream.live import ThinnerObserver, snapshot
from steinstream.live.snapshot import ARRIVAL
from tests.live import fed, normal


@pytest.mark.parametrize(
    "settings",
    [{**ss.PAPER, "size": 300}, {"preconditioner": ss.Streaming()}, {"candidates": 4}, {"size": 300}],
)
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
        if settings.get("stream_weight") == 0 and now.size:
            assert np.array_equal(points, draws[now.arrived - 1])
            assert now.ksd == pytest.approx(ss.ksd(points, -points), rel=1e-9)


def test_a_run_that_began_in_another_thread_is_not_read_while_it_runs():
    inside, go_on = threading.Event(), threading.Event()

    def growth(step):
        inside.set()
        go_on.wait(600)
        return 10.0

    thinner = ss.Thinner(2, growth=growth)
    run = threading.Thread(target=fed, args=(thinner, normal(100)))
    run.start()
    assert inside.wait(600)
    with thinner.serve():
        for _ in range(3):
            assert thinner.observer.snapshot(frozenset((0,))) is None
        go_on.set()
        run.join()
        assert thinner.observer.snapshot(frozenset((0,))).size == len(thinner)


def test_between_two_calls_the_thread_of_the_run_takes_the_snapshot(monkeypatch):
    monkeypatch.setattr(snapshot, "_IDLE_SECONDS", 1e9)  # it has just been running
    thinner = fed(ss.Thinner(2, size=20), normal(100))
    with thinner.serve():
        fed(thinner, normal(1))
        assert thinner.observer.snapshot(frozenset((0, 1))) is None  # requested
        fed(thinner, normal(1))
        assert thinner.observer.snapshot(frozenset((0, 1))).steps == 102


def test_without_an_open_page_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(ThinnerObserver, "_take", lambda self: pytest.fail("no client asked for a snapshot"))
    thinner = ss.Thinner(2, size=20)
    with thinner.serve():
        fed(thinner, normal(3000))
    assert thinner.observer is None


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), IndexError("out of range")])
@pytest.mark.parametrize("running", [True, False])
def test_an_error_in_a_snapshot_stops_the_dashboard_and_not_the_run(error, running, monkeypatch, caplog):
    def fail(self, columns):
        raise error

    monkeypatch.setattr(ss.Thinner, "peek", fail)
    draws = normal(600)
    thinner = ss.Thinner(2, size=20)
    with thinner.serve() as dashboard:
        observer = thinner.observer
        if running:
            with thinner.lock:  # so the thread of the run takes the snapshot
                asked = threading.Thread(target=observer.snapshot, args=(frozenset((0, 1)),))
                asked.start()
                asked.join()
        else:
            observer.snapshot(frozenset((0, 1)))
        fed(thinner, draws)
        assert dashboard.failed and thinner.observer is None
        fed(thinner, draws)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1 and type(error).__name__ in warnings[0] and "The run continues" in warnings[0]
    plain = fed(fed(ss.Thinner(2, size=20), draws), draws)
    assert np.array_equal(thinner.kept.ids, plain.kept.ids) and thinner.ksd == plain.ksd


def test_a_ctrl_c_at_any_call_of_the_observer_does_not_block_the_next_run(monkeypatch):
    thinner = ss.Thinner(2, size=20)
    with thinner.serve():
        start = ThinnerObserver.on_start

        def interrupted_before(self, steps):
            raise KeyboardInterrupt

        def interrupted_after(self, steps):
            start(self, steps)
            raise KeyboardInterrupt

        for interrupted in (interrupted_before, interrupted_after):
            monkeypatch.setattr(ThinnerObserver, "on_start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fed(thinner, normal(100))
            monkeypatch.setattr(ThinnerObserver, "on_start", start)
            run = threading.Thread(target=fed, args=(thinner, normal(100)), daemon=True)
            run.start()
            run.join(600)
            assert not run.is_alive()


def test_a_snapshot_has_mean_and_sd_of_kept_draws_and_stream():
    draws = normal(3000, 3) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]
    thinner = ss.Thinner(3, size=50, preconditioner=ss.Streaming())
    thinner.extend(draws, -(draws - [0.0, 5.0, -1.0]) / [1.0, 100.0, 0.01])
    with thinner.serve():
        now = thinner.observer.snapshot(frozenset((-1, 0)))
    kept = thinner.kept
    assert now.table_columns == [0, 1, 2]
    assert np.allclose(now.kept_moments.mean, kept.draws.mean(axis=0))
    assert np.allclose(now.kept_moments.sd, kept.draws.std(axis=0, ddof=1))
    assert np.allclose(now.stream_moments.mean, draws.mean(axis=0))  # 3000 draws are all in the subsample
    assert np.allclose(now.stream_moments.sd, draws.std(axis=0, ddof=1))


def test_burn_in_is_left_out_of_the_moments_and_the_density_of_the_stream():
    draws = np.random.default_rng(0).normal(size=(4000, 2))
    draws[:200] += np.linspace(50, 0, 200)[:, None]
    thinner = ss.Thinner(2, size=50, stream_weight=1.0)
    thinner.extend(draws, -draws)
    with thinner.serve():
        now = thinner.observer.snapshot(frozenset((0, 1)))
    assert 100 < now.burn_in <= 400
    assert np.allclose(now.stream_moments.mean, draws[now.burn_in :].mean(axis=0))
    assert np.array_equal(now.stream_column(1), draws[now.burn_in :, 1])
    assert len(now.stream_column(ARRIVAL)) == 4000 - now.burn_in


def test_with_many_parameters_the_table_has_the_first_ones_and_those_on_the_axes(monkeypatch):
    monkeypatch.setattr(snapshot, "TABLE_ROWS", 3)
    thinner = fed(ss.Thinner(10, size=20), normal(100, 10))
    with thinner.serve():
        now = thinner.observer.snapshot(frozenset((0, 7)))
    assert now.table_columns == [0, 1, 2, 7] and now.kept_moments.mean.shape == (4,)


def test_one_draw_has_a_mean_and_no_sd():
    thinner = fed(ss.Thinner(2), normal(1))
    with thinner.serve():
        now = thinner.observer.snapshot(frozenset((0, 1)))
    assert np.array_equal(now.kept_moments.mean, normal(1)[0]) and np.isnan(now.kept_moments.sd).all()


def test_the_mmd_of_a_snapshot_is_that_of_the_thinner():
    thinner = fed(ss.Thinner(2, size=50, stream_weight=1.0), normal(2000))
    with thinner.serve():
        now = thinner.observer.snapshot(frozenset((0, 1)))
    assert now.mmd == thinner.mmd > 0
    without = fed(ss.Thinner(2, size=50, stream_weight=0), normal(100))
    with without.serve():
        assert np.isnan(without.observer.snapshot(frozenset((0, 1))).mmd)


def test_mmd_that_was_not_due_is_computed_later():
    thinner = fed(ss.Thinner(2, size=50, stream_weight=1.0), normal(2000))
    with thinner.serve():
        observer = thinner.observer
        before = observer.snapshot(frozenset((0, 1))).mmd
        observer._next_mmd = float("inf")
        fed(thinner, normal(1000, seed=1))
        assert observer.snapshot(frozenset((0, 1))).mmd == before != thinner.mmd
        observer._next_mmd = 0.0
        assert observer.snapshot(frozenset((0, 1))).mmd == thinner.mmd


def test_the_checks_of_a_run_are_open_then_pass_or_warn():
    def states(thinner):
        return {check.name: check.state for check in thinner.observer.checks()}

    thinner = ss.Thinner(2, size=20, on_bad="skip")
    with thinner.serve():
        assert states(thinner) == {"scores": "open", "finite draws": "passed"}
        fed(thinner, normal(1000))
        assert states(thinner) == {"scores": "passed", "finite draws": "passed"}
        fed(thinner, np.full((3, 2), np.nan))
        assert states(thinner)["finite draws"] == "warning"
        assert "3 of 1003 draws" in thinner.observer.checks()[-1].text
    wrong = ss.Thinner(2, size=20)
    with wrong.serve(), pytest.warns(ss.ScoresWarning):
        wrong.extend(normal(1000), -0.3 * normal(1000))
        assert len(wrong.kept) == 20  # warns, once
        assert states(wrong)["scores"] == "warning"
    unchecked, scoreless = ss.Thinner(2, size=20, validate_scores=False), ss.Thinner(2, size=20)
    scoreless.extend(normal(1000))
    with unchecked.serve(), scoreless.serve():
        assert states(unchecked) == states(scoreless) == {"finite draws": "passed"}


def test_the_observer_is_told_about_the_steps_of_a_warm_up_that_a_new_pass_ends():
    thinner = fed(ss.Thinner(2, size=20, preconditioner=ss.Warmup(draws=500)), normal(100))
    with thinner.serve():
        held = []
        on_steps = thinner.observer.on_steps
        thinner.observer.on_steps = lambda steps, draws: held.append(is_locked(thinner)) or on_steps(steps, draws)
        thinner.start_pass()
        assert held and all(held) and not is_locked(thinner)


def is_locked(thinner):
    """Return whether another thread cannot take a snapshot now."""
    taken = []

    def take():
        taken.append(thinner.lock.acquire(blocking=False))
        if taken[0]:
            thinner.lock.release()

    other = threading.Thread(target=take)
    other.start()
    other.join()
    return not taken[0]

"""A page shows the state of the thinner, and messages contain only what changed."""

from __future__ import annotations

import time

import numpy as np
import pytest

import steinstream as ss
from steinstream.live.client import Client
from tests.live import Listener, fed, normal, pairs, same_points, stuck


@pytest.mark.parametrize(
    "settings",
    [{}, {"size": 30}, {"preconditioner": ss.Streaming()}, {"storage": "float32", "preconditioner": "identity"}],
)
def test_differences_add_up_to_the_kept_draws(settings):
    draws = normal(1200, 3)
    draws[1::3] = draws[::3]  # states repeat
    thinner = fed(ss.Thinner(3, **settings), draws[:100])
    with thinner.serve() as dashboard, Listener(dashboard.url, "?x=2&y=0") as listener:
        for first in range(100, 1200, 100):
            fed(thinner, draws[first : first + 100])
            message = listener.receive_until(lambda message: message.get("draws") == thinner.seen)
            assert (message["kept"], message["ksd"], message["steps"]) == (len(thinner), thinner.ksd, thinner.steps)
            assert same_points(listener, thinner.kept.draws[:, [2, 0]])
        assert listener.about["dim"] == 3 and listener.about["x"] == 2


def test_draws_far_from_zero_remain_distinct():
    draws = normal(500)
    thinner = ss.Thinner(2, size=20, validate_scores=False)
    thinner.extend(1e9 + draws, -draws)
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        listener.receive_until(lambda message: "all" in message)
        shown = np.sort(listener.points[:, 0] + listener.origin[0])
        assert np.allclose(shown, np.sort(thinner.kept.draws[:, 0]), 0, 1e-5)


def test_one_dimension_is_shown_against_arrival_and_larger_indices_are_the_last():
    thinner = fed(ss.Thinner(1, size=20), normal(300, 1))
    with thinner.serve() as dashboard, Listener(dashboard.url, "?x=-1&y=99") as listener:
        listener.receive_until(lambda message: "all" in message)
        kept = thinner.kept
        assert same_points(listener, np.column_stack([kept.ids[:, 1] + 1.0, kept.draws[:, 0]]))


def test_warm_up_and_further_passes_are_shown():
    draws = normal(400)
    thinner = ss.Thinner(2, size=20, preconditioner=ss.Warmup(draws=200))
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        fed(thinner, draws[:150])
        message = listener.receive_until(lambda message: message.get("draws") == 150)
        assert not message["settled"] and message["ksd"] is None and message["kept"] == len(thinner)
        fed(thinner, draws[150:])
        message = listener.receive_until(lambda message: message.get("draws") == 400)
        assert message["settled"] and message["ksd"] == thinner.ksd
        thinner.start_pass()
        fed(thinner, draws[:300])
        message = listener.receive_until(lambda message: (message.get("pass"), message.get("draws")) == (2, 300))
        assert message["ksd"] == thinner.ksd and same_points(listener, thinner.kept.draws)


@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_the_stream_is_sent_with_the_coordinates_of_the_page(storage):
    draws = normal(1000, 3) + 1e6
    thinner = ss.Thinner(3, size=20, validate_scores=False, storage=storage, preconditioner="identity")
    thinner.extend(draws, 1e6 - draws)
    with thinner.serve() as dashboard, Listener(dashboard.url, "?x=2&y=-1") as listener:
        message = listener.receive_until(lambda message: "all" in message)
        stream = pairs(message["stream"]) + listener.origin
        expected = np.column_stack([draws[:, 2], np.arange(1.0, 1001.0)])
        assert np.allclose(stream, expected if storage == "float64" else np.zeros((0, 2)), rtol=0, atol=1e-3)


def test_a_stream_that_has_changed_is_sent_again_after_some_time(monkeypatch):
    monkeypatch.setattr("steinstream.live.client._STREAM_PERIOD", 0.0)
    thinner = fed(ss.Thinner(2, size=20), normal(100))
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        assert len(pairs(listener.receive_until(lambda message: "all" in message)["stream"])) == 100
        fed(thinner, normal(50))
        assert len(pairs(listener.receive_until(lambda message: "stream" in message)["stream"])) == 150
        fed(thinner, normal(10, seed=1))
        last = listener.receive_until(lambda message: message.get("draws") == 160)
        assert "stream" in last and "stream" not in listener.receive()  # nothing has changed since


def test_mean_and_sd_mmd_and_checks_are_sent():
    thinner = fed(ss.Thinner(2, size=20, stream_weight=1.0), normal(500))
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        message = listener.receive_until(lambda message: "all" in message)
        kept = thinner.kept.draws
        assert np.allclose(message["table"]["kept"], [kept.mean(axis=0), kept.std(axis=0, ddof=1)])
        assert np.allclose(message["table"]["stream"][0], normal(500).mean(axis=0), atol=0.2)
        assert message["table"]["columns"] == [0, 1] and listener.about["stream_term"]
        assert message["mmd"] == thinner.mmd
        assert [check["state"] for check in message["checks"]] == ["passed"] * 2
        assert message["scores"] and not message["failed"]
        assert "checks" not in listener.receive()


def test_without_scores_ksd_is_absent_and_a_warm_up_is_not_taken_for_it():
    warming = fed(ss.Thinner(2, size=20, preconditioner=ss.Warmup(draws=200)), normal(100))
    with warming.serve() as dashboard, Listener(dashboard.url) as listener:
        message = listener.receive_until(lambda message: "all" in message)
        assert message["ksd"] is None and message["scores"]
    thinner = ss.Thinner(2, size=20)
    thinner.extend(normal(500))
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        message = listener.receive_until(lambda message: "all" in message)
        assert message["ksd"] is None and not message["scores"] and message["mmd"] == thinner.mmd
        assert set(message["curve"]["ksd"]) == {None} and message["curve"]["mmd"][-1] > 0
        assert [check["name"] for check in message["checks"]] == ["finite draws"]


def test_any_history_gives_a_short_curve():
    thinner = fed(ss.Thinner(2, size=10, history="all"), normal(3000))
    with thinner.serve() as dashboard, Listener(dashboard.url) as listener:
        curve = listener.receive_until(lambda message: "curve" in message)["curve"]
        assert 100 < len(curve["step"]) <= 400 and curve["step"][0] == 1 and curve["step"][-1] == 3000


def test_a_client_that_does_not_read_delays_nobody_and_nothing_is_queued(monkeypatch):
    sent = {}
    message = Client.message
    monkeypatch.setattr(
        Client, "message", lambda self, *a: (sent.update({self.x: sent.get(self.x, 0) + 1}), message(self, *a))[1]
    )
    large = {"origin": [0, 0], "all": "A" * 400_000}
    monkeypatch.setattr(Client, "_draws", lambda self, observer, known, now: large)
    thinner = fed(ss.Thinner(3, size=50), normal(100, 3))
    with thinner.serve() as dashboard, stuck(dashboard.url, "events?x=2") as _, Listener(dashboard.url, "?x=0") as one:
        draws = normal(10_000, 3, seed=1)

        def update(count):
            for _ in range(count):
                before = thinner.seen
                fed(thinner, draws[before % 9000 : before % 9000 + 5])
                one.receive_until(lambda message: message.get("draws") == thinner.seen)
            return sent[2]

        update(20)
        counts = [update(20) for _ in range(5)]
        assert counts[-1] == counts[-2] and counts[-1] < 60  # only what the system buffers
        assert sent[0] >= 120
        began = time.monotonic()
    assert time.monotonic() - began < 600  # the dashboard can be closed

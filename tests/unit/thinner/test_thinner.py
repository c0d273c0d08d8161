"""What a caller of the thinner relies on."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from tests.streams import growths, kernels, streams
from tests.thinners import ksd_thinner, thin_by_ksd


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=5, max_length=60), growths, st.integers(1, 9), st.sampled_from([None, ss.Warmup("scales", 10)]))
def test_following_the_steps_gives_what_is_kept(stream, growth, block, preconditioner):
    """A store that makes what is added and deletes what is dropped always holds exactly the kept ids."""
    x, s = stream
    thinner = ksd_thinner(x.shape[1], growth=growth, preconditioner=preconditioner, validate_scores=False)
    store = {}
    for first in range(0, len(x), block):
        step = thinner.extend(x[first : first + block], s[first : first + block])
        for id in step.added:
            assert id not in store
            store[id] = x[id[1]]
        for id in step.dropped:
            del store[id]
        assert step.size == len(store)
        if thinner.state.dictionary is not None:
            assert sorted(store) == [tuple(id) for id in thinner.kept.ids.tolist()]


def test_chains_keep_their_numbers():
    x = np.random.default_rng(0).normal(size=(3, 200, 2))
    thinner = ksd_thinner(2, growth="none")
    for chain in (2, 0, 1):
        thinner.extend(x[chain, :150], -x[chain, :150], chain=chain)
    thinner.extend(x[0, 150:], -x[0, 150:])
    kept = thinner.kept
    assert [tuple(id) for id in kept.ids[:200].tolist()] == [(0, i) for i in range(200)]
    assert np.array_equal(kept.draws, np.vstack([x[0], x[1, :150], x[2, :150]]))
    whole = thin_by_ksd(x, -x, size=40)
    for (chain, draw), point in zip(whole.ids, whole.draws, strict=True):
        assert np.array_equal(point, x[chain, draw])


def test_ids_of_ones_own():
    thinner = ksd_thinner(1)
    assert thinner.push([1.0], [-1.0], id=(7, 42)).added == ((7, 42),)
    thinner.extend([[2.0], [3.0]], [[-2.0], [-3.0]], ids=[(7, 50), (8, 1)])
    assert {tuple(id) for id in thinner.kept.ids.tolist()} <= {(7, 42), (7, 50), (8, 1)}


def test_numbers_go_on_behind_ids_of_ones_own():
    thinner = ksd_thinner(1, growth="none", size=20)
    assert thinner.next_index() == thinner.next_index(7) == 0
    thinner.extend(np.ones((4, 1)), -np.ones((4, 1)), ids=[(7, 41), (0, 3), (7, 8), (0, 2)])
    assert (thinner.next_index(), thinner.next_index(7), thinner.next_index(8)) == (4, 42, 0)
    thinner.push([1.0], [-1.0], id=(7, 5))  # one that comes late
    for chain, number in ((7, 42), (0, 4), (8, 0)):
        assert thinner.extend([[2.0], [3.0]], [[-2.0], [-3.0]], chain=chain).added[0] == (chain, number)
    assert (thinner.next_index(), thinner.next_index(7), thinner.next_index(8)) == (6, 44, 2)
    with pytest.raises(ss.SteinstreamError):
        thinner.extend([[np.nan]], [[1.0]], ids=[(0, 90)])
    thinner.extend(np.zeros((0, 1)), np.zeros((0, 1)), ids=np.zeros((0, 2), dtype=int))
    assert thinner.next_index() == 6


def test_repeated_states_are_stored_once_and_counted():
    x = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 50, axis=0)
    thinner = ksd_thinner(3, growth="none")
    thinner.extend(x, -x)
    assert len(thinner.state.dictionary.state()["copies"]) == 20
    kept = thinner.kept
    assert len(kept) == 1000 and np.array_equal(kept.draws, x)
    runs = kept.to_runs()
    assert len(runs.draws) == 20 and (runs.multiplicity == 50).all()
    assert kept.ksd == ss.ksd(x, -x)


def test_draws_come_back_bit_for_bit_whatever_the_coordinates():
    x = np.random.default_rng(0).normal(size=(300, 4)) * [1.0, 1e-3, 1e3, 1 / 3]
    s = -x / np.array([1.0, 1e-3, 1e3, 1 / 3]) ** 2
    for preconditioner in ("auto", "scales", "scale", "identity"):
        kept = thin_by_ksd(x, s, size=30, preconditioner=preconditioner)
        rows = kept.ids[:, 1]
        assert np.array_equal(kept.draws, x[rows]) and np.array_equal(kept.scores, s[rows])


def test_warmup_waits_and_then_is_the_same_as_known_coordinates():
    x = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 100.0]
    s = -x / np.array([1.0, 1e4])
    waiting = ksd_thinner(2, preconditioner=ss.Warmup("covariance", 200))
    step = waiting.extend(x[:150], s[:150])
    assert len(step.added) == 150 and step.dropped == () and np.isnan(step.ksd)
    early = waiting.kept  # as if the stream ended here
    assert 0 < len(early) < 150 and len(waiting) == 150
    waiting.extend(x[150:], s[150:])
    known = ksd_thinner(2, preconditioner=ss.Preconditioner.estimate("covariance", x[100:200]))
    known.extend(x, s)
    assert np.array_equal(waiting.kept.ids, known.kept.ids) and waiting.ksd == known.ksd


def test_the_set_grows_only_as_needed_and_memory_with_it():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    thinner = ksd_thinner(2, size=100)
    thinner.extend(x, -x)
    state = thinner.state.dictionary.engine_state
    assert len(state.copies) < 300 and len(state.ids) < 300


def test_history_is_log_spaced_and_ends_now():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    thinner = ksd_thinner(1)
    thinner.extend(x, -x)
    step, size, ksd, _ = thinner.history
    assert step[0] == 1 and step[-1] == 5000 and len(step) < 80 and (np.diff(step) > 0).all()
    assert size[-1] == len(thinner) and ksd[-1] == thinner.ksd
    for rule, steps in (("all", 5000), (100, 50), (None, 1)):
        other = ksd_thinner(1, history=rule)
        other.extend(x, -x)
        assert len(other.history.step) == steps and other.history.ksd[-1] == thinner.ksd


def test_expectations():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    kept = thin_by_ksd(x, -x, size=200)
    assert kept.expect(lambda point: point**2) == pytest.approx(1.0, abs=0.1)
    calls = []
    twice = ss.Kept(np.vstack([kept.draws] * 2), kept.scores, kept.ids, 0.0, kept.history)
    twice.expect(lambda point: calls.append(1) or 1.0)
    assert len(calls) == 200
    weights = np.zeros(200)
    weights[3] = 2.0
    assert kept.expect(lambda point: point, weights) == pytest.approx(kept.draws[3])


@settings(max_examples=30, deadline=None)
@given(streams(max_dim=6, max_length=30, min_length=3), kernels)
def test_coordinates_are_a_change_of_variables(stream, kernel):
    """Thinning in coordinates L is thinning L^-1 x with scores L^T s."""
    x, s = stream
    dim = x.shape[1]
    root = np.linalg.cholesky(np.eye(dim) + 0.5)
    for preconditioner, y, t in (
        (ss.Preconditioner.covariance(root @ root.T), np.linalg.solve(root, x.T).T, s @ root),
        (ss.Preconditioner.scales(np.arange(1.0, dim + 1)), x / np.arange(1.0, dim + 1), s * np.arange(1.0, dim + 1)),
        (ss.Preconditioner.length_scale(2.0), x / 2.0, s * 2.0),
    ):
        assert ss.ksd(x, s, kernel=kernel, preconditioner=preconditioner) == pytest.approx(
            ss.ksd(y, t, kernel=kernel), rel=1e-6, abs=1e-9
        )


def test_default_coordinates_serve_different_widths():
    x = np.random.default_rng(0).normal(size=(20_000, 2)) * [1.0, 0.01]
    kept = thin_by_ksd(x, -x / np.array([1.0, 1e-4]), size=100)
    assert (np.abs(kept.draws.std(axis=0) / [1.0, 0.01] - 1.0) < 0.1).all()


@pytest.mark.parametrize("number", [int, np.int64, np.float32, float, Fraction])
def test_kernels_take_any_number(number):
    x = np.random.default_rng(0).normal(size=(50, 2))
    for kernel, same in (
        (ss.IMQ(c=number(2)), ss.IMQ(c=2.0)),
        (ss.RBF(h=number(2)), ss.RBF(h=2.0)),
        (ss.IMQ(linear=number(1)), ss.IMQ(linear=1.0)),
    ):
        assert kernel == same and repr(kernel) == repr(same)
        assert ksd_thinner(2, kernel=kernel).extend(x, -x) == ksd_thinner(2, kernel=same).extend(x, -x)


def test_kernels_say_no_to_nonsense():
    for make in (
        lambda: ss.IMQ(c=0.0), lambda: ss.IMQ(beta=-1.0), lambda: ss.RBF(h=-2.0), lambda: ss.IMQ(c=np.inf),
        lambda: ss.IMQ(c=1e-120), lambda: ss.RBF(h=np.inf), lambda: ss.IMQ(c="one"), lambda: ss.IMQ(linear=np.nan),
    ):  # fmt: skip
        with pytest.raises(ss.SteinstreamError):
            make()
    for make in (
        lambda: ss.Preconditioner.scales([1.0, -1.0]),
        lambda: ss.Preconditioner.covariance([[1.0, 2.0], [2.0, 1.0]]),
        lambda: ss.Preconditioner.covariance([[1.0, 0.5], [0.2, 1.0]]),
        lambda: ss.Preconditioner.covariance([1.0, 2.0]),
        lambda: ss.Preconditioner.estimate("wide", np.ones((3, 2))),
        lambda: ss.Warmup("wide"),
        lambda: ss.Warmup("auto", draws=1),
    ):
        with pytest.raises(ss.SteinstreamError):
            make()


def test_in_a_warmup_normalised_ksd_is_that_of_what_would_be_kept():
    x = np.random.default_rng(0).normal(size=(600, 2))
    thinner = ksd_thinner(2, preconditioner=ss.Warmup(draws=1000))
    thinner.extend(x, -x)
    assert thinner.normalised_ksd == thinner.kept.normalised_ksd


@pytest.mark.parametrize("chosen", [{}, {"candidates": 3}, {"preconditioner": ss.Streaming(first=500)}], ids=str)
def test_after_a_ctrl_c_no_draw_is_lost_and_none_comes_twice(chosen):
    x = np.random.default_rng(0).normal(size=(40_000, 2))
    interrupts = {3000, 9000, 9001, 12_345}

    def growth(t):
        if t in interrupts:  # amid the preparation of some thousand steps
            interrupts.remove(t)
            signal.raise_signal(signal.SIGINT)
        return 50

    whole, broken = ksd_thinner(2, growth=50, **chosen), ksd_thinner(2, growth=growth, **chosen)
    whole.extend(x, -x)
    with pytest.raises(KeyboardInterrupt):
        broken.extend(x, -x)
    assert 0 < broken.steps * broken.config.candidates < len(x) == broken.seen
    while len(broken.state.pending.draws) >= broken.config.candidates:
        with suppress(KeyboardInterrupt):
            broken.extend(x[:0], -x[:0])
    assert not interrupts and broken.steps == whole.steps
    assert np.array_equal(broken.kept.ids, whole.kept.ids) and broken.ksd == whole.ksd


def test_parameters_have_the_names_given_or_those_of_a_table():
    class Table(np.ndarray):  # as pandas' frames are to numpy
        columns = ("mu", "tau")

    x = np.random.default_rng(0).normal(size=(300, 2))
    assert thin_by_ksd(x, -x, size=10).names is None
    assert thin_by_ksd(x, -x, size=10, names=["a", "b"]).names == ("a", "b")
    assert ss.thin(x, size=10, names=["a", "b"]).names == ("a", "b")
    assert thin_by_ksd(x.view(Table), -x, size=10).names == ("mu", "tau")
    for wrong in (["a"], ["a", "a"], "ab", [1, 2]):
        with pytest.raises(ss.SteinstreamError, match="names must be 2 different strings"):
            thin_by_ksd(x, -x, size=10, names=wrong)


def test_a_set_that_has_forgotten_its_stream_is_diagnosed_with_the_chain(tmp_path):
    x = np.random.default_rng(0).normal(size=(3000, 2))
    kept = thin_by_ksd(x, -x, size=50)
    kept.save(tmp_path / "kept.npz")
    np.savez(tmp_path / "chain.npz", draws=x, scores=-x)
    loaded = ss.Kept.load(tmp_path / "kept.npz")
    with pytest.raises(
        ss.SteinstreamError, match=r"contains no subsample of its stream. Pass the chain: diagnose\(draws"
    ):
        loaded.diagnose()
    for chain in ((x, -x), (x.reshape(3, 1000, 2), -x.reshape(3, 1000, 2)), (tmp_path / "chain.npz",)):
        assert loaded.diagnose(*chain).ok and kept.diagnose().ok
    assert not loaded.diagnose(x + 3.0, -x).ok
    without = loaded.diagnose(x)
    assert without.ok and without["scores"].skipped == "only kept draws have scores"
    with pytest.raises(ss.SteinstreamError, match="need at least 20 draws of the chain"):
        loaded.diagnose(x[:10])


def test_repeated_states_show_in_what_is_printed():
    x = np.repeat(np.random.default_rng(0).normal(size=(60, 2)), 10, axis=0)
    kept = thin_by_ksd(x, -x, size=100)
    assert f"Kept(100 of 600 draws, {len(kept.to_runs().run)} distinct, " in repr(kept)


def test_tensors_that_want_a_gradient_are_taken():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert len(thin_by_ksd(x, -x, size=10)) == 10


def test_public_names_are_lazy_and_all_there():
    program = """
import sys, steinstream
assert not {"numba", "numpy"} & sys.modules.keys(), "import steinstream must cost nothing"
for name in dir(steinstream):
    getattr(steinstream, name)
assert "matplotlib" not in sys.modules and "pyarrow" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    with pytest.raises(AttributeError):
        ss.nonsense  # noqa: B018

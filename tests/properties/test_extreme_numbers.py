"""Numbers of any magnitude give a finite and correct result, or one `InputError`."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.errors import InputError

exponents = st.one_of(st.integers(-3, 3), st.integers(-325, 305))
magnitudes = st.builds(lambda exponent: float(f"1e{exponent}"), exponents)


@st.composite
def preconditioners(draw, dim):
    """Return a function that creates a preconditioner, or raises an `InputError`."""
    scales = [draw(magnitudes) for _ in range(dim)]
    nearly_singular = np.tril(np.ones((dim, dim)))
    nearly_singular[np.diag_indices(dim)] = scales
    kind = draw(st.sampled_from(["auto", "scales", "scale", "covariance"]))
    choices = {
        "identity": ss.Preconditioner.identity,
        "length": lambda: ss.Preconditioner.length_scale(scales[0]),
        "scales": lambda: ss.Preconditioner.scales(scales),
        "covariance": lambda: ss.Preconditioner(nearly_singular),
        "warmup": lambda: ss.Warmup(kind, draws=6),
        "streaming": lambda: ss.Streaming(first=5),
    }
    return choices[draw(st.sampled_from(sorted(choices)))]


@st.composite
def runs(draw):
    """Settings, draws and scores, whose magnitude differs between coordinates and may change during the stream."""
    dim, count = draw(st.integers(1, 3)), draw(st.integers(1, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, s = rng.normal(size=(2, count, dim))
    with np.errstate(over="ignore"):
        for part in (x, s):
            part *= [draw(magnitudes) for _ in range(dim)]
            part[draw(st.integers(0, count)) :] *= draw(magnitudes)
    settings = {
        "kernel": draw(st.sampled_from([ss.IMQ(), ss.IMQ(c=1e-3), ss.RBF(h=0.7), ss.IMQ(linear=0.5)])),
        "preconditioner": draw(preconditioners(dim)),
        "size": draw(st.sampled_from([None, 1, 4])),
        "stream_weight": draw(st.sampled_from([0.0, 0.7])),
        "on_bad": draw(st.sampled_from(["raise", "skip"])),
    }
    return settings, x, s


def exact_squared_ksd(kept, kernel):
    """Return KSD^2 of kept draws in decimal arithmetic, and the sum of the magnitudes of all its terms."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -100_000, 100_000
        factor = np.asarray(kept.preconditioner.factor)
        dim = kept.draws.shape[1]
        matrix = np.diag(np.broadcast_to(factor, dim)) if factor.ndim < 2 else factor
        lower = [[Decimal(float(value)) for value in row] for row in matrix]
        points, scores = [], []
        for draw, score in zip(kept.draws, kept.scores, strict=True):
            x: list[Decimal] = []
            for i in range(dim):  # forward substitution
                rest = sum((lower[i][j] * x[j] for j in range(i)), Decimal(0))
                x.append((Decimal(float(draw[i])) - rest) / lower[i][i])
            points.append(x)
            values = [Decimal(float(value)) for value in score]
            scores.append([sum((lower[j][i] * values[j] for j in range(i, dim)), Decimal(0)) for i in range(dim)])
        total = size = Decimal(0)
        for x, s in zip(points, scores, strict=True):
            for y, t in zip(points, scores, strict=True):
                terms = stein_terms(kernel, x, s, y, t)
                total += sum(terms)
                size += sum(map(abs, terms))
        count = Decimal(len(points)) ** 2
        return total / count, size / count


def stein_terms(kernel, x, s, y, t):
    """Return the terms whose sum is the Stein kernel, for x, y and scores s, t as lists of Decimal."""
    dim = len(x)
    difference = [a - b for a, b in zip(x, y, strict=True)]
    square = sum(a * a for a in difference)
    if isinstance(kernel, ss.IMQ):
        c, beta = Decimal(kernel.c), Decimal(kernel.beta)
        base = c * c + square
        phi, slope, curve = base**beta, beta * base ** (beta - 1), beta * (beta - 1) * base ** (beta - 2)
    else:
        rate = Decimal("0.5") / Decimal(kernel.h)
        phi = (-rate * square).exp()
        slope, curve = -rate * phi, rate * rate * phi
    product = sum(a * b for a, b in zip(s, t, strict=True))
    cross = [2 * slope * d * (b - a) for d, a, b in zip(difference, s, t, strict=True)]
    terms = [phi * a * b for a, b in zip(s, t, strict=True)] + cross + [-2 * slope * dim, -4 * curve * square]
    if kernel.linear:
        weight = Decimal(kernel.linear)
        inner = sum(a * b for a, b in zip(x, y, strict=True))
        terms += [weight * (1 + inner) * product, weight * dim]
        terms += [weight * a * b for a, b in zip(x, s, strict=True)] + [
            weight * a * b for a, b in zip(y, t, strict=True)
        ]
    return terms


@settings(max_examples=150, deadline=None)
@given(runs())
def test_a_result_is_finite_and_exact_or_the_input_is_refused(run):
    chosen, x, s = run
    try:
        thinner = ss.Thinner(
            x.shape[1], validate_scores=False, **{**chosen, "preconditioner": chosen["preconditioner"]()}
        )
        thinner.extend(x, s)
        kept = thinner.kept if len(thinner) else None
    except InputError:
        return
    if kept is None:  # every draw was skipped
        assert chosen["on_bad"] == "skip" and thinner.skipped == len(x)
        return
    found = [thinner.ksd, thinner.objective, *kept.history.ksd]
    found += [] if thinner.bound is None else [thinner.bound]
    found += [thinner.mmd, *kept.history.mmd] if chosen["stream_weight"] else []
    assert all(map(math.isfinite, found)), found
    square, size = exact_squared_ksd(kept, chosen["kernel"])
    assert abs(Decimal(kept.ksd) ** 2 - square) <= Decimal("1e-9") * size
    again = ss.ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner)
    assert abs(Decimal(again) ** 2 - square) <= Decimal("1e-9") * size


@st.composite
def marked_runs(draw):
    """Settings, draws and scores with repeats, and what may come with them; scores may be missing."""
    chosen, x, s = draw(runs())
    repeated = draw(st.lists(st.integers(0, len(x) - 1), min_size=len(x), max_size=len(x)))
    x, s = (part[np.sort(repeated)] for part in (x, s)) if draw(st.booleans()) else (x, s)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    given = {"scores": s} if chosen["kernel"].linear or draw(st.booleans()) else {}
    chosen["storage"] = draw(st.sampled_from(["float64", "float64", "float32"]))
    if draw(st.booleans()):
        chosen["cost_weight"] = draw(st.sampled_from([1e-9, 1.0]))
        given["costs"] = rng.random(len(x)) * draw(magnitudes)
    if draw(st.booleans()):
        given["pinned"] = rng.random(len(x)) < 0.1
    if given.keys() >= {"scores"} and draw(st.booleans()):
        given["second_scores"] = s + rng.normal(size=s.shape) * draw(magnitudes)
    if draw(st.booleans()):
        given["features"] = rng.normal(size=(len(x), draw(st.integers(1, 3)))) * draw(magnitudes)
        chosen["stream_on"] = draw(st.sampled_from(["features", "both"]))
    return chosen, x, given


def numbers(thinner):
    """Return all numbers of a thinner, or the error that refuses them during a warm-up."""
    try:
        return [repr(getattr(thinner, name)) for name in ("ksd", "mmd", "objective", "bound", "normalised_ksd")]
    except InputError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(marked_runs(), st.data())
def test_all_numbers_are_the_same_after_resumption(tmp_path_factory, run, data):
    chosen, x, given = run
    cut = data.draw(st.integers(0, len(x)))
    path = tmp_path_factory.mktemp("resumed") / "run.npz"
    first, second = ({name: part[rows] for name, part in given.items()} for rows in (slice(cut), slice(cut, None)))
    try:
        thinner = ss.Thinner(
            x.shape[1], validate_scores=False, **{**chosen, "preconditioner": chosen["preconditioner"]()}
        )
        thinner.extend(x[:cut], **first)
    except InputError:
        return
    thinner.save(path)
    resumed = ss.Thinner.load(path)
    assert numbers(resumed) == numbers(thinner)
    try:
        thinner.extend(x[cut:], **second)
    except InputError as error:
        with pytest.raises(InputError) as refused:
            resumed.extend(x[cut:], **second)
        assert str(refused.value) == str(error)
    else:
        resumed.extend(x[cut:], **second)
    assert numbers(resumed) == numbers(thinner)
    if len(thinner) and isinstance(numbers(thinner), list):
        assert math.isfinite(thinner.objective) and np.isfinite(thinner.kept.draws).all()


def test_draws_that_are_equal_after_preconditioning_keep_their_values():
    draws = np.array([[1.9], [np.nextafter(1.9, 2.0)]])
    preconditioner = ss.Preconditioner.length_scale(1.8)
    assert len(np.unique(preconditioner.apply_to_draws(draws))) == 1
    thinner = ss.Thinner(1, size=2, preconditioner=preconditioner, validate_scores=False)
    thinner.extend(draws, np.ones((2, 1)))
    assert thinner.kept.draws.tolist() == draws.tolist()


@pytest.mark.parametrize("rejected", [False, True])
def test_a_repeated_state_keeps_its_own_features(tmp_path, rejected):
    rng = np.random.default_rng(0)
    x, features = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    x[10:20] = x[10] + 100.0 * rejected
    thinner = ss.Thinner(2, size=12, preconditioner=ss.Preconditioner.identity(), validate_scores=False)
    for draw, row in zip(x, features, strict=True):
        thinner.push(draw, -draw, features=row)
        thinner.save(tmp_path / "run.npz")
        assert numbers(ss.Thinner.load(tmp_path / "run.npz")) == numbers(thinner)


@pytest.mark.parametrize("scale", [1e200, 1e120, 1e-120, 1e-200])
def test_overflow_after_preconditioning_is_an_error_that_names_the_cause(scale):
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InputError, match="length scale"):
        ss.Thinner(2, size=20, preconditioner=ss.Preconditioner.length_scale(scale)).extend(x, -x)


def test_a_draw_that_overflows_after_preconditioning_changes_nothing_or_is_skipped():
    x = np.random.default_rng(0).normal(size=(50, 2))
    x[20] = 1e90
    settings = {"size": 10, "preconditioner": ss.Preconditioner.length_scale(1e-20), "validate_scores": False}
    thinner, skipping = ss.Thinner(2, **settings), ss.Thinner(2, on_bad="skip", **settings)
    with pytest.raises(
        InputError, match=r"draw of chain 0, draw 20 is 1e\+110 in the coordinates of the preconditioner"
    ):
        thinner.extend(x, -x)
    assert thinner.seen == 0 and len(thinner) == 0
    skipping.extend(x, -x)
    assert skipping.skipped == 1 and skipping.seen == 50 and math.isfinite(skipping.objective)


def test_the_ksd_of_arrays_refuses_overflow_after_preconditioning():
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InputError, match=r"A score is .* in the coordinates of the preconditioner"):
        ss.ksd(x, -x, preconditioner=ss.Preconditioner.length_scale(1e120))


def test_pins_that_pin_nothing_do_not_remove_the_bound():
    x = np.random.default_rng(0).normal(size=(300, 2))
    plain, unpinned = ss.Thinner(2, size=10), ss.Thinner(2, size=10)
    plain.extend(x, -x)
    unpinned.extend(x, -x, pinned=np.zeros(300, dtype=bool))
    assert numbers(plain) == numbers(unpinned) and plain.bound is not None


def test_the_cost_term_is_in_the_objective_after_resumption(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    for weight in (0.0, 0.7):
        thinner = ss.Thinner(2, size=10, cost_weight=1.0, stream_weight=weight)
        thinner.extend(x, -x, costs=rng.random(100))
        thinner.save(tmp_path / "run.npz")
        assert ss.Thinner.load(tmp_path / "run.npz").objective == thinner.objective > thinner.ksd**2

"""Sums of multiples of a grid are exact, whatever their order and size."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from steinstream._engine import double_double

integers = st.integers(-(2**52), 2**52)


def on_a_grid(integer, exponent):
    return float(integer) * 2.0**exponent


values = st.builds(on_a_grid, integers, st.sampled_from([-60, -40, -20, -10]))


@given(st.lists(values, max_size=60))
def test_a_pair_holds_the_exact_sum_and_its_rounding(numbers):
    high, low = 0.0, 0.0
    for number in numbers:
        high, low = double_double.add(high, low, number)
    total = sum(map(Fraction, numbers), Fraction(0))
    assert Fraction(high) + Fraction(low) == total
    assert high == float(total)


@given(st.lists(values, max_size=40), st.randoms())
def test_order_does_not_matter(numbers, random):
    shuffled = list(numbers)
    random.shuffle(shuffled)
    sums = []
    for order in (numbers, shuffled):
        pair = (0.0, 0.0)
        for number in order:
            pair = double_double.add_pair(*pair, number, 0.0)
        sums.append(pair)
    assert sums[0] == sums[1]


@given(st.lists(values, min_size=1, max_size=30))
def test_subtraction_undoes_addition(numbers):
    start = double_double.add(1.25, 0.0, numbers[0])
    pair = start
    for number in numbers:
        pair = double_double.add(*pair, number)
    for number in numbers:
        pair = double_double.add(*pair, -number)
    assert pair == start

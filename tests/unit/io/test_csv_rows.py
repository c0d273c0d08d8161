"""Numbers in text become the float64 that Python's float gives, bit for bit."""

import struct
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steinstream.io._csv_rows import parse_number, parse_rows

FIELDS = st.one_of(
    st.floats().map(repr),
    st.floats().map("{:.18e}".format),
    st.floats(-1e9, 1e9).map("{:.17g}".format),
    st.floats(-100, 100).map("{:.6g}".format),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"-?[0-9]{0,12}\.[0-9]{1,30}([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        [
            "nan",
            "-inf",
            "Infinity",
            "+1.5",
            " 2.5 ",
            "-0",
            "-0.0",
            "5.",
            ".5",
            "0e0",
            "1E5",
            "00012.50",
            "1e-400",
        ]
    ),
)


def bits(value):
    return struct.pack("<d", value) if value == value else b"nan"


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[FIELDS] * width), min_size=1, max_size=30)))
@example([("9007199254740993",), ("9007199254740992.5",), ("9007199254740993.0000000000001",)])  # ties
@example([("0.000000000000000000000001",), ("123456789012345678901234.5",), ("99999999.99999999999",)])
@example([("0.99999999999999999999999",), ("0.12345678901234567890",), ("1.2345678901234567890",)])
@example([("2.2250738585072011e-308",), ("1.7976931348623157e308",), ("6.0221407599999999e23",)])
def test_every_field_is_what_float_makes_of_it(rows):
    text = "".join(",".join(row) + "\n" for row in rows).encode()
    table = parse_rows(text, len(rows[0]), range(len(rows[0])))
    assert table is not None
    assert table.shape == (len(rows), len(rows[0]))
    assert [[bits(x) for x in row] for row in table.tolist()] == [[bits(float(x)) for x in row] for row in rows]


@pytest.mark.parametrize("form", ["%.17g", "%.18e", "%.15f", "%.6g", "%r"])
def test_many_random_numbers_round_trip(form):
    random = np.random.default_rng(0)
    numbers = random.standard_normal((5000, 4)) * 10.0 ** random.integers(-12, 12, (5000, 4))
    text = "".join(",".join(form % x for x in row) + "\n" for row in numbers.tolist())
    table = parse_rows(text.encode(), 4, [3, 0])
    expected = np.array([[float(form % row[3]), float(form % row[0])] for row in numbers.tolist()])
    assert np.array_equal(table, expected)


def hard_to_round():
    """Decimals of up to 19 digits that all but coincide with the midpoint of two neighbouring float64s.

    A midpoint is k 2^q with k odd, of 54 bits; m 10^e comes close where m / k is a convergent of 2^q / 10^e.
    """
    for exponent in range(-40, 20):
        for power in range(-140, 70):
            ratio = Fraction(2) ** power / Fraction(10) ** exponent
            if not 1 < ratio < 500:
                continue
            (m, m_before), (k, k_before) = (1, 0), (0, 1)
            while k < 2**54 and ratio.denominator > 1:
                whole = floor(ratio)
                (m, m_before), (k, k_before) = (whole * m + m_before, m), (whole * k + k_before, k)
                ratio = 1 / (ratio - whole)
                if k % 2 and k.bit_length() == 54 and m < 10**19:
                    yield f"0.{m:019d}e{exponent + 19}"


def test_decimals_beside_a_midpoint_are_rounded_correctly():
    hard = list(hard_to_round())
    assert len(hard) > 50
    table = parse_rows("\n".join([*hard, ""]).encode(), 1, [0])
    assert table.ravel().tolist() == [float(field) for field in hard]


@settings(deadline=None)
@given(st.lists(st.text(alphabet="0123456789.-+eEnaif _x\"'", max_size=12), min_size=1, max_size=8))
def test_what_is_no_number_is_refused_and_nothing_else(fields):
    table = parse_rows((",".join(fields) + "\n").encode(), len(fields), range(len(fields)))
    expected = [parse_number(field.encode()) for field in fields]
    if fields == [""]:
        assert len(table) == 0  # a blank line
    elif None in expected:
        assert table is None
    else:
        assert [bits(x) for x in table[0].tolist()] == [bits(x) for x in expected]


def test_columns_that_are_not_chosen_may_hold_anything():
    assert parse_rows(b'1.5,abc,"x"\n2.5,,y\n', 3, [0]).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize("text", [b"1,2\n3\n", b"1\n2,3\n4\n", b"1,2\n3,4,5,6\n"])
def test_ragged_lines_are_refused_even_if_the_count_of_fields_comes_out_even(text):
    assert parse_rows(text, 2, [0, 1]) is None


@pytest.mark.parametrize("text", [b"1,2\n\n3,4\n", b"#x\n1,2\r\n\r\n3,4", b"\n1,2\n#1,2,3\n3,4\n\n#"])
def test_blank_lines_and_comments_are_passed_over(text):
    assert parse_rows(text, 2, [0, 1]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("field", ["1\r5", "1\r", "\r1"])
def test_a_carriage_return_inside_a_field_is_what_float_makes_of_it(field):
    table = parse_rows(f"{field},2\n".encode(), 2, [0, 1])
    expected = parse_number(field.encode())
    assert table is None if expected is None else table.tolist() == [[expected, 2]]


def test_a_column_may_be_chosen_twice_and_in_any_order():
    assert parse_rows(b"1,2\n3,4\n", 2, [1, 0, 1]).tolist() == [[2, 1, 2], [4, 3, 4]]

"""The compiled parser rounds as ``float`` does, or leaves a field to the caller. tests/unit/io has the whole reader."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine.csv_parser import FIELD, PAD, Layout, Text, parse_lines


def parse(text: bytes, columns: list[int], slots: int = 100):
    """Parse lines; return the table, the fields that are left to the caller, and the byte where the parser stopped."""
    data = np.frombuffer(text + bytes(PAD), np.uint8)
    table, unparsed = np.full((text.count(b"\n"), max(columns) + 1), np.nan), np.empty(slots, FIELD)
    layout = Layout(len(columns), np.array(columns, dtype=np.int64))
    at, rows, count = parse_lines(Text(data, len(text)), 0, layout, table, 0, unparsed)
    return table[: max(rows, 0)], [text[begin:end] for _, _, begin, end in unparsed[:count].tolist()], at, rows


@settings(max_examples=300)
@given(st.integers(0, 10**19 - 1), st.integers(-80, 80))
def test_a_field_is_rounded_as_float_does_or_left_to_the_caller(mantissa, exponent):
    text = f"{mantissa}e{exponent}"
    table, left, _, _ = parse(text.encode() + b"\n", [0])
    assert left == [text.encode()] or table[0, 0] == float(text)


def test_ordinary_numbers_are_not_left_to_the_caller():
    texts = ["0", "-0.5", "3.141592653589793", "1e-5", "123456.789e3", "-1.7976931348623157", "0.1234567890123456"]
    table, left, _, _ = parse("".join(f"{text}\n" for text in texts).encode(), [0])
    assert left == [] and table[:, 0].tolist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    "field", ["nan", "inf", "+1", " 1", "1_0", "", "1e", "--1", "12345678901234567890123", "1e400"]
)
def test_other_fields_are_left_to_the_caller(field):
    _, left, _, _ = parse(f"1,{field},2\n".encode(), [0, 1, 2])
    assert left == [field.encode()]


def test_columns_are_written_to_their_places_and_others_are_not_read():
    table, left, _, _ = parse(b"1,text,3\n4,5,6\n", [1, -1, 0])
    assert left == [] and table.tolist() == [[3.0, 1.0], [6.0, 4.0]]


def test_blank_lines_and_comments_are_skipped():
    table, _, at, _ = parse(b"# 1,2\n\n1,2\r\n\r\n3,4\n", [0, 1])
    assert table.tolist() == [[1.0, 2.0], [3.0, 4.0]] and at == 18


@pytest.mark.parametrize("line", [b"1\n", b"1,2,3\n"])
def test_a_line_with_another_number_of_fields_is_reported(line):
    assert parse(line, [0, 1])[3] == -1


def test_the_parser_stops_when_no_more_fields_can_be_left():
    _, left, at, rows = parse(b"nan,1\n2,nan\n3,4\n", [0, 1], slots=3)
    assert left == [b"nan", b"nan"] and (at, rows) == (12, 2)

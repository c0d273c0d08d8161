"""Parser for lines of decimal numbers: float64 values, correctly rounded, in one pass over the bytes of a chunk.

A field ``[-]digits[.digits][e[+-]digits]`` is m 10^e with an integer m < 10^19. If m < 2^53 and |e| <= 22, both are
exact in float64 and one multiplication or division rounds once (Clinger, PLDI 1990). Otherwise let 10^e = head + tail,
where head has 21 bits: then the products of head with both 32-bit halves of m are exact, and the remainder m tail is
small. The sum is known within 2^-70 of its size; if both ends of that interval round to the same float64, that is the
nearest one.

Eight digits are read as one 64-bit word and converted by three multiplications (Lemire, "Number parsing at a gigabyte
per second", Software: Practice and Experience 51, 2021).

The positions of all other fields (nan, inf, blanks, extreme exponents, ties) are returned to the caller.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp, ldexp
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from steinstream._engine.jit import bare, inlined

#: Number of bytes that must follow the text, so that eight bytes can be read at its last one.
PAD = 8
_LARGEST_EXPONENT = 64  # largest |e| of 10^e in the table

#: Position of a field that was not parsed: row and column of the table, first byte, last byte + 1.
FIELD = np.dtype([("row", np.int64), ("column", np.int64), ("begin", np.int64), ("end", np.int64)])

_POINT, _MINUS, _PLUS, _COMMA, _NEWLINE, _RETURN, _HASH, _EXPONENT = b".-+,\n\r#e"


def _powers():
    """Return the powers of ten as heads of 21 bits and tails."""
    heads, tails = [], []
    for exponent in range(-_LARGEST_EXPONENT, _LARGEST_EXPONENT + 1):
        exact = Fraction(10) ** exponent
        mantissa, shift = frexp(float(exact))
        heads.append(ldexp(floor(mantissa * 2**21), shift - 21))
        tails.append(float(exact - Fraction(heads[-1])))
    return np.array(heads), np.array(tails)


_HEADS, _TAILS = _powers()
_EXACT = np.array([10.0**k for k in range(23)])


@intrinsic
def _word(context, data, at):
    """Load eight bytes from any position, the first one lowest. Reference: `int.from_bytes`."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        where = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(where, align=1)

    return types.uint64(data, types.int64), generate


@inlined
def _are_digits(word):
    """Whether all eight bytes are digits. Reference: `bytes.isdigit`."""
    high = word & np.uint64(0xF0F0F0F0F0F0F0F0)
    carried = (word + np.uint64(0x0606060606060606)) & np.uint64(0xF0F0F0F0F0F0F0F0)
    return (high | (carried >> np.uint64(4))) == np.uint64(0x3333333333333333)


@inlined
def _eight_digits(word):
    """Convert eight digits to a number. Reference: `int`."""
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561) >> np.uint64(8)
    word = (word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    return (word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32)


@inlined
def _rounded(mantissa, exponent):
    """Return the float64 nearest to mantissa 10^exponent, and whether it is certain to be the nearest.

    Reference: `float`.
    """
    if mantissa < np.uint64(1 << 53) and -22 <= exponent <= 22:
        value = np.float64(np.int64(mantissa))
        return (value / _EXACT[-exponent] if exponent < 0 else value * _EXACT[exponent]), True
    if mantissa == np.uint64(0):
        return 0.0, True
    if exponent < -_LARGEST_EXPONENT or exponent > _LARGEST_EXPONENT:
        return 0.0, False
    high = np.float64(np.int64(mantissa >> np.uint64(32))) * 4294967296.0
    low = np.float64(np.int64(mantissa & np.uint64(0xFFFFFFFF)))
    head, tail = _HEADS[exponent + _LARGEST_EXPONENT], _TAILS[exponent + _LARGEST_EXPONENT]
    large, small = high * head, low * head
    total = large + small
    rest = small - (total - large)  # rounding error of the sum, exactly
    rest += (high + low) * tail
    slack = total * 2.0**-70
    upper = total + (rest + slack)
    return upper, upper == total + (rest - slack)


class Text(NamedTuple):
    """Bytes of complete lines: a newline at ``stop - 1``, then ``PAD`` more bytes."""

    data: Any
    stop: int


class Layout(NamedTuple):
    """Number of fields per line, and for each field its column in the table or -1."""

    width: int
    columns: Any


@bare
def parse_lines(text, at, layout, table, row, unparsed):
    """Parse lines from byte ``at`` on into the table from row ``row`` on.

    Blank lines and lines that start with # are skipped. ``unparsed`` receives the positions (:data:`FIELD`) of the
    fields that the caller has to parse; when it is full, the function returns early.

    Reference: `csv.reader`, `float`.

    Returns
    -------
    tuple of int
        The byte after the last parsed line, the number of rows of the table (-1 if a line has a different number of
        fields), and the number of unparsed fields.
    """
    data, stop, width, columns = text.data, text.stop, layout.width, layout.columns
    count = np.int64(0)
    while at < stop:
        byte = data[at]
        if byte == _NEWLINE:
            at += 1
            continue
        if byte == _RETURN and data[at + 1] == _NEWLINE:
            at += 2
            continue
        if byte == _HASH:
            while data[at] != _NEWLINE:
                at += 1
            at += 1
            continue
        if count + width > len(unparsed):
            return at, row, count
        for field in range(width):
            column = columns[field]
            first = at
            sure = True
            if column >= 0:
                negative = data[at] == _MINUS
                if negative:
                    at += 1
                begin = at
                mantissa = np.uint64(0)
                digit = np.uint64(data[at]) - np.uint64(48)
                while digit <= np.uint64(9):
                    mantissa = mantissa * np.uint64(10) + digit
                    at += 1
                    digit = np.uint64(data[at]) - np.uint64(48)
                digits = at - begin
                exponent = np.int64(0)
                if data[at] == _POINT:
                    at += 1
                    point = at
                    word = _word(data, at)
                    while _are_digits(word):
                        mantissa = mantissa * np.uint64(100000000) + _eight_digits(word)
                        at += 8
                        word = _word(data, at)
                    digit = np.uint64(data[at]) - np.uint64(48)
                    while digit <= np.uint64(9):
                        mantissa = mantissa * np.uint64(10) + digit
                        at += 1
                        digit = np.uint64(data[at]) - np.uint64(48)
                    exponent = point - at
                    digits -= exponent
                sure = digits > 0
                if digits > 19:  # leading zeros do not count
                    here = begin
                    while digits > 19 and (data[here] == 48 or data[here] == _POINT):
                        if data[here] == 48:
                            digits -= 1
                        here += 1
                    sure = digits <= 19
                if data[at] | 0x20 == _EXPONENT:
                    at += 1
                    down = data[at] == _MINUS
                    if down or data[at] == _PLUS:
                        at += 1
                    begin = at
                    power = np.int64(0)
                    digit = np.uint64(data[at]) - np.uint64(48)
                    while digit <= np.uint64(9) and at - begin < 5:
                        power = power * 10 + np.int64(digit)
                        at += 1
                        digit = np.uint64(data[at]) - np.uint64(48)
                    sure = sure and at > begin
                    exponent += -power if down else power
                value, certain = _rounded(mantissa, exponent)
                table[row, column] = -value if negative else value
                sure = sure and certain
                byte = data[at]
                sure = sure and (byte in (_COMMA, _NEWLINE, _RETURN))
            while data[at] != _COMMA and data[at] != _NEWLINE:
                if data[at] != _RETURN or data[at + 1] != _NEWLINE:
                    sure = sure and data[at] != _RETURN
                at += 1
            if (data[at] == _NEWLINE) != (field == width - 1):
                return at, np.int64(-1), count
            if column >= 0 and not sure:
                position = unparsed[count]
                position.row, position.column, position.begin, position.end = row, column, first, at
                count += 1
            at += 1
        row += 1
    return at, row, count

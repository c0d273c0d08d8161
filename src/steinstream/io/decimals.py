"""Text to float64, a whole chunk at a time, every field correctly rounded.

numpy's reader converts one field after another, at some 340 ns each. Here each step is one array operation
over all fields of a chunk, some 80 ns a field of 17 digits:

1. *Marks* are the positions of all bytes that are not digits. Separators are marks, and so are a field's
   sign, point and exponent: the grammar ``[-]digits[.digits][e[+-]digits]`` is read off the marks alone.
2. *Digits*: eight digits are one 64-bit word, made a number by three multiplications (Lemire, "Number
   parsing at a gigabyte per second", Software: Practice and Experience 51, 2021).
3. *Rounding*: the value is m 10^e with an integer m < 10^19. Write 10^e = head + tail, where head has 21
   bits: then both 32-bit halves of m times head are exact in float64, and what is left, m tail, is small.
   The sum is known within 2^-70 of its size. If both ends of that interval round to the same float64, it is
   the nearest.

A field that does not fit (nan, inf, blanks, extreme exponents, ties) goes through Python's ``float``; the
result is that of ``float`` for every field, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor, frexp, ldexp
from typing import Any

import numpy as np
import numpy.typing as npt

from steinstream.io.chain import Floats, Ints

_Words = npt.NDArray[np.uint64]
_Flags = npt.NDArray[np.bool_]

_POINT, _MINUS, _PLUS, _COMMA, _NEWLINE, _EXPONENT = b".-+,\ne"
# Digits in front of the text let a window of 24 bytes end at its first byte; digits leave no marks.
_PAD = b"0" * 32
_REACH = 64  # largest |e| of 10^e in the table


def _powers() -> tuple[Floats, Floats]:
    heads, tails = [], []
    for exponent in range(-_REACH, _REACH + 1):
        exact = Fraction(10) ** exponent
        mantissa, shift = frexp(float(exact))
        heads.append(ldexp(floor(mantissa * 2**21), shift - 21))
        tails.append(float(exact - Fraction(heads[-1])))
    return np.array(heads), np.array(tails)


_HEADS, _TAILS = _powers()
_TENS = np.array([10**k for k in range(20)], dtype=np.uint64)
_DROP = np.arange(64, -1, -8).astype(np.uint64)  # bits before the last k digits of a word


def number(field: bytes) -> float | None:
    """One field as a number, or None if it is not one.

    >>> number(b" 1e-3"), number(b"nan"), number(b"1_000")
    (0.001, nan, None)
    """
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def parse(text: bytes, width: int, chosen: Sequence[int]) -> Floats | None:
    """The ``chosen`` columns of whole lines of ``width`` fields; None if some line or field is wrong."""
    padded = _PAD + text
    data = np.frombuffer(padded, np.uint8)
    marks = np.flatnonzero(data - np.uint8(ord("0")) > 9)  # bytes below "0" wrap around to large ones
    kinds = data[marks]
    ends = np.flatnonzero((kinds == _COMMA) | (kinds == _NEWLINE))
    if ends.size % width:
        return None
    if not ends.size:
        return np.empty((0, len(chosen)))
    closes = (kinds[ends] == _NEWLINE).reshape(-1, width)
    if not closes[:, -1].all() or closes[:, :-1].any():
        return None
    firsts = np.concatenate(([0], ends[:-1] + 1))
    starts = np.concatenate(([len(_PAD)], marks[ends[:-1]] + 1))
    first, start, last = (field.reshape(-1, width)[:, chosen].ravel() for field in (firsts, starts, ends))
    values, sure = _values(data, marks, kinds, first, start, last)
    for i in np.flatnonzero(~sure).tolist():
        value = number(padded[start[i] : marks[last[i]]])
        if value is None:
            return None
        values[i] = value
    return values.reshape(-1, len(chosen))


def _values(
    data: npt.NDArray[np.uint8],
    marks: Ints,
    kinds: npt.NDArray[np.uint8],
    first: Ints,
    start: Ints,
    last: Ints,
) -> tuple[Floats, _Flags]:
    """Value of each field, and whether it is certain; its marks are ``first`` to ``last``, its end."""
    signed = kinds[first] == _MINUS
    sure = ~signed | (marks[first] == start)
    first = first + signed
    pointed = kinds[first] == _POINT
    after = first + pointed
    # Where there is no point, the integer part ends where the fraction does.
    point, stop = marks[first], marks[after]
    whole, fraction = point - start - signed, stop - point - pointed
    exponent = -fraction
    odd = np.flatnonzero(after != last)
    if odd.size:
        power, well = _exponents(data, marks, kinds, after[odd], last[odd])
        exponent[odd] += power
        sure[odd] &= well
    sure &= (whole + fraction > 0) & (whole <= 8) & (fraction <= 24) & (np.abs(exponent) <= _REACH)

    mantissa = _eight(_window(data, point, 1)[:, 0], whole)
    sure &= (mantissa == 0) | (whole + fraction <= 19)
    mantissa *= _TENS.take(fraction, mode="clip")
    words = min(-(-int(fraction.max()) // 8), 3)
    if words:
        tail = _window(data, stop, words)
        for k in range(words):
            digits = _eight(tail[:, words - 1 - k], fraction - 8 * k)
            if k == 2:
                sure &= digits < 1000
            mantissa += digits * _TENS[8 * k]
    magnitude, certain = _rounded(mantissa, exponent)
    return np.where(signed, -magnitude, magnitude), sure & certain


def _exponents(
    data: npt.NDArray[np.uint8], marks: Ints, kinds: npt.NDArray[np.uint8], mark: Ints, last: Ints
) -> tuple[Ints, _Flags]:
    """Value of ``e[+-]digits`` from its mark to the field's last, and whether that is what stands there."""
    sign = kinds[mark + 1]
    signed = ((sign == _MINUS) | (sign == _PLUS)) & (marks[mark + 1] == marks[mark] + 1)
    length = marks[last] - marks[mark] - 1 - signed
    well = (kinds[mark] | 0x20 == _EXPONENT) & (mark + 1 + signed == last) & (length > 0) & (length <= 4)
    power = _eight(_window(data, marks[last], 1)[:, 0], np.minimum(length, 4)).view(np.int64)
    return np.where(signed & (sign == _MINUS), -power, power), well


def _window(data: npt.NDArray[np.uint8], stop: Ints, words: int) -> _Words:
    """The 8 ``words`` bytes before each ``stop``, as little-endian words."""
    size = 8 * words
    # A void item of any size may start at any byte, which a word may not: numpy copies it with memcpy.
    everywhere: npt.NDArray[Any] = np.ndarray((data.size - size + 1,), f"V{size}", data, strides=(1,))
    return everywhere[stop - size].view("<u8").reshape(-1, words)


def _eight(word: _Words, digits: Ints) -> _Words:
    """The number in the last ``digits`` of a word's eight characters (none if negative, all if more)."""
    drop = _DROP.take(digits, mode="clip")
    word = word >> drop
    word <<= drop
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 1 + (10 << 8), 8),
        (0x00FF00FF00FF00FF, 1 + (100 << 16), 16),
        (0x0000FFFF0000FFFF, 1 + (10000 << 32), 32),
    ):
        word &= np.uint64(mask)
        word *= np.uint64(factor)
        word >>= np.uint64(shift)
    return word


def _rounded(mantissa: _Words, exponent: Ints) -> tuple[Floats, _Flags]:
    """The float64 nearest to mantissa 10^exponent, and whether it surely is."""
    high = (mantissa >> np.uint64(32)).astype(np.float64) * 2.0**32
    low = (mantissa & np.uint64(0xFFFFFFFF)).astype(np.float64)
    index = exponent + _REACH
    head, tail = _HEADS.take(index, mode="clip"), _TAILS.take(index, mode="clip")
    large, small = high * head, low * head
    total = large + small
    rest = small - (total - large)  # what the sum lost, exactly
    rest += (high + low) * tail
    slack = total * 2.0**-70
    upper = total + (rest + slack)
    return upper, upper == total + (rest - slack)

"""Text to float64, a chunk at a time: the result is that of Python's ``float`` for every field, bit for bit.

The compiled pass (:mod:`steinstream._engine.csv_parser`) reads all common fields; the few others (nan, inf, blanks,
extreme exponents, ties) go through ``float`` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steinstream.io.base import Floats

_ODD = 4096  # fields left to ``float`` before the compiled pass goes on


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
    """The ``chosen`` columns of lines of ``width`` fields; None if some line or field is wrong.

    Blank lines and comments are passed over.
    """
    from steinstream._engine import csv_parser as compiled  # loaded when a file is read

    scan: Any = compiled.scan
    padded = text if text.endswith(b"\n") else text + b"\n"
    stop = len(padded)
    data = np.frombuffer(padded + bytes(compiled.PAD), np.uint8)
    slots = np.full(width, -1, np.int64)
    slots[list(chosen)[::-1]] = np.arange(len(chosen))[::-1]  # of a column chosen twice, the first place
    table = np.empty((stop // width + 1, len(chosen)))  # a field takes at least its separator
    odd = np.empty((max(width, _ODD), 4), np.int64)
    at, rows = 0, 0
    while at < stop:
        at, rows, odds = scan(data, at, stop, width, slots, table, rows, odd)
        if rows < 0:
            return None
        for row, slot, first, last in odd[:odds].tolist():
            value = number(padded[first:last])
            if value is None:
                return None
            table[row, slot] = value
    for place, column in enumerate(chosen):
        if slots[column] != place:
            table[:rows, place] = table[:rows, slots[column]]
    return table[:rows]

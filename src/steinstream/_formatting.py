"""Text of numbers and of lists of names in messages, tables and reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_MOST_DECIMALS = 12  # more are written with an exponent
_FEWEST_DECIMALS, _PLAIN_DECIMALS = -4, 6  # outside of this range, an exponent that is common to a parameter


def count(number: int) -> str:
    """Format an integer with thousands separated by spaces.

    Returns
    -------
    str
        The digits, in groups of three.

    Examples
    --------
    >>> count(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")


def number(value: float) -> str:
    """Format a number with three significant digits.

    Returns
    -------
    str
        The number, with an exponent if it is very large or very small.

    Examples
    --------
    >>> number(0.012345), number(412.34), number(2.5e-7), number(140000.0)
    ('0.0123', '412', '2.5e-07', '1.4e+05')
    """
    return f"{value:.3g}"


def listing(names: Iterable[str], limit: int = 12) -> str:
    """Join names with commas, at most ``limit`` of them.

    Returns
    -------
    str
        The names, followed by their total number if some are left out; "nothing" if there are none.

    Examples
    --------
    >>> listing(["theta", "score"])
    'theta, score'
    >>> listing("abc", limit=2)
    'a, b, ... (3 in all)'
    """
    known = list(names)
    more = f", ... ({len(known)} in all)" if len(known) > limit else ""
    return (", ".join(known[:limit]) + more) or "nothing"


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Suggest the known names that are most similar to an unknown one, at most ``most`` of them.

    Returns
    -------
    str
        A question that ends with a space, or an empty string if no name is similar.

    Examples
    --------
    >>> nearest("score", ["theta", "scores"])
    'Did you mean scores? '
    >>> nearest("shore", ["theta", "scores", "score"], most=2)
    'Did you mean score or scores? '
    """
    import difflib

    close = difflib.get_close_matches(name, list(known), n=most)
    return f"Did you mean {' or '.join(close)}? " if close else ""


def rounded(value: float, scale: float) -> str:
    """Format a number with a precision of 1/2000 to 1/200 of a standard deviation, ``scale``.

    Returns
    -------
    str
        The number, with an exponent if it is very large or requires many decimals. Numbers of similar size with the
        same ``scale`` have the same exponent.

    Examples
    --------
    >>> rounded(1.10234, 0.0123), rounded(1.10234, 12.3), rounded(123456.7, 4e4)
    ('1.10234', '1.10', '123457')
    >>> rounded(1.5e-20, 1e-21), rounded(-2.43e-6, 1.5e-6), rounded(-1.1e-8, 1.5e-6)
    ('15.000e-21', '-2.430e-06', '-0.011e-06')
    """
    if not (math.isfinite(value) and math.isfinite(scale) and scale > 0):
        return f"{value:.6g}"
    decimals = 2 - math.floor(math.log10(scale / 2.0))
    magnitude, power = (math.floor(math.log10(abs(each))) if each else 0 for each in (value, scale))
    if not _FEWEST_DECIMALS <= decimals <= _PLAIN_DECIMALS and abs(value) < 1e4 * scale:
        return f"{value / 10.0**power:.{decimals + power}f}e{power:+03d}"
    if decimals > _MOST_DECIMALS or magnitude > _MOST_DECIMALS:
        return f"{value:.{min(max(magnitude + decimals, 3), 16)}e}"
    return f"{value:.{max(decimals, 0)}f}"


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Align the cells of a table: the first ``left`` columns to the left, the others to the right.

    Returns
    -------
    list of str
        The lines of the table.

    Examples
    --------
    >>> aligned([["", "mean"], ["peak", "1.5"]])
    ['      mean', 'peak   1.5']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]

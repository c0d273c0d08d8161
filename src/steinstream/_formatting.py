"""Text of numbers and of lists of names in messages, tables and reports."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def count(number: int) -> str:
    """Format an integer with thousands separated by spaces.

    Parameters
    ----------
    number : int
        The integer.

    Returns
    -------
    str
        Its digits in groups of three.

    Examples
    --------
    >>> count(1234567)
    '1 234 567'

    """
    return f"{number:,}".replace(",", " ")


def number(value: float) -> str:
    """Format a number with three significant digits.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        Its text.

    Examples
    --------
    >>> number(0.012345), number(412.34), number(2.5e-7), number(140000.0)
    ('0.0123', '412', '2.5e-07', '1.4e+05')

    """
    return f"{value:.3g}"


def listing(names: Iterable[str], limit: int = 12) -> str:
    """Join names with commas.

    Parameters
    ----------
    names : iterable of str
        The names.
    limit : int, default 12
        Number of names after which the list is shortened.

    Returns
    -------
    str
        The list, or "nothing".

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


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is most similar to an unknown one.

    Parameters
    ----------
    name : str
        The unknown name.
    known : iterable of str
        The known names.

    Returns
    -------
    str
        A question followed by a space, or an empty string if no name is similar.

    Examples
    --------
    >>> nearest("score", ["theta", "scores"])
    'Did you mean scores? '

    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]}? " if close else ""

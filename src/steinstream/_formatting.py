"""How numbers are written for people."""

from __future__ import annotations


def count(number: int) -> str:
    """``1 234 567``.

    >>> count(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")


def number(value: float) -> str:
    """Three digits, as they are worth.

    >>> number(0.012345), number(412.34), number(2.5e-7), number(140000.0)
    ('0.0123', '412', '2.5e-07', '1.4e+05')
    """
    return f"{value:.3g}"

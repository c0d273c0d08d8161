"""Further quantities of the kept draws, and the groups of ArviZ that contain them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from steinstream._typing import AnyArray, Integers

#: Groups of ArviZ that describe the model rather than the draws.
MODEL_GROUPS = ("observed_data", "constant_data", "predictions_constant_data")


class Variable(NamedTuple):
    """A further quantity of each kept draw, such as a constrained parameter of the user's model.

    Attributes
    ----------
    values : array
        Values, (n, ...).
    dims : tuple of str
        Names of the dimensions after the first.
    coords : mapping
        Labels along some of these dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> Variable(np.ones((2, 3)), ("kind",), {"kind": np.array(["a", "b", "c"])}).values.shape
    (2, 3)
    """

    values: AnyArray
    dims: tuple[str, ...] = ()
    coords: Mapping[str, AnyArray] = {}


def rows_of(variables: Mapping[str, Variable], rows: Integers) -> dict[str, Variable]:
    """Return variables at some of the draws."""
    return {name: one._replace(values=one.values[rows]) for name, one in variables.items()}

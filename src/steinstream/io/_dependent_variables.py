"""Variables that are functions of other variables, such as the deterministic ones of a PyMC model.

A file does not mark them. Three kinds are found from some draws: linear functions of variables before them (by
projection), monotone functions of one variable before them (by equal ranks), and affine functions of variables before
them and of products of two of these, such as ``mu + tau * z`` (by least squares, checked at other draws). Distinct
parameters of a sampler are none of these, unless by rounding. PyMC writes the parameters first. NumPyro sorts
the variables by name, so that products of variables after a variable are tried as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array, Integers

_MIN_DRAWS = 50  # distinct draws from which a function is recognised
_TOLERANCE = 1e-5  # residual relative to the standard deviation
_ROUNDING = 16  # residual in units of the precision of the values
_MAX_FACTORS = 10  # variables of which products are formed
_MAX_ELEMENTS = 20  # elements of a large variable for which this is done


def dependent_variables(variables: Mapping[str, Array], *, sorted_by_name: bool = False) -> dict[str, str]:
    """Find variables all of whose elements are functions of other variables, from values (n, ...) at the same draws.

    If ``sorted_by_name``, parameters may be written after functions of them.

    Returns
    -------
    dict
        Name of a dependent variable -> what it is.

    Examples
    --------
    >>> a, b, c = np.random.default_rng(0).normal(size=(3, 200))
    >>> found = dependent_variables({"a": a, "b": b, "c": c, "sum": a + b, "exp_a": np.exp(a), "theta": a + b * c})
    >>> found["sum"], found["exp_a"], found["theta"]
    ('linear function of other variables', 'function of a', 'function of products of other variables')
    """
    rows = _distinct_rows(variables)
    if len(rows) < _MIN_DRAWS:
        return {}
    each = [_Variable.of(name, values, rows) for name, values in variables.items()]
    found = _linear_or_monotone(each)
    linear = {*found}
    for place, one in enumerate(each):
        before = [other for other in each[:place] if other.name in linear or other.name not in found]
        after = [other for other in each[place + 1 :] if sorted_by_name and other.name not in found]
        if one.name not in found and _is_of_products(one, before + after):
            found[one.name] = "function of products of other variables"
    return found


class _Variable(NamedTuple):
    """The values of a variable at distinct draws, each element divided by a power of two and minus its mean."""

    name: str
    shape: tuple[int, ...]
    values: Array
    """Values with the mean, (elements, n), at most 1."""
    columns: Array
    """Values without the mean, exactly 0 if the element is constant."""
    precision: float

    @classmethod
    def of(cls, name: str, given: Array, rows: Integers) -> _Variable:
        """Select the distinct draws."""
        values = np.asarray(given).reshape(len(given), -1)[rows].T.astype(np.float64)
        values = np.ldexp(values, -np.frexp(np.abs(values).max(axis=1, keepdims=True))[1])
        constant = np.ptp(values, axis=1, keepdims=True) == 0
        columns = np.where(constant, 0.0, values - values.mean(axis=1, keepdims=True))
        precision = np.finfo(given.dtype).eps if given.dtype.kind == "f" else 0.0
        return cls(name, np.shape(given)[1:], values, columns, float(precision))

    def rounding(self, rows: slice = slice(None)) -> Array:
        """Return for each element the norm of residuals at some draws that may be rounding errors."""
        sizes = [np.linalg.norm(each[:, rows], axis=1) for each in (self.columns, self.values)]
        return np.asarray(_TOLERANCE * sizes[0] + _ROUNDING * self.precision * sizes[1])


def _distinct_rows(variables: Mapping[str, Array]) -> Integers:
    """Return the draws without repetitions at which all values are finite."""
    if not variables:
        return np.arange(0)
    table = np.hstack([np.asarray(values, dtype=np.float64).reshape(len(values), -1) for values in variables.values()])
    finite = np.flatnonzero(np.isfinite(table).all(axis=1))
    return finite[np.unique(table[finite], axis=0, return_index=True)[1]]


def _linear_or_monotone(variables: Sequence[_Variable]) -> dict[str, str]:
    """Find linear and monotone functions of variables before them."""
    count = variables[0].values.shape[1]
    basis = np.full((1, count), count**-0.5)
    ranks: dict[bytes, str] = {}  # of elements without ties
    found = {}
    for one in variables:
        rest = one.columns - one.columns @ basis.T @ basis
        rest -= rest @ basis.T @ basis  # twice, because of rounding
        varied = [len(np.unique(element)) == count for element in one.values]
        same_ranks = [ranks.get(_ranks(element)) for element in one.values]
        linear = (np.linalg.norm(rest, axis=1) <= one.rounding()).all()
        if one.columns.any() and linear and len(basis) < count // 2:
            found[one.name] = f"function of {same_ranks[0]}" if len(same_ranks) == 1 and same_ranks[0] else _LINEAR
        elif all(varied) and None not in same_ranks:
            same = len(set(same_ranks)) == 1
            found[one.name] = f"function of {same_ranks[0]}" if same else "function of other variables"
        elif len(basis) + len(rest) < count // 2:
            left, size, _ = np.linalg.svd(rest.T, full_matrices=False)
            basis = np.vstack([basis, left.T[size > _TOLERANCE * np.linalg.norm(one.columns)]])
        own = {key: one.name for element in one.values[varied] for key in (_ranks(element), _ranks(-element))}
        ranks = own | ranks
    return found


_LINEAR = "linear function of other variables"


def _ranks(element: Array) -> bytes:
    return np.argsort(element, kind="stable").tobytes()


def _is_of_products(one: _Variable, others: Sequence[_Variable]) -> bool:
    """Return whether each element is an affine function of other variables and of products of two of them.

    The other variables are those of the same shape, at the same element, and scalars. The function is fitted to half of
    the draws and checked at the others, for at most 20 evenly spaced elements.
    """
    same = [other for other in others if other.shape == one.shape]
    scalars = [other for other in others if other.shape == () != one.shape]
    fitted, checked = slice(0, None, 2), slice(1, None, 2)
    most = _most_factors(one.columns.shape[1] // 4)
    rounding = one.rounding(checked)
    for place in np.unique(np.linspace(0, len(one.columns) - 1, _MAX_ELEMENTS, dtype=np.int64)).tolist():
        column = one.columns[place]
        found = [other.columns[place if other.shape == one.shape else 0] for other in (*same, *scalars)]
        factors = [factor for factor in found if factor.any()][:most]
        products = [a * b for a, b in combinations_with_replacement(factors, 2)]
        terms = np.column_stack([np.ones(len(column)), *factors, *products])
        coefficients = np.linalg.lstsq(terms[fitted], column[fitted], rcond=None)[0]
        if np.linalg.norm(column[checked] - terms[checked] @ coefficients) > rounding[place]:
            return False
    return bool(one.columns.any())


def _most_factors(terms: int) -> int:
    """Return the number of factors, at most 10, that have at most this number of terms."""
    return max(count for count in range(_MAX_FACTORS + 1) if (count + 1) * (count + 2) // 2 <= terms)

"""Variables that are functions of other variables, such as the deterministic ones of a PyMC model.

A file does not mark them. Two kinds are found from some draws: linear functions of variables before them (by
projection), and monotone functions of one variable before them (by equal ranks). Distinct parameters of a sampler are
neither, unless by rounding. PyMC writes the parameters first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steinstream._typing import Array

_MIN_DRAWS = 50  # distinct draws from which a function is recognised
_TOLERANCE = 1e-5  # residual relative to the values, of float32 as well


def dependent_variables(variables: Mapping[str, Array]) -> dict[str, str]:
    """Find variables all of whose elements are functions of variables before them.

    Parameters
    ----------
    variables : mapping
        Name -> values (n, ...) at the same draws.

    Returns
    -------
    dict
        Name of a dependent variable -> what it is.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> found = dependent_variables({"a": x[:, 0], "b": x[:, 1], "sum": x.sum(axis=1), "exp_a": np.exp(x[:, 0])})
    >>> found
    {'sum': 'linear function of other variables', 'exp_a': 'function of a'}

    """
    flat = {name: np.asarray(values, dtype=np.float64).reshape(len(values), -1) for name, values in variables.items()}
    if not flat:
        return {}
    table = np.hstack([*flat.values()])
    rows = np.unique(table[np.isfinite(table).all(axis=1)], axis=0, return_index=True)[1]
    if len(rows) < _MIN_DRAWS:
        return {}
    basis = np.full((1, len(rows)), len(rows) ** -0.5)
    ranks: dict[bytes, str] = {}  # of columns without ties
    found = {}
    for name, values in flat.items():
        columns = values[np.isfinite(table).all(axis=1)][rows].T
        rest = columns - columns @ basis.T @ basis
        rest -= rest @ basis.T @ basis  # twice, because of rounding
        linear = np.linalg.norm(rest, axis=1) <= _TOLERANCE * np.linalg.norm(columns, axis=1)
        varied = [len(np.unique(column)) == len(rows) for column in columns]
        same_ranks = [ranks.get(_ranks(column)) for column in columns]
        if np.ptp(columns, axis=1).any() and linear.all() and len(basis) < len(rows) // 2:
            found[name] = f"function of {same_ranks[0]}" if len(same_ranks) == 1 and same_ranks[0] else _LINEAR
        elif all(varied) and None not in same_ranks:
            found[name] = f"function of {same_ranks[0]}" if len(set(same_ranks)) == 1 else "function of other variables"
        else:
            continuous = columns[varied]
            ranks = {key: name for column in continuous for key in (_ranks(column), _ranks(-column))} | ranks
            if len(basis) + len(rest) < len(rows) // 2:
                left, size, _ = np.linalg.svd(rest.T, full_matrices=False)
                basis = np.vstack([basis, left.T[size > _TOLERANCE * np.linalg.norm(columns)]])
    return found


_LINEAR = "linear function of other variables"


def _ranks(column: Array) -> bytes:
    return np.argsort(column, kind="stable").tobytes()

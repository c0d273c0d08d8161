"""Scores of stored draws: the result that the integrations share, and the evaluation of distinct states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array
from steinstream.api import thin
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import with_source
from steinstream.result import Kept, Variable
from steinstream.validation import as_floats, consecutive_ids


class ScoredDraws(NamedTuple):
    """The draws of a finished fit in unconstrained space, with their scores.

    ``ss.thin(fit.draws, fit.scores, size=200)`` accepts the arrays; `thin` also sets names and variables.

    Attributes
    ----------
    draws : array
        Unconstrained draws, (n, d) or (chains, n, d).
    scores : array
        Scores of the draws, in the same shape.
    names : tuple of str
        Names of the d unconstrained parameters.
    variables : mapping
        Variables of the user's model by name, with values (n, ...) or (chains, n, ...).
    tool : str
        Name of the package that computed the fit.
    diverging : array of bool, optional
        Whether each draw ended a divergent transition, (n,) or (chains, n).
    """

    draws: Array
    scores: Array
    names: tuple[str, ...]
    variables: Mapping[str, Variable] = {}
    tool: str = "generic"
    diverging: AnyArray | None = None

    def thin(self, size: int | None = None, **settings: Any) -> Kept:
        """Thin the draws.

        Parameters
        ----------
        size : int, optional
            Number of draws to keep.
        **settings
            Further arguments of :func:`steinstream.thin`.

        Returns
        -------
        Kept
            The kept draws, with parameter names and the variables of the user's model. ``settings["source"]`` holds
            R-hat and ESS of the stored chains, and the number of divergences if it is known.
        """
        kept = with_source(
            thin(self.draws, self.scores, size, names=self.names, **settings), self.tool, self._convergence()
        )
        chain, draw = kept.ids.T
        for name, variable in self.variables.items():
            rows = variable.values[chain, draw] if self.draws.ndim == 3 else variable.values[draw]
            kept.variables[name] = variable._replace(values=rows)
        return kept

    def _convergence(self) -> RunningConvergence:
        """Return R-hat and ESS of the stored chains."""
        convergence = RunningConvergence(self.draws.shape[-1])
        chains = self.draws if self.draws.ndim == 3 else self.draws[None]
        diverging = None if self.diverging is None else np.reshape(self.diverging, chains.shape[:2])
        for chain, draws in enumerate(chains):
            ids = consecutive_ids(chain, 0, len(draws))
            convergence.add(ids, draws, None if diverging is None else diverging[chain])
        return convergence


def diverging_in(fit: Any) -> AnyArray | None:
    """Return whether each draw of a DataTree or an InferenceData, (chains, n), diverged; None if that is not stored."""
    stats = getattr(fit, "sample_stats", None)
    if stats is None or "diverging" not in stats:
        return None
    return np.asarray(stats["diverging"].transpose("chain", "draw").values)


def for_distinct_states(
    scores: Callable[[Array], Array],
    draws: ArrayLike,
    *,
    batch: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Array:
    """Evaluate a function of distinct states (n, d) for draws (n, d) or (chains, n, d).

    The function receives ``batch`` states at a time, or all if there are fewer: arrays of one shape, for which it is
    compiled once. ``progress`` is called with the finished fraction after each batch. Returns an array in the shape of
    the draws.
    """
    x = as_floats(draws, "draws")
    if x.ndim not in (2, 3):
        raise InputError(
            f"Draws must have shape (draws, dimensions) or (chains, draws, dimensions), got shape {x.shape}."
        )
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) == 0:
        return np.zeros(x.shape)
    states, inverse = np.unique(rows, axis=0, return_inverse=True)
    values, size = np.empty(states.shape), min(batch or len(states), len(states))
    for start in range(0, len(states), size):
        part = slice(min(start, len(states) - size), start + size)  # the last batch overlaps the one before
        found = scores(states[part])
        if found.shape != states[part].shape:
            raise InputError(
                f"The scores of draws of shape {states[part].shape} have shape {found.shape}.",
                "The function must return the gradient of the log density with respect to one draw.",
            )
        values[part] = found
        if progress is not None:
            progress(min(start + size, len(states)) / len(states))
    return np.asarray(values[inverse.ravel()].reshape(x.shape), dtype=np.float64)

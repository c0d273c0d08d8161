"""emcee: a backend that stores the kept draws, and the current positions of the walkers instead of the chain.

emcee does not need a score, but KSD does. Either the log probability function returns it as a blob, or the backend is
given a function. Walkers are chains: ids are (walker, step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steinstream._typing import Array, Flags
from steinstream.errors import InputError
from steinstream.integrations._common import live_config, need, result_of
from steinstream.integrations.generic import batched_score, variables_of
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig

try:
    _Base: Any = need("emcee", "emcee").backends.Backend
except InputError:  # raised again when a backend is created
    _Base = object


class Backend(_Base):  # type: ignore[misc]
    """Backend for ``emcee.EnsembleSampler(..., backend=...)`` that stores the kept draws.

    Parameters
    ----------
    score : callable or {"jax", "torch"}, optional
        Function of one position that returns its score, or the package that differentiates ``log_density``. Default:
        the score is the blob ``field``, or the only blob.
    log_density : callable, optional
        Log density of one position, written with JAX or PyTorch.
    field : str, default "score"
        Name of the blob with the score, as in ``blobs_dtype=[("score", float, ndim)]``.
    names : tuple of str, optional
        Parameter names.
    transform : callable, optional
        Function of one position that returns a dict of variables, which are computed for the kept draws.
    discard : int, default 0
        Number of steps at the start that are not passed to the thinner.
    config : ThinConfig, optional
        Settings of the thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. The default preconditioner is
        `Streaming`.

    Attributes
    ----------
    thinner : Thinner or None
        The thinner; None before the sampler starts.

    """

    def __init__(
        self,
        *,
        score: str | Callable[[Any], Any] | None = None,
        log_density: Callable[[Any], Any] | None = None,
        field: str = "score",
        names: tuple[str, ...] | None = None,
        transform: Callable[[Array], dict[str, Any]] | None = None,
        discard: int = 0,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        need("emcee", "emcee")
        super().__init__()
        self._config = live_config(config, settings)
        self._score, self._field = batched_score(score, log_density), field
        self._names, self._transform, self._discard = names, transform, discard
        self.thinner: Thinner | None = None

    def reset(self, nwalkers: int, ndim: int) -> None:
        """Delete the kept draws and start again; called by emcee."""
        super().reset(nwalkers, ndim)
        self.thinner = Thinner(self.ndim, self._config)
        self._last: Any = None

    def has_blobs(self) -> bool:
        """Return whether the latest step had blobs; called by emcee."""
        return self._last is not None and self._last.blobs is not None

    def grow(self, ngrow: int, blobs: Any) -> None:
        """Do nothing, because the chain is not stored; called by emcee."""

    def save_step(self, state: Any, accepted: Flags) -> None:
        """Pass the positions of the walkers to the thinner; called by emcee.

        Parameters
        ----------
        state : emcee.State
            State of the ensemble.
        accepted : array of bool
            Walkers that moved, (walkers,).

        Raises
        ------
        InputError
            If the ensemble has another shape or lacks scores.

        """
        if state.coords.shape != self.shape:
            raise InputError(f"The walkers have shape {state.coords.shape}, but the backend has shape {self.shape}.")
        if self.iteration >= self._discard and self.thinner is not None:
            walkers = np.arange(self.nwalkers)
            ids = np.column_stack([walkers, np.full(self.nwalkers, self.iteration)])
            scores = self._blob(state.blobs) if self._score is None else self._score(state.coords)
            self.thinner.extend(state.coords, scores, ids=ids)
        self._last = type(state)(state, copy=True)
        self.accepted += accepted
        self.random_state = state.random_state
        self.iteration += 1

    def _blob(self, blobs: Any) -> Array:
        """Return the scores (walkers, d) from the blobs."""
        remedy = (
            "Let log_prob_fn return (log probability, score) and pass "
            f'blobs_dtype=[("{self._field}", float, {self.ndim})] to EnsembleSampler, or pass score= to the backend.'
        )
        if blobs is None:
            raise InputError("There are no blobs, so there is no score.", remedy)
        if blobs.dtype.names is not None:
            if self._field not in blobs.dtype.names:
                raise InputError(f"There is no blob {self._field!r} among {', '.join(blobs.dtype.names)}.", remedy)
            blobs = blobs[self._field]
        try:
            return np.asarray(blobs, dtype=np.float64).reshape(self.shape)
        except (TypeError, ValueError):
            raise InputError(
                f"The blobs have shape {blobs.shape}, which is not one score of {self.ndim} entries per walker.", remedy
            ) from None

    @property
    def kept(self) -> Kept:
        """The kept draws so far."""
        if self.thinner is None or not self.thinner.seen:
            raise InputError("No step has been made.", "Pass the backend to an EnsembleSampler and run it.")
        kept = result_of(self.thinner, self._names)
        if self._transform is not None:
            kept.variables.update(variables_of(self._transform, kept.draws))
        return kept

    def get_value(self, name: str, flat: bool = False, thin: int = 1, discard: int = 0) -> Any:
        """Raise an `InputError`, because the chain is not stored; called by emcee."""
        raise InputError(
            f"The chain is not stored, so get_{name}() is not available.",
            "backend.kept holds the kept draws, get_last_sample() the current positions of the walkers.",
        )

    def get_last_sample(self) -> Any:
        """Return the current positions of the walkers, from which the next run starts.

        Returns
        -------
        emcee.State
            State of the ensemble after the latest step.

        Raises
        ------
        AttributeError
            If no step has been made: emcee expects this error.

        """
        if not self.initialized or self._last is None:
            raise AttributeError("you must run the sampler with 'store == True' before accessing the results")
        return self._last

"""emcee: a backend that stores the draws that matter, and of the chain only where it is now.

emcee needs no score, KSD does. Either the log probability returns it as a blob, which costs nothing more where it is
computed anyway, or the backend is given a function. Walkers are chains: ids are (walker, step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need, what_is_kept
from steinstream.integrations.generic import batched_score, variables_of
from steinstream.result import Kept
from steinstream.thinner import Thinner

Array = NDArray[np.float64]

try:
    _Base: Any = need("emcee", "emcee").backends.Backend
except InputError:  # it is said when a backend is made
    _Base = object


class Backend(_Base):  # type: ignore[misc]
    """Give it to ``emcee.EnsembleSampler(..., backend=...)``; ``backend.kept`` are the draws kept so far.

    Parameters
    ----------
    score
        A function of one position -> its score; or ``"jax"`` or ``"torch"`` to differentiate ``log_density``. Without
        it, the score is the blob named ``field``, or the only blob there is.
    field
        Name of the blob, as in ``blobs_dtype=[("score", float, ndim)]``.
    names
        Of the parameters.
    transform
        A function of one position -> dict of the variables a user wants to see, computed for kept draws alone.
    discard
        Steps at the start that are not offered to the thinner.
    settings
        Of the thinner: ``size=200``, say.

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
        **settings: Any,
    ) -> None:
        need("emcee", "emcee")
        super().__init__()
        live_thinner(1, **settings)  # a mistake in the settings should show here
        self._score, self._field = batched_score(score, log_density), field
        self._names, self._transform, self._discard, self._settings = names, transform, discard, settings
        self.thinner: Thinner | None = None

    def reset(self, nwalkers: int, ndim: int) -> None:
        """Forget everything."""
        super().reset(nwalkers, ndim)
        self.thinner = live_thinner(self.ndim, **self._settings)
        self._last: Any = None

    def has_blobs(self) -> bool:
        """Whether the latest step had blobs."""
        return self._last is not None and self._last.blobs is not None

    def grow(self, ngrow: int, blobs: Any) -> None:
        """Nothing grows."""

    def save_step(self, state: Any, accepted: NDArray[np.bool_]) -> None:
        """Offer the walkers to the thinner."""
        if state.coords.shape != self.shape:
            raise InputError(f"The walkers have shape {state.coords.shape}, the backend is for {self.shape}.")
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
        """The scores (walkers, d) among the blobs."""
        remedy = (
            "Let log_prob_fn return (log probability, score) and give EnsembleSampler "
            f'blobs_dtype=[("{self._field}", float, {self.ndim})]; or give the backend score=.'
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
                f"The blobs, of shape {blobs.shape}, are not one score of {self.ndim} entries for each walker.", remedy
            ) from None

    @property
    def kept(self) -> Kept:
        """What is kept so far."""
        if self.thinner is None or not self.thinner.seen:
            raise InputError("No step has been made.", "Give the backend to an EnsembleSampler and run it.")
        kept = what_is_kept(self.thinner, self._names)
        if self._transform is not None:
            kept.variables.update(variables_of(self._transform, kept.draws))
        return kept

    def get_value(self, name: str, flat: bool = False, thin: int = 1, discard: int = 0) -> Any:
        """Refuse: the chain is not stored."""
        raise InputError(
            f"The chain is not stored, so there is no {name.replace('_', ' ')} of all steps.",
            "backend.kept has the draws that were kept, get_last_sample() where the walkers are now.",
        )

    def get_last_sample(self) -> Any:
        """Where the walkers are now, for the next run to begin with."""
        if not self.initialized or self._last is None:
            raise AttributeError("you must run the sampler with 'store == True' before accessing the results")
        return self._last

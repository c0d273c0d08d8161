"""emcee: a backend that stores the kept draws, and the current positions of the walkers instead of the chain.

emcee has no scores. Either the log probability function returns the score as a blob, or the backend is given a
function, or the draws are thinned without scores. Walkers are chains: ids are (walker, step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steinstream._typing import Array, Flags
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import log_missing_scores, need, result_of, with_source
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
    score : callable or {"jax", "torch", "finite", "blob"}, optional
        Function of one position that returns its score; how ``log_density`` is differentiated, by JAX, by PyTorch or
        by finite differences; or ``"blob"`` if the score is the only blob and has no name. Default: the score is the
        blob ``field``. Without such a blob, the draws are thinned without scores.
    log_density : callable, optional
        Log density of one position, written with JAX or PyTorch, or any function for finite differences.
    accuracy : float, optional
        Relative accuracy of the log density, for finite differences; for a simulation, the tolerance of its solver. The
        step in each parameter is the cube root of ``accuracy`` times the standard deviation of the parameter over the
        draws so far. Default: 1e-15.
    field : str, optional
        Name of the blob with the score, as in ``blobs_dtype=[("score", float, ndim)]``; an error if it is
        missing. Default: ``"score"``, if there is one.
    names : tuple of str, optional
        Parameter names.
    transform : callable, optional
        Function of one position that returns a dict of variables, which are computed for the kept draws.
    discard : int, default 0
        Number of steps at the start that are not passed to the thinner.
    config : ThinConfig, optional
        Settings of the thinner. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

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
        accuracy: float | None = None,
        field: str | None = None,
        names: tuple[str, ...] | None = None,
        transform: Callable[[Array], dict[str, Any]] | None = None,
        discard: int = 0,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        need("emcee", "emcee")
        super().__init__()
        self._config = ThinConfig.of(config, **settings)
        self._unnamed_blob = score == "blob"
        self._score = batched_score(None if self._unnamed_blob else score, log_density, accuracy)
        self._field = field
        self._names, self._transform, self._discard = names, transform, discard
        self.thinner: Thinner | None = None

    def reset(self, nwalkers: int, ndim: int) -> None:
        """Delete the kept draws and start again; called by emcee."""
        super().reset(nwalkers, ndim)
        self.thinner = Thinner(self.ndim, self._config)
        self._convergence = RunningConvergence(self.ndim)
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
            If the ensemble has another shape, or the blob ``field`` is missing.
        """
        if state.coords.shape != self.shape:
            raise InputError(f"The walkers have shape {state.coords.shape}, but the backend has shape {self.shape}.")
        if self.iteration >= self._discard and self.thinner is not None:
            walkers = np.arange(self.nwalkers)
            ids = np.column_stack([walkers, np.full(self.nwalkers, self.iteration)])
            scores = self._blob(state.blobs) if self._score is None else self._score(state.coords)
            if scores is None and not self.thinner.seen:
                log_missing_scores(f"To add scores: {self._remedy}")
            self.thinner.extend(state.coords, scores, ids=ids)
            self._convergence.add(ids, state.coords)
        self._last = type(state)(state, copy=True)
        self.accepted += accepted
        self.random_state = state.random_state
        self.iteration += 1

    @property
    def _remedy(self) -> str:
        return (
            "let log_prob_fn return (log probability, score) and pass "
            f'blobs_dtype=[("{self._field or "score"}", float, {self.ndim})] to EnsembleSampler, or pass score= to the '
            'backend, for example score="finite" with log_density.'
        )

    def _blob(self, blobs: Any) -> Array | None:
        """Return the scores (walkers, d) from the blobs; None if there are none."""
        if not self._unnamed_blob:
            known = blobs.dtype.names or () if blobs is not None else ()
            name = self._field or "score"
            if name not in known and self._field is None:
                return None
            if name not in known:
                raise InputError(
                    f"The blob {name!r} is not among the blobs ({', '.join(known) or 'none with a name'}).",
                    f"To add scores, {self._remedy}",
                )
            blobs = blobs[name]
        try:
            return np.asarray(blobs, dtype=np.float64).reshape(self.shape)
        except (TypeError, ValueError):
            raise InputError(
                f"The blobs have shape {np.shape(blobs)}, which is not one score of {self.ndim} entries per walker.",
                f"To add scores, {self._remedy}",
            ) from None

    @property
    def kept(self) -> Kept:
        """The kept draws so far.

        Returns
        -------
        Kept
            The kept draws.

        Raises
        ------
        InputError
            If no step has been made.
        """
        if self.thinner is None or not self.thinner.seen:
            raise InputError("No step has been made.", "Pass the backend to an EnsembleSampler and run it.")
        kept = with_source(result_of(self.thinner, self._names), "emcee", self._convergence)
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

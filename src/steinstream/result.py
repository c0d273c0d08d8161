"""What is kept: draws, scores, where they came from, how good they are, and how to get them again."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.debiased import squared_ksd_debiased
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner

if TYPE_CHECKING:
    from steinstream.diagnostics import Diagnosis
    from steinstream.report.chain_summary import ChainLike
    from steinstream.report.page import Page
    from steinstream.running_moments import Moments
    from steinstream.validation import Block

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class History(NamedTuple):
    """How many draws were kept after some steps, and their KSD: three arrays, ``step``, ``size`` and ``ksd``.

    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> history = ss.thin(draws, -draws).history
    >>> int(history.step[-1]), int(history.size[-1])
    (1000, 84)
    """

    step: Integers
    size: Integers
    ksd: Array


class States(NamedTuple):
    """The distinct states among the kept draws, and how many kept draws are in each."""

    draws: Array
    scores: Array
    multiplicity: Integers


class Variable(NamedTuple):
    """Something else that each kept draw has, as the user's model names it: a constrained parameter, say.

    ``values`` are (n, ...); ``dims`` name the dimensions after the first, and ``coords`` the places along some of them.

    >>> Variable(np.ones((2, 3)), ("kind",), {"kind": np.array(["a", "b", "c"])}).values.shape
    (2, 3)
    """

    values: NDArray[Any]
    dims: tuple[str, ...] = ()
    coords: Mapping[str, NDArray[Any]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Kept:
    """The kept draws, sorted by id; equal weights. A state that was kept several times stands there several times.

    :meth:`weighted` gives them weights, :meth:`ordered` puts them in an order of use.

    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> kept = ss.thin(draws, -draws, size=50)
    >>> len(kept), kept.draws.shape, kept.ids[0]
    (50, (50, 2), array([ 0, 19]))
    """

    draws: Array
    """The kept draws, (n, d), unconstrained."""
    scores: Array
    """Their scores, (n, d)."""
    ids: Integers
    """Where each of them stood, (n, 2): chain and draw."""
    ksd: float
    """How well they fit the target, in these coordinates and by this kernel."""
    history: History
    """How size and KSD went as the draws came."""
    kernel: Kernel | None = None
    """What KSD was measured with."""
    preconditioner: Preconditioner | None = None
    """In which coordinates."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All that it takes to get them again, and what is known of the stream."""
    names: tuple[str, ...] | None = None
    """Of the d parameters, if the source names them."""
    weights: Array | None = None
    """Non-negative, of sum 1; None if all are equal."""
    prefix_ksd: Array | None = None
    """KSD of the first 1, 2, ..., n draws with equal weights, if they are in an order of use."""
    bound: float | None = None
    """What KSD would be at most in the mean, were the draws independent: see :mod:`steinstream.thinner.bound`."""
    second_scores: Array | None = None
    """Second scores, which the selection has not seen, where there are any."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """What else the draws have, by name."""
    stream: Block | None = None
    """Some evenly spaced draws of the stream, to compare with."""

    def __len__(self) -> int:
        return len(self.draws)

    def __sizeof__(self) -> int:
        arrays = [self.draws, self.scores, self.ids, *self.history, self.weights, self.prefix_ksd, self.second_scores]
        arrays += [] if self.preconditioner is None else [self.preconditioner.factor, self.preconditioner.centre]
        arrays += [variable.values for variable in self.variables.values()] + list(self.stream or ())
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays if array is not None)

    def __repr__(self) -> str:
        seen = self.settings.get("seen", "?")
        states, dim = len(np.unique(self.draws, axis=0)), self.draws.shape[1]
        distinct = f", {states} distinct" if states < len(self) else ""
        weighted = "" if self.weights is None else f", effective size {self.effective_size:.1f}"
        return f"Kept({len(self)} of {seen} draws{distinct}, {dim} dimensions, KSD {self.ksd:.4g}{weighted})"

    @property
    def normalised_ksd(self) -> float:
        """KSD times the square root of the number kept: constant for independent draws, so it charges for size."""
        return float(self.ksd * np.sqrt(len(self)))

    @property
    def ksd_debiased(self) -> float | None:
        """KSD from the second scores, without the luck that noisy scores were selected by; None without such scores.

        The root of an unbiased estimate of KSD^2, and 0 where that is below 0: see :mod:`steinstream.debiased`.
        """
        if self.second_scores is None or self.kernel is None or self.preconditioner is None or len(self) == 0:
            return None
        square = squared_ksd_debiased(
            self.draws,
            self.second_scores,
            self.settings.get("second_scores_noise", 0.0),
            self.kernel,
            self.preconditioner,
            self.weights,
        )
        return float(np.sqrt(max(square, 0.0)))

    @property
    def effective_size(self) -> float:
        """How many draws with equal weights the weights are worth: 1 / sum w^2."""
        return float(len(self)) if self.weights is None else float(1.0 / np.sum(self.weights**2))

    @property
    def order(self) -> Integers | None:
        """The place of each draw in the order of use: 0, 1, 2, ... after :meth:`ordered`, None before."""
        return None if self.prefix_ksd is None else np.arange(len(self))

    def weighted(self, *, linear: float | None = None, like: Moments | ArrayLike | None = None) -> Kept:
        """The same draws with non-negative weights of sum 1 that make KSD^2, and what is added to it, least.

        With ``like``, a chain without its burn-in or its :class:`~steinstream.Moments`, their means and variances are
        made to agree with the chain's. ``linear`` is the factor of a term that does so for a Gaussian target without a
        chain: 30, or 1 with ``like``; its price is a KSD that may be higher than before. With ``linear=0`` alone KSD
        itself is least, and the set narrower. The certificate is ``settings["weights"]["gap"]``: the share by which the
        root of what was minimised can still fall. Without ``like`` weights do not repair the proportions of modes far
        apart. See :mod:`steinstream.postprocess.weighting`.

        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(5000, 10))
        >>> kept = ss.thin(draws, -draws, size=100)
        >>> [round(float(k.expect(lambda x: x @ x)), 1) for k in (kept, kept.weighted(), kept.weighted(like=draws))]
        [9.4, 10.0, 10.0]
        """
        from steinstream.postprocess.weighting import weigh

        return weigh(self, linear, like)

    def ordered(self) -> Kept:
        """The same draws in an order in which the first k are good for every k: see :mod:`steinstream.postprocess.ordering`."""
        from steinstream.postprocess.ordering import put_in_order

        return put_in_order(self)

    def prefix(self, count: int, *, weighted: bool = False) -> Kept:
        """The first ``count`` draws of an ordered set: with equal weights, or with new ones of their own.

        The weights of the whole set are no weights of its parts; ``prefix(count).weighted(...)`` takes settings.
        """
        from steinstream.postprocess.ordering import first

        return first(self, count).weighted() if weighted else first(self, count)

    def states(self) -> States:
        """Distinct states with their multiplicity: what a forward simulation has to be run for."""
        if len(self) == 0:
            return States(self.draws, self.scores, np.zeros(0, dtype=np.int64))
        both = np.hstack([self.draws, self.scores])
        _, first, inverse = np.unique(both, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        counts = np.bincount(inverse.ravel(), minlength=len(first))
        return States(self.draws[first[order]], self.scores[first[order]], counts[order])

    def expect(self, f: Callable[[Array], ArrayLike], weights: ArrayLike | None = None) -> Any:
        """The estimate of E f(x): the mean of f over the kept draws, with their weights or those given.

        ``f`` takes one draw (d,) and returns a number or an array. It is called once per distinct draw whose weight is
        not zero.

        >>> points, none = np.array([[1.0], [3.0]]), np.zeros(0)
        >>> kept = Kept(points, -points, np.array([[0, 0], [0, 1]]), 0.0, History(none, none, none))
        >>> float(kept.expect(lambda x: x[0] ** 2)), float(kept.expect(lambda x: x[0], weights=[3, 1]))
        (5.0, 1.5)
        """
        if len(self) == 0:
            raise InputError("Nothing is kept yet, so there is no expectation.", "Push draws first.")
        if weights is None:
            weights = np.ones(len(self)) if self.weights is None else self.weights
        share = _as_weights(weights, len(self))
        states, inverse = np.unique(self.draws, axis=0, return_inverse=True)
        mass = np.bincount(inverse.ravel(), weights=share) / share.sum()
        values = np.array([np.asarray(f(state), dtype=np.float64) for state in states[mass > 0]])
        return np.tensordot(mass[mass > 0], values, axes=1)

    def to_datatree(self, *, stacked: bool = True) -> Any:
        """The same as an ``xarray.DataTree``, which ArviZ 1.x takes: see :mod:`steinstream.io.datatree`.

        One dimension ``sample``, or without ``stacked`` a single chain.
        """
        from steinstream.io.datatree import to_datatree

        return to_datatree(self, stacked=stacked)

    def diagnose(self, chain: ChainLike = None, scores: ArrayLike | None = None) -> Diagnosis:
        """What KSD does not see: these draws against the stream they come from, and the stream against itself.

        A set that comes from a file or from :func:`~steinstream.merge` does not remember its stream: give the
        ``chain``, a file or several, or draws (n, d) or (chains, n, d) with their ``scores``.
        """
        from steinstream.diagnostics import diagnose
        from steinstream.report.chain_summary import stream_of

        stream = self.stream if chain is None else stream_of(self, chain, scores)
        if stream is None:
            raise InputError(
                "This kept set does not remember its stream.", "Give the chain: diagnose(draws, scores), or its file."
            )
        return diagnose(self.draws, self.ids, stream, self.names, self.weights)

    def with_names(self, names: Sequence[str]) -> Kept:
        """The same, with a name for each of the d parameters: in reports, plots, files and findings.

        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> ss.thin(draws, -draws, size=50).with_names(["mu", "log_sigma"]).names
        ('mu', 'log_sigma')
        """
        return replace(self, names=as_names(names, self.draws.shape[1]))

    def report(self, path: str | PathLike[str] | None = None, chain: ChainLike = None) -> Page:
        """One HTML page that shows what was kept and how good it is, beside the chain it is from; needs matplotlib.

        With ``path`` it is written there; a notebook shows it. ``chain`` is a file, several, or draws (n, d) or
        (chains, n, d); without it, what the set remembers of its stream.
        """
        from steinstream.report.page import page, write

        return page(self, chain) if path is None else write(path, self, chain)

    def _repr_html_(self) -> str:
        from steinstream.report.notebook import card

        return card(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write npz, nc, zarr, csv, csv.gz or parquet, by the name; an older file goes once the new one is whole."""
        from steinstream.io import write_kept

        write_kept(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Kept:
        """What :meth:`save` wrote as npz, nc or zarr, with kernel, coordinates, history, weights and order."""
        from steinstream.io import read_kept

        return read_kept(path)


def as_names(names: Sequence[str], dim: int) -> tuple[str, ...]:
    """Names of the parameters given by the user."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names) or len({*names}) != dim:
        raise InputError(f"names must be {dim} different strings, one for each parameter, got {reprlib.repr(names)}.")
    return tuple(names)


def _as_weights(weights: ArrayLike, count: int) -> Array:
    wrong = InputError(f"Weights must be {count} non-negative numbers with a positive sum.")
    try:
        share = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise wrong from None
    if share.shape != (count,) or not (share >= 0).all() or not 0 < share.sum() < np.inf:
        raise wrong
    return share

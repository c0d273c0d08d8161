"""The result of thinning: kept draws with their scores, origin, KSD and the settings that reproduce them."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array, Integers
from steinstream.diagnostics import diagnose
from steinstream.discrepancy import squared_ksd_debiased
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner

if TYPE_CHECKING:
    from steinstream.diagnostics import Diagnosis
    from steinstream.report.chain_summary import ChainLike
    from steinstream.report.page import Report
    from steinstream.running_moments import Moments
    from steinstream.validation import Block

_QUANTILES = (0.05, 0.5, 0.95)


class History(NamedTuple):
    """Number of kept draws and their KSD after some steps.

    Attributes
    ----------
    step, size, ksd : array
        Steps, numbers of kept draws and KSD values, of equal length.

    Examples
    --------
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
    """Distinct states among the kept draws, with the number of kept draws in each."""

    draws: Array
    scores: Array
    multiplicity: Integers


class Summary(NamedTuple):
    """Weighted mean, standard deviation and quantiles of each parameter.

    Attributes
    ----------
    names : tuple of str
        Parameter names.
    mean, sd : array
        Means and standard deviations, (d,).
    quantiles : dict
        Probability -> quantiles, (d,).

    """

    names: tuple[str, ...]
    mean: Array
    sd: Array
    quantiles: dict[float, Array]

    def __str__(self) -> str:
        head = ["", "mean", "sd", *(f"{100 * q:g}%" for q in self.quantiles)]
        columns = [self.mean, self.sd, *self.quantiles.values()]
        rows = [[name, *(f"{column[i]:.4g}" for column in columns)] for i, name in enumerate(self.names)]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]
        )


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
    >>> Variable(np.ones((2, 3)), ("kind",), {"kind": np.array(["a", "b", "c"])}).values.shape
    (2, 3)

    """

    values: AnyArray
    dims: tuple[str, ...] = ()
    coords: Mapping[str, AnyArray] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Kept:
    """The kept draws, sorted by id, with equal weights unless `weighted` assigned others.

    A state that was kept several times occurs several times. ``len(kept)``, iteration, indexing and
    ``np.asarray(kept)`` refer to the draws.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> kept = ss.thin(draws, -draws, size=50)
    >>> len(kept), kept.draws.shape, kept.ids[0]
    (50, (50, 2), array([ 0, 19]))
    >>> print(kept.summary())
            mean      sd      5%        50%    95%
    x0  0.001733   0.979  -1.425  -0.005165  1.802
    x1  0.001278  0.9796  -1.733   0.002666  1.493

    """

    draws: Array
    """The kept draws, (n, d), unconstrained."""
    scores: Array
    """Their scores, (n, d)."""
    ids: Integers
    """Their identifiers (chain, index), (n, 2)."""
    ksd: float
    """KSD of the kept draws under ``kernel`` and ``preconditioner``."""
    history: History
    """Size and KSD during the run."""
    kernel: Kernel | None = None
    """Base kernel with which KSD was measured."""
    preconditioner: Preconditioner | None = None
    """Preconditioner with which KSD was measured."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that reproduce the result (``"config"``) and statistics of the stream (``"seen"``, ``"skipped"``...)."""
    names: tuple[str, ...] | None = None
    """Names of the d parameters, if they are known."""
    weights: Array | None = None
    """Non-negative weights of sum 1, (n,); None if all are equal."""
    prefix_ksd: Array | None = None
    """KSD of the first 1, 2, ..., n draws with equal weights, after `ordered`."""
    bound: float | None = None
    """Upper bound on the expected KSD, assuming independent draws: see :mod:`steinstream.thinner.bound`."""
    second_scores: Array | None = None
    """Second scores, which the selection did not use, (n, d), if there are any."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """Further quantities of the draws, by name."""
    stream: Block | None = None
    """Evenly spaced draws of the stream, for comparison."""

    # -- a sequence of draws -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.draws)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.draws)

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.draws[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.draws, dtype=dtype, copy=bool(copy) or dtype not in (None, self.draws.dtype))

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
    def indices(self) -> Integers:
        """Indices of the kept draws in their chain, (n,); an error if they are from several chains."""
        chains = np.unique(self.ids[:, 0])
        if len(chains) > 1:
            raise InputError(f"The kept draws are from {len(chains)} chains.", "Use kept.ids: (chain, index).")
        return self.ids[:, 1]

    # -- measures of quality -------------------------------------------------------------------------------------------

    @property
    def normalised_ksd(self) -> float:
        """KSD times the square root of the number of draws; constant in n for independent draws."""
        return float(self.ksd * np.sqrt(len(self)))

    @property
    def ksd_debiased(self) -> float | None:
        """KSD estimated from the second scores, as in `steinstream.discrepancy`; None without such scores."""
        if self.second_scores is None or self.kernel is None or self.preconditioner is None or len(self) == 0:
            return None
        excess = self.settings.get("second_scores_noise", 0.0)
        square = squared_ksd_debiased(
            self.draws, self.second_scores, excess, self.kernel, self.preconditioner, self.weights
        )
        return float(np.sqrt(max(square, 0.0)))

    @property
    def effective_size(self) -> float:
        """Number of equally weighted draws that the weights correspond to: 1 / sum w^2."""
        return float(len(self)) if self.weights is None else float(1.0 / np.sum(self.weights**2))

    # -- expectations --------------------------------------------------------------------------------------------------

    def mean(self) -> Array:
        """Return the weighted mean of each parameter, (d,)."""
        return np.asarray(self._shares() @ self.draws)

    def cov(self) -> Array:
        """Return the weighted covariance of the parameters, (d, d)."""
        centred = self.draws - self.mean()
        return np.asarray((self._shares()[:, None] * centred).T @ centred)

    def quantile(self, q: ArrayLike) -> Array:
        """Compute weighted quantiles of each parameter.

        Parameters
        ----------
        q : float or array_like
            Probabilities between 0 and 1.

        Returns
        -------
        array
            Quantiles, (d,) for a single probability and (len(q), d) for several: linear interpolation between the
            midpoints of the weighted distribution function.

        """
        wanted = np.asarray(q, dtype=np.float64)
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise InputError(f"Probabilities must lie between 0 and 1, got {q!r}.")
        share = self._shares()
        columns = []
        for values in self.draws.T:
            order = np.argsort(values, kind="stable")
            mass = share[order]
            columns.append(np.interp(wanted, np.cumsum(mass) - 0.5 * mass, values[order]))
        return np.stack(columns, axis=-1)

    def summary(self, quantiles: Sequence[float] = _QUANTILES) -> Summary:
        """Summarise each parameter.

        Parameters
        ----------
        quantiles : sequence of float, default (0.05, 0.5, 0.95)
            Probabilities.

        Returns
        -------
        Summary
            Weighted means, standard deviations and quantiles; printing it shows a table.

        """
        names = self.names or tuple(f"x{i}" for i in range(self.draws.shape[1]))
        sds = np.sqrt(self._shares() @ (self.draws - self.mean()) ** 2)
        return Summary(names, self.mean(), sds, {float(q): self.quantile(q) for q in quantiles})

    def expect(self, f: Callable[[Array], ArrayLike], weights: ArrayLike | None = None) -> Any:
        """Estimate E f(x) by the weighted mean over the kept draws.

        Parameters
        ----------
        f : callable
            Function of one draw (d,) that returns a number or an array. It is called once per distinct draw with
            positive weight.
        weights : array_like, optional
            Weights, (n,). Default: those of the kept set.

        Returns
        -------
        float or array
            The estimate.

        Examples
        --------
        >>> draws, none = np.array([[1.0], [3.0]]), np.zeros(0)
        >>> kept = Kept(draws, -draws, np.array([[0, 0], [0, 1]]), 0.0, History(none, none, none))
        >>> float(kept.expect(lambda x: x[0] ** 2)), float(kept.expect(lambda x: x[0], weights=[3, 1]))
        (5.0, 1.5)

        """
        share = self._shares() if weights is None else _as_weights(weights, len(self))
        states, inverse = np.unique(self.draws, axis=0, return_inverse=True)
        mass = np.bincount(inverse.ravel(), weights=share) / share.sum()
        values = np.array([np.asarray(f(state), dtype=np.float64) for state in states[mass > 0]])
        return np.tensordot(mass[mass > 0], values, axes=1)

    def states(self) -> States:
        """Return the distinct states with their multiplicity, which a forward simulation has to be run for."""
        if len(self) == 0:
            return States(self.draws, self.scores, np.zeros(0, dtype=np.int64))
        both = np.hstack([self.draws, self.scores])
        _, first, inverse = np.unique(both, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        counts = np.bincount(inverse.ravel(), minlength=len(first))
        return States(self.draws[first[order]], self.scores[first[order]], counts[order])

    def _shares(self) -> Array:
        """Return the weights, equal ones if none are set."""
        if len(self) == 0:
            raise InputError("The kept set is empty, so it has no expectations.", "Add draws first.")
        return np.full(len(self), 1.0 / len(self)) if self.weights is None else self.weights

    # -- weights, order, names -----------------------------------------------------------------------------------------

    def weighted(self, *, linear: float | None = None, like: Moments | ArrayLike | None = None) -> Kept:
        """Assign non-negative weights of sum 1 that minimise KSD^2 plus further terms.

        Parameters
        ----------
        linear : float, optional
            Factor of a linear term in the Stein kernel, which corrects the width of the set for a Gaussian target.
            KSD may increase. With ``linear=0`` and no ``like`` KSD itself is minimised, and the set becomes
            narrower. Default: 30, or 1 with ``like``.
        like : Moments or array_like, optional
            A chain without its burn-in, (n, d) or (chains, n, d), or its `Moments`: the weighted means and variances
            are matched to it. Without it, weights do not correct the proportions of modes that are far apart.

        Returns
        -------
        Kept
            The same draws with weights. ``settings["weights"]["gap"]`` certifies optimality: it bounds the relative
            amount by which the square root of the objective could still decrease.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(5000, 10))
        >>> kept = ss.thin(draws, -draws, size=100)
        >>> [round(float(k.expect(lambda x: x @ x)), 1) for k in (kept, kept.weighted(), kept.weighted(like=draws))]
        [9.4, 10.0, 10.0]

        """
        from steinstream.postprocess.weighting import optimise_weights  # facade

        return optimise_weights(self, linear, like)

    def ordered(self) -> Kept:
        """Order the draws such that the first k are a good set for every k.

        Returns
        -------
        Kept
            The same draws in another order, with ``prefix_ksd``: see :mod:`steinstream.postprocess.ordering`.

        """
        from steinstream.postprocess.ordering import order_draws  # facade

        return order_draws(self)

    @property
    def order(self) -> Integers | None:
        """Position of each draw in the order of use: 0, 1, 2, ... after `ordered`, None before."""
        return None if self.prefix_ksd is None else np.arange(len(self))

    def prefix(self, count: int, *, weighted: bool = False) -> Kept:
        """Return the first draws of an ordered set.

        Parameters
        ----------
        count : int
            Number of draws.
        weighted : bool, default False
            Compute weights for these draws. The weights of the whole set do not apply to a part of it.

        Returns
        -------
        Kept
            The first ``count`` draws.

        """
        from steinstream.postprocess.ordering import first_draws  # facade

        first = first_draws(self, count)
        return first.weighted() if weighted else first

    def with_names(self, names: Sequence[str]) -> Kept:
        """Set the parameter names, which reports, plots, files and findings use.

        Parameters
        ----------
        names : sequence of str
            One name for each of the d parameters.

        Returns
        -------
        Kept
            The same draws with names.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> ss.thin(draws, -draws, size=50).with_names(["mu", "log_sigma"]).names
        ('mu', 'log_sigma')

        """
        return replace(self, names=as_names(names, self.draws.shape[1]))

    # -- reports and files ---------------------------------------------------------------------------------------------

    def diagnose(self, chain: ChainLike = None, scores: ArrayLike | None = None) -> Diagnosis:
        """Compare the kept draws with the stream, and the stream with itself: what KSD does not detect.

        Parameters
        ----------
        chain : path, sequence of paths or array_like, optional
            The chain: files, or draws (n, d) or (chains, n, d). Required if the kept set was read from a file or
            merged. Default: the subsample of the stream in the kept set.
        scores : array_like, optional
            Scores of the draws in ``chain``.

        Returns
        -------
        Diagnosis
            The findings.

        """
        stream = self.stream
        if chain is not None:
            from steinstream.report.chain_summary import stream_subsample  # facade

            stream = stream_subsample(self, chain, scores)
        if stream is None:
            raise InputError(
                "This kept set contains no subsample of its stream.",
                "Pass the chain: diagnose(draws, scores), or its file.",
            )
        return diagnose(self.draws, self.ids, stream, self.names, self.weights)

    def report(self, path: str | PathLike[str] | None = None, chain: ChainLike = None) -> Report:
        """Create an HTML report that compares the kept draws with the chain; requires matplotlib.

        Parameters
        ----------
        path : path, optional
            File to write. A notebook shows the returned report.
        chain : path, sequence of paths or array_like, optional
            The chain: files, or draws (n, d) or (chains, n, d). Default: the subsample in the kept set.

        Returns
        -------
        Report
            The report.

        """
        from steinstream.report.page import build_report  # facade

        report = build_report(self, chain)
        if path is not None:
            report.save(path)
        return report

    def _repr_html_(self) -> str:
        from steinstream.report.page import notebook_summary  # facade

        return notebook_summary(self)

    def to_datatree(self, *, stacked: bool = True) -> Any:
        """Convert to an ``xarray.DataTree``, which ArviZ 1.x accepts.

        Parameters
        ----------
        stacked : bool, default True
            Use one dimension ``sample`` with coordinates ``chain`` and ``draw``. Otherwise a single chain.

        Returns
        -------
        xarray.DataTree
            The kept draws.

        """
        from steinstream.io import to_datatree  # facade

        return to_datatree(self, stacked=stacked)

    def to_dataframe(self) -> Any:
        """Convert to a ``pandas.DataFrame``; requires pandas.

        Returns
        -------
        pandas.DataFrame
            One row per draw: ``chain``, ``draw``, the parameters, ``weight`` if there are weights, and variables
            with one value per draw.

        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_dataframe requires pandas.", "pip install pandas") from None
        names = self.names or tuple(f"x{i}" for i in range(self.draws.shape[1]))
        columns: dict[str, AnyArray] = {"chain": self.ids[:, 0], "draw": self.ids[:, 1]}
        columns |= dict(zip(names, self.draws.T, strict=True))
        if self.weights is not None:
            columns["weight"] = self.weights
        columns |= {name: one.values for name, one in self.variables.items() if one.values.ndim == 1}
        return pd.DataFrame(columns)

    def save(self, path: str | PathLike[str]) -> None:
        """Write npz, nc, zarr, csv, csv.gz or parquet, chosen by the extension.

        Parameters
        ----------
        path : path
            The file. An existing file is replaced when the new one is complete.

        """
        from steinstream.io import write_kept  # facade

        write_kept(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Kept:
        """Read a kept set that `save` wrote as npz, nc or zarr.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Kept
            The kept set with kernel, preconditioner, history, weights and order.

        """
        from steinstream.io import read_kept  # facade

        return read_kept(path)


def as_names(names: Sequence[str], dim: int) -> tuple[str, ...]:
    """Validate parameter names and return them as a tuple."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names) or len({*names}) != dim:
        raise InputError(f"names must be {dim} different strings, one per parameter, got {reprlib.repr(names)}.")
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

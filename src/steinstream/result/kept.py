"""The result of thinning: kept draws with their scores, origin, KSD and the settings that reproduce them."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array, Integers
from steinstream.diagnostics import diagnose
from steinstream.diagnostics.notes import describe_chain, notes_of_summary
from steinstream.diagnostics.summary import Summary, summarise, weighted_quantiles
from steinstream.discrepancy.ksd import ksd, squared_ksd_debiased
from steinstream.errors import InputError, one_of
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result.expectation import expectation
from steinstream.result.history import History
from steinstream.result.summarised_stream import SummarisedStream
from steinstream.result.variables import MODEL_GROUPS, Variable, rows_of
from steinstream.validation import SteinIdentity, as_draws_and_scores, as_probabilities, as_weights

if TYPE_CHECKING:
    from steinstream.diagnostics import Diagnosis
    from steinstream.postprocess.forward_runs import Average, Runs
    from steinstream.postprocess.run_outputs import Outputs
    from steinstream.report.chain_summary import ChainLike
    from steinstream.report.page import Report
    from steinstream.validation import Block

_QUANTILES = (0.05, 0.5, 0.95)


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
    (50, (50, 2), array([0, 6]))
    >>> print(kept.summary())
                      mean      sd      5%     50%     95%  se of mean
    x0  kept        -0.007   0.987  -1.695   0.006   1.691
        stream      -0.030   1.019  -1.693  -0.031   1.672
        difference  +0.022  -0.032  -0.002  +0.036  +0.018       0.146
    x1  kept        -0.017   0.990  -1.320  -0.015   1.452
        stream      -0.026   0.981  -1.594  -0.038   1.577
        difference  +0.009  +0.009  +0.279  +0.023  -0.127       0.145
    50 kept draws, 1000 draws of the stream; differences in sds of the stream;
    se of mean: standard error of its difference if the kept draws were independent
    """

    draws: Array
    """The kept draws, (n, d), unconstrained."""
    scores: Array | None
    """Their scores, (n, d); None if the draws have no scores."""
    ids: Integers
    """Their identifiers (chain, index), (n, 2)."""
    ksd: float
    """KSD of the kept draws under ``kernel`` and ``preconditioner``; NaN without scores."""
    history: History
    """Size, KSD and MMD during the run."""
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
    """KSD of the first 1, 2, ..., n draws with equal weights, after `ordered`; None without scores."""
    prefix_mmd: Array | None = None
    """MMD between the first 1, 2, ..., n draws and the stream, after `ordered`; None without a stream term."""
    bound: float | None = None
    """Upper bound on the root of the expected objective, hence on KSD, assuming independent draws: see
    :mod:`steinstream.thinner.bound`."""
    mmd: float = math.nan
    """MMD between the kept draws and the stream, by a summary of the stream; NaN without a stream term."""
    second_scores: Array | None = None
    """Second scores, which the selection did not use, (n, d), if there are any."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """Further quantities of the draws, by name."""
    groups: dict[str, dict[str, Variable]] = field(default_factory=dict)
    """Other groups of an ArviZ file or tree, such as ``log_likelihood``, at the kept draws; the groups `MODEL_GROUPS`
    do not depend on the draws."""
    stream: Block | None = None
    """Evenly spaced draws of the stream, for comparison."""
    stream_summary: SummarisedStream | None = None
    """Weighted draws that represent the stream in the stream term; None without a stream term."""

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
        arrays = [self.draws, self.scores, self.ids, *self.history, self.weights, self.second_scores]
        arrays += [self.prefix_ksd, self.prefix_mmd]
        arrays += [] if self.preconditioner is None else [self.preconditioner.factor, self.preconditioner.centre]
        arrays += [one.values for group in (self.variables, *self.groups.values()) for one in group.values()]
        arrays += list(self.stream or ())
        summary = self.stream_summary
        arrays += [] if summary is None else [summary.draws, summary.weights, summary.kept]
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays if array is not None)

    def __repr__(self) -> str:
        seen = self.settings.get("seen", "?")
        states, dim = len(np.unique(self.draws, axis=0)), self.draws.shape[1]
        distinct = f", {states} distinct" if states < len(self) else ""
        weighted = "" if self.weights is None else f", effective size {self.effective_size:.1f}"
        measure = f"KSD {self.ksd:.4g}" if self.scores is not None else f"MMD {self.mmd:.4g}, no scores"
        return f"Kept({len(self)} of {seen} draws{distinct}, {dim} dimensions, {measure}{weighted})"

    @property
    def indices(self) -> Integers:
        """Indices of the kept draws in their chain, (n,).

        Returns
        -------
        array
            The indices.

        Raises
        ------
        InputError
            If the kept draws are from several chains.
        """
        chains = np.unique(self.ids[:, 0])
        if len(chains) > 1:
            raise InputError(f"The kept draws are from {len(chains)} chains.", "Use kept.ids: (chain, index).")
        return self.ids[:, 1]

    @property
    def burn_in_ends(self) -> dict[int, int]:
        """Index of the first draw after the burn-in, for each chain in which the thinner detected burn-in."""
        return {int(chain): int(end) for chain, end in self.settings.get("burn_in_ends", ())}

    @property
    def chain_worth(self) -> str | None:
        """Sentence on how many independent draws the chain is worth, what decides, and burn-in; None if not known."""
        return describe_chain(self.settings)

    @property
    def stream_error(self) -> float | None:
        """Estimated MMD between the stream and `stream_summary`, which represents it; None if it is not known.

        The distance of the kept draws to the stream is at most `mmd` plus the distance of the summary to the stream.

        Returns
        -------
        float or None
            The estimate; None also if the stream was corrected, or the set was started from a subsample.
        """
        error = self.settings.get("stream_error")
        return None if error is None else float(error)

    # -- measures of quality -------------------------------------------------------------------------------------------

    @property
    def normalised_ksd(self) -> float:
        """Normalised KSD: see :func:`steinstream.normalised_ksd`."""
        return float(self.ksd * np.sqrt(len(self)))

    @property
    def ksd_debiased(self) -> float | None:
        """KSD estimated from the second scores, as in `steinstream.discrepancy.ksd`; None without such scores."""
        if self.second_scores is None or self.kernel is None or self.preconditioner is None or len(self) == 0:
            return None
        excess = self.settings.get("second_scores_noise", 0.0)
        square = squared_ksd_debiased(
            self.draws, self.second_scores, excess, self.kernel, self.preconditioner, self.weights
        )
        return float(np.sqrt(max(square, 0.0)))

    @property
    def effective_size(self) -> float:
        r"""Number of equally weighted draws that the weights correspond to: :math:`1 / \sum_i w_i^2`."""
        return float(len(self)) if self.weights is None else float(1.0 / np.sum(self.weights**2))

    # -- expectations --------------------------------------------------------------------------------------------------

    def mean(self) -> Array:
        """Return the weighted mean of each parameter, (d,).

        Returns
        -------
        array of shape (d,)
            The means.
        """
        return np.asarray(self.shares() @ self.draws)

    def cov(self) -> Array:
        """Return the weighted covariance of the parameters, (d, d).

        Returns
        -------
        array of shape (d, d)
            The covariance matrix.
        """
        centred = self.draws - self.mean()
        return np.asarray((self.shares()[:, None] * centred).T @ centred)

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
            midpoints of the weighted distribution function. For integers, the smallest value whose distribution
            function reaches the probability.

        Raises
        ------
        InputError
            If a probability is not between 0 and 1, or the set is empty.
        """
        return weighted_quantiles(self.draws, self.shares(), as_probabilities(q))

    def summary(self, quantiles: Sequence[float] = _QUANTILES) -> Summary:
        """Compare mean, standard deviation and quantiles of the kept draws with those of the stream.

        Parameters
        ----------
        quantiles : sequence of float, default (0.05, 0.5, 0.95)
            Probabilities.

        Returns
        -------
        Summary
            Weighted statistics of the kept draws and of the stream without its burn-in; printing it shows a table with
            the differences in standard deviations of the stream. A set that was read from a file is compared with its
            summary of the stream (npz, nc, zarr), or shown alone.

        Raises
        ------
        InputError
            If a probability is not between 0 and 1, or the set is empty.
        """
        as_probabilities(quantiles)
        names = self.names or tuple(f"x{i}" for i in range(self.draws.shape[1]))
        summary = self.stream_summary
        known = None if summary is None or summary.features is not None else (summary.draws, summary.weights)
        return summarise(
            draws=self.draws,
            weights=self.shares(),
            names=names,
            quantiles=quantiles,
            ids=self.ids,
            stream=self.stream,
            weighted_stream=known,
            burn_in_ends=self.burn_in_ends,
        )

    def expect(
        self,
        f: Callable[[Array], ArrayLike] | ArrayLike,
        weights: ArrayLike | None = None,
        *,
        processes: int = 1,
    ) -> Any:
        """Estimate E f(x) by the weighted mean over the kept draws.

        Parameters
        ----------
        f : callable or array_like
            Function of one draw (d,) that returns a number or an array, which is called once per distinct draw with
            positive weight; or its values, (n, ...), one row per kept draw.
        weights : array_like, optional
            Weights, (n,). Default: those of the kept set.
        processes : int, default 1
            Number of processes that call the function. With several, it must be defined at the top level of a module.

        Returns
        -------
        float or array
            The estimate. Draws for which the function raises an exception or is not finite are left out, the other
            weights are divided by their sum, and a `FailedRunsWarning` is given. `average` says more.

        Examples
        --------
        >>> draws = np.array([[1.0], [3.0]])
        >>> kept = Kept(draws, -draws, np.array([[0, 0], [0, 1]]), 0.0, History.empty())
        >>> float(kept.expect(lambda x: x[0] ** 2)), float(kept.expect(lambda x: x[0], weights=[3, 1]))
        (5.0, 1.5)
        >>> float(kept.expect([1.0, 9.0]))
        5.0
        """
        share = self.shares() if weights is None else as_weights(weights, len(self))
        return expectation(self.draws, f, share, processes)

    def to_runs(self, path: str | PathLike[str] | None = None) -> Runs:
        """List the forward simulations that the kept draws require, in order of use.

        Parameters
        ----------
        path : path, optional
            File to write, csv: ``run`` (the number of the run), ``weight``, ``multiplicity``, ``chain``, ``draw``, the
            parameters, and the variables of the kept draws. A state that was kept several times is one run. The order
            is that of `ordered`.

        Returns
        -------
        Runs
            The same as arrays.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> kept = ss.thin(draws, -draws, size=50)
        >>> runs = kept.to_runs()
        >>> runs.draws.shape, round(float(runs.weights.sum()), 6)
        ((50, 2), 1.0)
        >>> outputs = {"run": runs.run, "energy": (runs.draws**2).sum(axis=1)}
        >>> outputs["energy"][3] = np.nan
        >>> kept.average(outputs)
                 mean    se     sd     5%    50%    95%  first 12  first 24
        energy  1.948  0.11  1.808  0.098  1.501  5.479     1.369     1.836
        49 of 50 runs are used.
        Failed and left out: run 32 (energy is nan); 2.0% of the weight. ...
        """
        from steinstream.postprocess.forward_runs import Runs  # facade

        runs = Runs.of(self)
        if path is not None:
            runs.save(path)
        return runs

    def average(
        self,
        outputs: Outputs,
        *,
        columns: Sequence[str] | None = None,
        quantiles: Sequence[float] = _QUANTILES,
        processes: int = 1,
    ) -> Average:
        """Average the outputs of forward simulations, without those that failed.

        Parameters
        ----------
        outputs : path, mapping, DataFrame, array_like or callable
            A table (csv, csv.gz, parquet, a DataFrame, or columns by name) with a column ``run``, or ``chain`` and
            ``draw``, and one column per output, in any order; for an `ordered` set, an array (or npy file) with one
            row per run, in the order of `to_runs`; or the simulation, a function of one draw. A run failed if it has no
            row, an output that is not a finite number, or a ``status`` that is neither 0 nor a word such as "ok" or
            "completed".
        columns : sequence of str, optional
            Columns of the table that are outputs. Default: all columns of numbers, except those of `to_runs`.
        quantiles : sequence of float, default (0.05, 0.5, 0.95)
            Probabilities.
        processes : int, default 1
            Number of processes, if ``outputs`` is a function. It must then be defined at the top level of a module.

        Returns
        -------
        Average
            Mean, standard deviation, quantiles and standard errors; printing it shows a table and the failed runs.

        Raises
        ------
        InputError
            If the outputs do not belong to this kept set, or all runs failed.
        """
        return self.to_runs().average(outputs, columns=columns, quantiles=quantiles, processes=processes)

    def require_scores(self, what: str) -> Array:
        """Return the scores, or raise an `InputError` that says what needs them."""
        if self.scores is None:
            raise InputError(
                f"{what} needs scores, and these draws were kept without.",
                "Thin again with scores: the gradient of the log density at each draw.",
            )
        return self.scores

    def shares(self) -> Array:
        """Return the weights of the draws, which are equal if none are set, (n,).

        Returns
        -------
        array of shape (n,)
            The weights, of sum 1.

        Raises
        ------
        InputError
            If the set is empty.
        """
        if len(self) == 0:
            raise InputError("The kept set is empty, so it has no expectations.", "Add draws first.")
        return np.full(len(self), 1.0 / len(self)) if self.weights is None else self.weights

    def with_scores(self, scores: ArrayLike, *, on_bad: str = "raise") -> Kept:
        """Add scores to draws that were kept without, for instance to select fewer of them with `merge`.

        Parameters
        ----------
        scores : array_like
            Scores of the kept draws, the gradients of the log density, (n, d).
        on_bad : {"raise", "skip"}
            What to do with a draw whose score is not finite: raise an error, or leave it out.

        Returns
        -------
        Kept
            The same draws with scores and their KSD.

        Raises
        ------
        InputError
            If the scores have another shape, are not finite, or have the wrong sign.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(5000, 2))
        >>> first = ss.thin(draws, size=500)
        >>> ss.merge([first.with_scores(-first.draws)], size=50)
        Kept(50 of 5000 draws, 2 dimensions, KSD 0.04614)
        """
        one_of(("raise", "skip"), on_bad, "on_bad")
        x, s = as_draws_and_scores(self.draws, scores, self.draws.shape[1])
        good = np.isfinite(s).all(axis=1)
        if not good.all():
            if on_bad == "raise" or not good.any():
                row = int(np.flatnonzero(~good)[0])
                raise InputError(f"The score of kept draw {row} is not finite.", 'Leave out such draws: on_bad="skip".')
            return replace(self.take(good), weights=None).with_scores(s[good])
        value = ksd(x, s, kernel=self.kernel, preconditioner=self.preconditioner, weights=self.weights)  # checks ranges
        SteinIdentity(x.shape[1]).updated(x, s).require_plausible()
        settings = {**self.settings, "has_scores": True, "scores_added": True}
        return replace(self, scores=s, ksd=value, settings=settings)

    # -- weights, order, names -----------------------------------------------------------------------------------------

    def weighted(self, *, like: SummarisedStream | ArrayLike | None = None, effective_share: float = 0.95) -> Kept:
        r"""Assign non-negative weights of sum 1 that minimise the objective: squared KSD plus the stream term.

        Parameters
        ----------
        like : array_like, optional
            The chain without its burn-in, (n, d) or (chains, n, d). Default: the summary of the stream in this set, or
            the set itself if there is none.
        effective_share : float, default 0.95
            Smallest effective size :math:`1 / \sum_i w_i^2`, relative to the number of draws. With less, the weights
            fit the noise of the stream.

        Returns
        -------
        Kept
            The same draws with weights. ``settings["weights"]["gap"]`` certifies optimality: it bounds the relative
            amount by which the square root of the objective could still decrease.

        Notes
        -----
        Kept draws are selected by the same objective, so weights change little. In the benchmark, errors fall by 4 % in
        the mean: of means by 5 to 10 %, of correlations by 15 %. With scores, errors of standard deviations rise by 1
        to 10 %.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(5000, 10))
        >>> weighted = ss.thin(draws, -draws, size=100).weighted()
        >>> round(weighted.effective_size), weighted.settings["weights"]["gap"] < 1e-8
        (95, True)
        """
        from steinstream.postprocess.weighting import optimise_weights  # facade

        return optimise_weights(self, like, effective_share)

    def ordered(self) -> Kept:
        """Order the draws such that the first k are a good set for every k.

        Returns
        -------
        Kept
            The same draws in another order, with ``prefix_ksd`` and ``prefix_mmd``: the objective of every prefix is
            small, see :mod:`steinstream.postprocess.ordering`.
        """
        from steinstream.postprocess.ordering import order_draws  # facade

        return order_draws(self)

    @property
    def order(self) -> Integers | None:
        """Position of each draw in the order of use: 0, 1, 2, ... after `ordered`, None before."""
        return None if self.prefix_ksd is None and self.prefix_mmd is None else np.arange(len(self))

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

        Raises
        ------
        InputError
            If the number is not between 1 and the size of the set, or the draws have no order.
        """
        if self.order is None:
            raise InputError("The kept draws have no order.", "Call ordered() first.")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= len(self):
            raise InputError(f"The number of first draws must be an integer from 1 to {len(self)}, got {count!r}.")
        ksds, mmds = (None if curve is None else curve[:count] for curve in (self.prefix_ksd, self.prefix_mmd))
        first = replace(
            self.take(np.arange(count)),
            weights=None,
            settings={name: value for name, value in self.settings.items() if name not in ("weights", "bound")},
            ksd=math.nan if ksds is None else float(ksds[-1]),
            mmd=math.nan if mmds is None else float(mmds[-1]),
            prefix_ksd=ksds,
            prefix_mmd=mmds,
        )
        return first.weighted() if weighted else first

    def take(self, rows: ArrayLike) -> Kept:
        """Return some of the kept draws, with everything that is stored for each draw.

        Parameters
        ----------
        rows : array_like
            Indices or a mask of the draws.

        Returns
        -------
        Kept
            These draws, in the given order. Their KSD and MMD are not computed: they are NaN.

        Examples
        --------
        >>> import steinstream as ss
        >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
        >>> kept = ss.thin(draws, -draws, size=50)
        >>> len(kept.take(kept.draws[:, 0] > 0))
        25
        """
        chosen = np.arange(len(self))[np.asarray(rows)]
        arrays: dict[str, Any] = {
            name: getattr(self, name) for name in ("draws", "scores", "ids", "second_scores", "weights")
        }
        arrays = {name: array[chosen] for name, array in arrays.items() if array is not None}
        variables = rows_of(self.variables, chosen)
        groups = {name: one if name in MODEL_GROUPS else rows_of(one, chosen) for name, one in self.groups.items()}
        summary = None if self.stream_summary is None else self.stream_summary.take(chosen)
        return replace(
            self,
            **arrays,
            variables=variables,
            groups=groups,
            stream_summary=summary,
            ksd=math.nan,
            mmd=math.nan,
            bound=None,
            prefix_ksd=None,
            prefix_mmd=None,
        )

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
        return replace(self, names=_as_names(names, self.draws.shape[1]))

    # -- reports and files ---------------------------------------------------------------------------------------------

    def diagnose(self, chain: ChainLike = None, scores: ArrayLike | None = None) -> Diagnosis:
        """Compare the kept draws with the stream, and the stream with itself: what KSD does not detect.

        The result states which checks fired, which faults each other check would have found, and what was not checked.

        Parameters
        ----------
        chain : path, sequence of paths or array_like, optional
            The chain: files, or draws (n, d) or (chains, n, d). Required if the kept set was read from a file or
            merged. Default: the subsample of the stream in the kept set.
        scores : array_like, optional
            Scores of the draws in ``chain``. Without them, all checks but that of the scores are made.

        Returns
        -------
        Diagnosis
            One finding per check.

        Raises
        ------
        InputError
            If the set has no subsample of its stream and no chain is given.
        """
        stream = self.stream
        if chain is not None:
            from steinstream.report.chain_summary import stream_subsample  # facade

            stream = stream_subsample(self, chain, scores)
        if stream is None:
            raise InputError(
                "This kept set contains no subsample of its stream.",
                "Pass the chain: diagnose(draws, scores), diagnose(draws), or its file.",
            )
        found = diagnose(self.draws, self.ids, stream, self.names, self.weights, self.settings)
        more = notes_of_summary(self.stream_error, self.mmd)
        if self.settings.get("corrected_stream"):
            more += ("the chain mixes slowly and was corrected by its scores, so the kept draws differ from it",)
        return replace(found, notes=(*found.notes, *more)) if more else found

    def report(
        self, path: str | PathLike[str] | None = None, chain: ChainLike = None, scores: ArrayLike | None = None
    ) -> Report:
        """Create an HTML report that compares the kept draws with the chain; requires matplotlib.

        Parameters
        ----------
        path : path, optional
            File to write. A notebook shows the returned report.
        chain : path, sequence of paths or array_like, optional
            The chain: files, or draws (n, d) or (chains, n, d). Default: the subsample in the kept set.
        scores : array_like, optional
            Scores of the draws in ``chain``. Without them, all checks but that of the scores are made.

        Returns
        -------
        Report
            The report.
        """
        from steinstream.report.page import build_report  # facade

        report = build_report(self, chain, scores)
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

        Raises
        ------
        InputError
            If pandas is not installed.
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

    def save(self, path: str | PathLike[str], layout: str | None = None) -> None:
        """Write npz, nc, zarr, csv, csv.gz or parquet, chosen by the extension.

        Parameters
        ----------
        path : path
            The file. An existing file is replaced when the new one is complete.
        layout : {"r", "chain-draw"}, optional
            Layout of csv for R, or of nc and zarr with the dimensions (chain, draw), which ArviZ 0.x needs: see
            :func:`steinstream.io.write_kept`.
        """
        from steinstream.io import write_kept  # facade

        write_kept(self, path, layout)

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


def _as_names(names: Sequence[str], dim: int) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names) or len({*names}) != dim:
        raise InputError(f"names must be {dim} different strings, one per parameter, got {reprlib.repr(names)}.")
    return tuple(names)

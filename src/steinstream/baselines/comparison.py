"""Comparison of the methods on one chain, at the same sizes: errors of summaries, KSD, time and memory.

Errors are measured against the whole chain, burn-in included: rms over the parameters of the error of the means (in
sds of the chain), of the relative error of the sds, and of the error of the 5 % and 95 % quantiles (in sds). Each is
divided by the rms of the same error over up to eight offsets of evenly spaced draws of the same number, so that 1 means
as good as keeping every k-th draw.

Each method runs in a process of its own, so that it does not profit from memory that another method left. It first runs
on a tiny chain, so that compilation is not measured. ``seconds`` is the time of the method alone and ``reading`` the
time of reading draws from the file, which online methods do while they run and the others before. ``megabytes`` is the
peak of resident memory above the memory before the run: it includes the chain for methods that hold the chain.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._processes import sigint_blocked
from steinstream._typing import Array, Integers
from steinstream.baselines import METHODS, method_name, selector
from steinstream.baselines.methods import (
    SelectionProblem,
    baseline_config,
    ksd_of,
    problem_from_arrays,
    problem_from_chain,
    validate_size,
)
from steinstream.errors import InputError, SteinstreamError, require_main_guard
from steinstream.io import Chain, open_chain
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block

SIZES = (50, 200, 500)
_OFFSETS = 8  # of evenly spaced draws, whose errors are the unit of the errors
_TAILS = (0.05, 0.95)
_REFERENCE_NUMBERS = 20_000_000  # a longer chain is represented by evenly spaced draws with as many numbers


@dataclass(frozen=True)
class ComparisonRow:
    """Result of one method at one size.

    Attributes
    ----------
    method : str
        Name of the method.
    size : int
        Number of selected draws.
    mean_error : float
        Error of the means compared with the whole chain, divided by that of evenly spaced draws. Below 1 is better
        than keeping every k-th draw.
    sd_error : float
        The same for standard deviations.
    quantile_error : float
        The same for the 5 % and 95 % quantiles.
    ksd : float
        KSD of the selected draws; nan without scores.
    normalised_ksd : float
        KSD times the square root of the size; nan without scores.
    distinct : int
        Number of different draws among the selected.
    seconds : float
        Time of the method, in seconds.
    reading : float
        Time of reading draws, in seconds.
    megabytes : float
        Peak memory of the method; nan if the system does not report it.
    problem : str
        Reason why the method failed; the numbers are then nan. Empty if it succeeded.
    """

    method: str
    size: int
    mean_error: float = math.nan
    sd_error: float = math.nan
    quantile_error: float = math.nan
    ksd: float = math.nan
    normalised_ksd: float = math.nan
    distinct: int = 0
    seconds: float = math.nan
    reading: float = math.nan
    megabytes: float = math.nan
    problem: str = ""

    @property
    def error(self) -> float:
        """Geometric mean of the three errors."""
        return math.pow(self.mean_error * self.sd_error * self.quantile_error, 1 / 3)


def compare(
    draws: ArrayLike | Chain | str | PathLike[str],
    scores: ArrayLike | None = None,
    *,
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = METHODS,
    seed: int = 0,
    config: ThinConfig | None = None,
    on_read: Callable[[float], None] | None = None,
    on_row: Callable[[ComparisonRow], None] | None = None,
    **settings: Any,
) -> list[ComparisonRow]:
    """Run several methods on one chain at the same sizes, and measure errors, KSD, time and memory.

    ``default`` is the recommended method, ``ksdt`` that of the paper. All methods use the same kernel and
    preconditioner. Each method runs in a process of its own, which imports the script that calls this function: call
    it under ``if __name__ == "__main__":``.

    Parameters
    ----------
    draws : array_like, path_like or Chain
        Draws of shape (n, d) or (chains, n, d), a file, or a result of :func:`steinstream.io.open_chain`.
    scores : array_like of the same shape, optional
        Gradient of the log density at each draw, if ``draws`` is an array. Without scores KSD is not computed, and
        methods that require scores fail.
    sizes : sequence of int, default (50, 200, 500)
        Numbers of draws to select.
    methods : sequence of str, optional
        Names of methods, see ``steinstream.baselines.METHODS``. Default: all methods.
    seed : int, default 0
        Random seed of randomised methods.
    config : ThinConfig, optional
        Configuration with the settings of all methods. Default: the default settings.
    on_read : callable, optional
        Called with the fraction of the file that was read in the first pass.
    on_row : callable, optional
        Called with every row as soon as it is known.
    **settings
        Settings of all methods: ``kernel``, ``preconditioner``, ``on_bad`` and ``validate_scores``, as in `ThinConfig`.

    Returns
    -------
    list of ComparisonRow
        One row per method and size, grouped by method, with ascending sizes. Errors are relative to those of evenly
        spaced draws. A method that fails has rows with ``problem`` set.

    Raises
    ------
    InputError
        If the chain is invalid, a method is unknown, or the chain has fewer draws than the smallest size.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> rows = compare(draws, -draws, sizes=[20], methods=["default", "ksdt", "random_thinning"])
    >>> [(row.method, round(row.mean_error, 2), round(row.ksd, 2)) for row in rows]
    [('default', 0.06, 0.1), ('ksdt', 0.1, 0.09), ('random_thinning', 0.7, 0.69)]
    """
    require_main_guard()
    names = dict.fromkeys(method_name(name) for name in methods)
    for size in sizes:
        validate_size(size, math.inf)
    if not names or not sizes:
        raise InputError("There is nothing to compare.", "Give at least one method and one size.")
    sizes = sorted(set(sizes))
    chosen = baseline_config(config, **settings)
    if isinstance(draws, Chain | str | PathLike):
        if scores is not None:
            raise InputError(
                "scores must be None if draws is a file.",
                "If the scores are in another file, give ss.io.open_chain(draws, scores=scores).",
            )
        chain = draws if isinstance(draws, Chain) else open_chain(draws)
        problem = problem_from_chain(chain, sizes[0], chosen, seed=seed, progress=on_read)
    else:
        problem = problem_from_arrays(draws, scores, sizes[0], chosen, seed=seed)
    reference = reference_of(problem, sizes)
    rows = []
    for name in names:
        for row in rows_of_process(problem, reference, name, sizes):
            rows.append(row)
            if on_row is not None:
                on_row(row)
    return rows


# -- errors against the whole chain --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChainReference:
    """Summaries of the whole chain, and the errors of evenly spaced draws by size.

    Parameters that are constant along the chain are left out.
    """

    mean: Array
    sd: Array
    tails: Array
    stride_errors: Mapping[int, Array]

    def relative_errors(self, draws: Array) -> Array:
        """Compare the errors of means, sds and quantiles of draws (n, d) with those of evenly spaced draws.

        Returns
        -------
        array
            Errors of means, sds and tail quantiles, divided by those of n evenly spaced draws, (3,).

        Examples
        --------
        >>> x = np.arange(100.0)[:, None]
        >>> problem = problem_from_arrays(x, None, 10)
        >>> reference_of(problem, [10]).relative_errors(x[5::10]).round(2).tolist()
        [0.17, 1.0, 0.81]
        """
        error, unit = self.errors(draws), self.stride_errors[len(draws)]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = error / unit
        return np.where((error == 0) & (unit == 0), 1.0, ratio)

    def errors(self, draws: Array) -> Array:
        """Rms over the parameters of the errors of means (in sds), sds (relative) and tail quantiles (in sds)."""
        varies = self.sd > 0
        if not varies.any():
            return np.zeros(3)
        x = draws[:, varies]
        mean, sd, tails = self.mean[varies], self.sd[varies], self.tails[:, varies]
        errors = ((x.mean(axis=0) - mean) / sd, x.std(axis=0) / sd - 1.0, (np.quantile(x, _TAILS, axis=0) - tails) / sd)
        return np.array([np.sqrt(np.mean(error**2)) for error in errors])


def reference_of(problem: SelectionProblem, sizes: Sequence[int]) -> ChainReference:
    """Read the chain once and return its summaries and the errors of evenly spaced draws."""
    total = problem.total
    longest = min(total, max(_REFERENCE_NUMBERS // problem.dim, 1))
    parts = [_spaced(total, longest, 0.5)]
    keys = []
    for size in sizes:
        number = min(_OFFSETS, total // size)
        for offset in range(number):
            keys.append(size)
            parts.append(_spaced(total, size, (offset + 0.5) / number))
    indices, inverse = np.unique(np.concatenate(parts), return_inverse=True)
    held = problem.take(indices).draws
    chain, *strides = (held[rows] for rows in np.split(inverse, np.cumsum([len(part) for part in parts])[:-1]))
    reference = ChainReference(chain.mean(axis=0), chain.std(axis=0), np.quantile(chain, _TAILS, axis=0), {})
    squares: dict[int, list[Array]] = {}
    for size, draws in zip(keys, strides, strict=True):
        squares.setdefault(size, []).append(reference.errors(draws) ** 2)
    return replace(reference, stride_errors={size: np.sqrt(np.mean(some, axis=0)) for size, some in squares.items()})


def _spaced(total: int, size: int, phase: float) -> Integers:
    """Indices of ``size`` evenly spaced draws; ``phase`` between 0 and 1 shifts them by a part of the stride.

    >>> _spaced(10, 3, 0.5)
    array([1, 5, 8])
    """
    indices: Integers = np.floor((np.arange(size) + phase) * (total / size)).astype(np.int64)
    return indices


# -- processes -----------------------------------------------------------------------------------------------------


def rows_of_process(
    problem: SelectionProblem, reference: ChainReference, name: str, sizes: Sequence[int]
) -> Iterator[ComparisonRow]:
    """Run a method in a process and yield its rows; if the process ends early, the remaining rows give the reason."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(problem, reference, name, sizes, sender), daemon=True)
    waiting = list(sizes)
    try:
        with sigint_blocked():  # inherited by the process: only this process handles Ctrl-C, and ends the other
            process.start()
        sender.close()
        while waiting:
            yield receiver.recv()
            del waiting[0]
    except EOFError:
        process.join()
        reason = f"The process ended with code {process.exitcode}."
        if process.exitcode == -9:
            reason = "The process was killed, probably because memory was exhausted."
        for size in waiting:
            yield ComparisonRow(name, size, problem=reason)
    finally:
        if process.pid is not None:  # it was started
            process.terminate()
            process.join()
        receiver.close()


def _run(
    problem: SelectionProblem, reference: ChainReference, name: str, sizes: Sequence[int], out: Connection
) -> None:
    """Compile the method on a tiny chain, then measure it at each size; runs in the process."""
    reason = ""
    try:
        selector(name)(_tiny(problem))
    except SteinstreamError as error:
        reason = str(error)
    for size in sizes:
        failed = ComparisonRow(name, size, problem=reason)
        out.send(failed if reason else _measure(problem._replace(size=size), reference, name))


def _tiny(problem: SelectionProblem) -> SelectionProblem:
    """Return a problem of the same kind with 64 draws."""
    draws = np.random.default_rng(0).normal(size=(64, problem.dim))
    scores = -draws if problem.has_scores else None
    return problem_from_arrays(draws, scores, 4, kernel=problem.kernel, preconditioner=problem.preconditioner)


def _measure(problem: SelectionProblem, reference: ChainReference, name: str) -> ComparisonRow:
    """Run the method once."""
    blocks = TimedBlocks(problem.blocks)
    try:
        validate_size(problem.size, problem.total)
        before, began = _reset_peak_memory(), time.perf_counter()
        selected = selector(name)(problem._replace(blocks=blocks))
        spent, after = time.perf_counter() - began, _peak_memory()
        value = ksd_of(problem, selected)
    except (SteinstreamError, MemoryError) as error:
        return ComparisonRow(name, problem.size, problem=str(error) or "Out of memory.")
    mean_error, sd_error, quantile_error = reference.relative_errors(selected.draws).tolist()
    return ComparisonRow(
        name,
        problem.size,
        mean_error=mean_error,
        sd_error=sd_error,
        quantile_error=quantile_error,
        ksd=value,
        normalised_ksd=value * math.sqrt(problem.size),
        distinct=len(np.unique(selected.ids, axis=0)),
        seconds=spent - blocks.seconds,
        reading=blocks.seconds,
        megabytes=after - before,
    )


class TimedBlocks:
    """Iterate over blocks and measure the time of reading them."""

    def __init__(self, blocks: Callable[[], Iterable[Block]]) -> None:
        self._blocks = blocks
        self.seconds = 0.0

    def __call__(self) -> Iterator[Block]:
        blocks = iter(self._blocks())
        while True:
            began = time.perf_counter()
            block = next(blocks, None)
            self.seconds += time.perf_counter() - began
            if block is None:
                return
            yield block


def _reset_peak_memory() -> float:
    """Reset the peak of resident memory where possible, and return it in megabytes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # memory freed by earlier runs could be reused unnoticed
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory()


def _peak_memory() -> float:
    """Return the peak of resident memory in megabytes; nan if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    with suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return math.nan

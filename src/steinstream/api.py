"""Thin draws that are already there: choose coordinates from them, then run the thinner over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import schedules, validation
from steinstream.errors import InputError, positive
from steinstream.kernels import IMQ, Kernel
from steinstream.preconditioning import Preconditioner, Streaming, as_fixed
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.passes import as_passes, begin_well, begins_with_sample, go_on
from steinstream.thinner.subsample import Subsample

if TYPE_CHECKING:
    from steinstream.targets import Target

#: The paper's settings: ``ss.thin(draws, scores, **ss.PAPER)``.
PAPER: dict[str, Any] = {
    "kernel": IMQ(),
    "preconditioner": Preconditioner.identity(),
    "growth": "sqrt",
    "budget": 0.0,
    "rule": "paper",
}


def thin(
    draws: ArrayLike,
    scores: ArrayLike | None = None,
    *,
    log_density: ArrayLike | None = None,
    proxy: str | Target | None = None,
    clip: float = 1.0,
    size: int | None = None,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | Streaming | ArrayLike | str = "auto",
    growth: str | float | schedules.Schedule | None = None,
    budget: str | float | schedules.Schedule = 0.0,
    rule: str = "paper",
    candidates: int = 1,
    anchor: float | bool = False,
    cost_weight: float = 0.0,
    costs: ArrayLike | None = None,
    pinned: ArrayLike | None = None,
    passes: int | str = 1,
    start: str | None = None,
    on_bad: str = "raise",
    validate_scores: bool = True,
    names: Sequence[str] | None = None,
) -> Kept:
    """Keep the draws that matter: of (n, d) or (chains, n, d) draws with their scores, grad log p at each draw.

    Settings that are not given are chosen to serve; ``**ss.PAPER`` takes the paper's instead.

    Parameters
    ----------
    draws, scores
        (n, d) or (chains, n, d) numbers each; unconstrained draws, and grad log p at each of them.
    size
        A hard cap: exactly so many are kept, or all if fewer came. Without it about sqrt(n log n) are, or more where
        the target needs more.
    preconditioner
        Estimated from the draws unless given, because the kernel's one length scale cannot fit parameters of different
        widths; ``"streaming"`` follows the draws as a live stream would, ``"identity"`` takes them as they are. Given,
        they are a :class:`~steinstream.Preconditioner`, an array of d scales or a covariance (d, d).
    passes, start
        Further passes over the draws keep as many and lower KSD; ``"auto"`` makes as many as are worth their time. With
        ``size`` it also begins with a good set out of a sample of the draws, which ``start="sample"`` does for any
        number of passes, and ``start="stream"`` does not (:mod:`steinstream.thinner.passes`).
    anchor, cost
        With ``anchor=True`` the kept draws have the proportions of all; ``cost`` is how much the ``costs`` count.
    costs, pinned
        An entry for each draw, (n,) or (chains, n): what it costs to keep it, and whether it must stay.
    kernel, growth, budget, rule, candidates, on_bad, validate_scores
        As in :class:`~steinstream.Thinner`.
    proxy, log_density, clip
        Without scores a proxy lends its own: ``"gaussian"``, fitted to the draws, or an object with ``log_density`` and
        ``score``. With the target's log density at each draw, (n,) or (chains, n), what is kept is then still close to
        the target; without it, to the proxy. ``clip`` and the limits: :mod:`steinstream.gradient_free`.

    names
        Of the d parameters; the columns of a table, such as pandas', unless given.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(500, 2)) * [1.0, 0.01]
    >>> thin(draws, -draws / [1.0, 0.0001], size=25)
    Kept(25 of 500 draws, 2 dimensions, KSD 0.09746)
    >>> thin(draws, -draws / [1.0, 0.0001], size=25, passes="auto")
    Kept(25 of 500 draws, 2 dimensions, KSD 0.08777)

    """
    validation.refuse_path(draws, "draws")
    kernel, candidates = validation.as_kernel(kernel), positive(candidates, "candidates")
    if scores is None:
        from steinstream.gradient_free import thin_without_scores

        kept = thin_without_scores(
            draws, log_density, proxy, clip, size=size, kernel=kernel, preconditioner=preconditioner, growth=growth,
            budget=budget, rule=rule, candidates=candidates, passes=passes, start=start, anchor=anchor, cost_weight=cost_weight,
            costs=costs, pinned=pinned, on_bad=on_bad,
        )  # fmt: skip
        return _named(kept, names, draws)
    if proxy is not None or log_density is not None:
        raise InputError("There are scores, so there is no need of a proxy or a log density.", "Leave them out.")
    chains = as_chains(draws, scores)
    prices, pins = by_chain(costs, chains, "costs"), by_chain(pinned, chains, "pinned")
    total = sum(len(block.draws) for block in chains)
    if total < candidates:
        raise InputError(*too_short(total, candidates))
    portions = list(map(Portion, chains, prices, pins))
    kept = thin_portions(
        chains[0].draws.shape[1], lambda: portions, size=size, kernel=kernel, preconditioner=preconditioner, growth=growth,
        budget=budget, rule=rule, candidates=candidates, anchor=anchor, cost_weight=cost_weight, pinned=pinned is not None,
        passes=passes, start=start, on_bad=on_bad, validate_scores=validate_scores,
    )  # fmt: skip
    return _named(kept, names, draws)


def _named(kept: Kept, names: Sequence[str] | None, draws: ArrayLike) -> Kept:
    """With the names given, or those of a table's columns if they are names."""
    if names is not None:
        return kept.with_names(names)
    columns = [*getattr(draws, "columns", ())]
    good = len({*columns}) == kept.draws.shape[1] and all(isinstance(name, str) for name in columns)
    return kept.with_names(columns) if good else kept


class Portion(NamedTuple):
    """Some draws of a chain, and what they cost and whether they must stay, if anybody says so."""

    block: validation.Block
    costs: NDArray[Any] | None = None
    pinned: NDArray[Any] | None = None


def thin_portions(
    dim: int,
    portions: Callable[[], Iterable[Portion]],
    *,
    size: int | None = None,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | Streaming | ArrayLike | str = "auto",
    growth: str | float | schedules.Schedule | None = None,
    budget: str | float | schedules.Schedule = 0.0,
    rule: str = "paper",
    candidates: int = 1,
    anchor: float | bool = False,
    cost_weight: float = 0.0,
    pinned: bool = False,
    passes: int | str = 1,
    start: str | None = None,
    on_bad: str = "raise",
    validate_scores: bool = True,
) -> Kept:
    """As :func:`thin`, for draws that come in portions, each time from the start: a file's, say, in bounded memory.

    ``portions`` is called once to look at the draws, for coordinates, and once for every pass. ``pinned`` says whether
    any draws must stay.
    """
    passes = as_passes(passes)
    if isinstance(preconditioner, str) and preconditioner == "streaming":
        preconditioner = Streaming(centred=kernel is not None and kernel.linear > 0)
    sketch = Subsample(dim)
    for block, _, _ in portions():
        sketch.add(block.take(validation.usable(block, on_bad)))
    sign = validate_scores  # is to be checked as draws come
    if not isinstance(preconditioner, Streaming):
        preconditioner = fitting(preconditioner, sketch, validate_scores, kernel)
        sign = False  # it was done, on the sketch
    thinner = Thinner(
        dim, kernel=kernel, preconditioner=preconditioner, growth=growth, budget=budget, rule=rule, size=size,
        candidates=candidates, anchor=anchor, cost_weight=cost_weight, on_bad=on_bad, validate_scores=sign,
    )  # fmt: skip
    thinner._looks.scores = bool(validate_scores)  # at the result
    if begins_with_sample(start, passes, thinner, pins=pinned):
        begin_well(thinner, sketch.block)
    return _pass_by(thinner, portions, passes)


def _pass_by(thinner: Thinner, portions: Callable[[], Iterable[Portion]], passes: int | str) -> Kept:
    """Let all draws pass, as often as they are to."""
    while True:
        for block, prices, pins in portions():
            thinner.extend(block.draws, block.scores, ids=block.ids, costs=prices, pinned=pins)
        if len(thinner) == 0:
            raise InputError(*too_short(thinner.seen - thinner.skipped, thinner.candidates))
        if not go_on(thinner, passes):
            return thinner.kept
        thinner.start_pass()


def too_short(draws: int, candidates: int) -> tuple[str, str]:
    """What to say when a chain does not make a single step."""
    return f"The chain has {draws} draws, and one step takes {candidates}.", "Give a longer chain, or fewer candidates."


def fitting(
    preconditioner: Preconditioner | ArrayLike | str,
    sketch: Subsample,
    validate_scores: bool,
    kernel: Kernel | None = None,
) -> Preconditioner:
    """The coordinates asked for, estimated from a sketch of the stream where they are asked for by name.

    If the kernel has a linear term, which depends on where the origin lies, they have a centre; but for identity.
    """
    held = sketch.block
    if len(held.draws) == 0:
        raise InputError("There are no usable draws to thin.")
    if validate_scores:
        dim = held.draws.shape[1]
        validation.SteinIdentity(dim).with_more(held.draws, held.scores).require_plausible()
    if not isinstance(preconditioner, str):
        return as_fixed(preconditioner)
    centred = kernel is not None and kernel.linear > 0 and preconditioner != "identity"
    return Preconditioner.estimate(preconditioner, sketch.settled().draws, centred=centred)


def by_chain(values: ArrayLike | None, chains: list[validation.Block], what: str) -> list[NDArray[Any] | None]:
    """One entry per draw, (n,) or (chains, n), for each chain its own; None where there are none."""
    if values is None:
        return [None] * len(chains)
    rows = np.asarray(values)
    parts = [rows] if len(chains) == 1 and rows.ndim == 1 else list(rows)
    if rows.ndim == 0 or [np.shape(part) for part in parts] != [(len(block.draws),) for block in chains]:
        raise InputError(f"{what} must have one entry per draw, got shape {rows.shape}.")
    return [np.asarray(part) for part in parts]


def as_chains(draws: ArrayLike, scores: ArrayLike) -> list[validation.Block]:
    """One block per chain."""
    x, s = validation.as_numbers(draws, "draws"), validation.as_numbers(scores, "scores")
    if x.ndim == 3 and x.shape != s.shape:
        raise InputError(
            f"Draws have shape {x.shape} and scores have shape {s.shape}.",
            "Every draw needs its own score: the gradient of the log density at that draw.",
        )
    if x.ndim == 3:
        pairs: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(x, s, strict=True))
    else:
        pairs = [(x, s)]
    blocks = [validation.as_block(*pair) for pair in pairs]
    if not blocks or sum(len(x) for x, _ in blocks) == 0:
        raise InputError("The stream is empty: there are no draws to thin.")
    return [validation.Block(x, s, validation.consecutive(chain, 0, len(x))) for chain, (x, s) in enumerate(blocks)]

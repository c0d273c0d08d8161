"""Marks that draws may carry: what keeping one costs, and whether it must stay. Checked here, once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError
from steinstream.validation import HUGE

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Marks(NamedTuple):
    """Costs and pins of consecutive draws."""

    costs: Array
    pinned: Flags

    def take(self, rows: slice | Flags | Integers) -> Marks:
        """Some of the rows."""
        return Marks(self.costs[rows], self.pinned[rows])

    def then(self, more: Marks) -> Marks:
        """These and then those."""
        return Marks(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))

    def require_room(self, pinned: int, cap: int | None, candidates: int) -> None:
        """Raise if there are more pins than the cap, or more than one among candidates of which one is taken.

        These are the marks of all draws that are not yet decided on; ``pinned`` is how many pins are kept already.
        """
        total = pinned + int(self.pinned.sum())
        if cap is not None and total > cap:
            raise InputError(
                f"{total} draws would be pinned, and size={cap} is the cap.", "Pin fewer, or raise the cap."
            )
        places = np.flatnonzero(self.pinned) // candidates
        if len(np.unique(places)) < len(places):
            raise InputError(
                f"Two pinned draws are among the same {candidates} candidates, of which one is taken.",
                "Leave candidates at 1, or pin one of them.",
            )


def no_marks(count: int) -> Marks:
    """Draws that cost nothing and may go."""
    return Marks(np.zeros(count), np.zeros(count, dtype=np.bool_))


def waiting(held: Marks | None, draws: int, new: Marks | None, more: int) -> Marks | None:
    """The marks of so many draws that wait, and of more behind them; None where nothing is said of any."""
    if held is None and new is None:
        return None
    return (held or no_marks(draws)).then(new or no_marks(more))


def as_weight(cost: float) -> float:
    """How much costs count.

    >>> as_weight(1)
    1.0
    """
    if isinstance(cost, bool) or not (isinstance(cost, int | float | np.number) and 0 <= cost < HUGE):
        raise InputError(
            f"cost_weight must be a number of at least 0, got {cost!r}.", "The costs themselves go to extend."
        )
    return float(cost)


def as_marks(costs: ArrayLike | None, pinned: ArrayLike | None, count: int, priced: bool) -> Marks | None:
    """What the user says of so many draws; ``priced`` if the thinner looks at costs. None where nothing is said."""
    if priced and costs is None:
        raise InputError("This thinner weighs costs, and these draws have none.", "Give costs=, one number per draw.")
    if not priced and costs is not None:
        raise InputError(
            "The draws have costs, and this thinner gives them no weight.",
            "Make it with cost_weight=, for example cost_weight=1.0.",
        )
    if costs is None and pinned is None:
        return None
    none = no_marks(count)
    return Marks(
        none.costs if costs is None else _as_costs(costs, count),
        none.pinned if pinned is None else _as_flags(pinned, count),
    )


def _as_costs(costs: ArrayLike, count: int) -> Array:
    try:
        values = np.ascontiguousarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("costs must be numbers, one per draw, and these are not.") from None
    if values.shape != (count,):
        raise InputError(f"costs must be {count} numbers, one per draw, got shape {values.shape}.")
    bad = np.flatnonzero(~((values >= 0) & (values < HUGE)))
    if len(bad):
        raise InputError(f"The cost of draw {int(bad[0])} is {values[bad[0]]}.", "Costs are finite and at least 0.")
    return values


def _as_flags(pinned: ArrayLike, count: int) -> Flags:
    flags = np.ascontiguousarray(pinned)
    if flags.shape != (count,) or flags.dtype != np.bool_:
        raise InputError(
            f"pinned must be {count} truth values, one per draw, got {flags.dtype} with shape {flags.shape}.",
            "Draws that are kept already are pinned by their ids: thinner.pin.",
        )
    return flags

"""An order of use: the kept draws such that the first k are good for every k.

Where each draw costs a simulation, run them in this order and stop whenever time or money is up. Greedy: the next draw
is the one that makes KSD of the draws so far smallest, and none comes twice: Stein thinning (Riabiz et al., 2022) of
the kept set itself, n^2 kernel evaluations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.discrepancy import cumulative_ksd
from steinstream.errors import InputError
from steinstream.gradient_free import reject_ratios
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept


def put_in_order(kept: Kept) -> Kept:
    """The same draws, each one the best to come after those before it, and KSD of the first 1, 2, ..., n."""
    from steinstream.baselines import stein_thinning

    if len(kept) == 0:
        raise InputError("Nothing is kept yet, so there is nothing to order.", "Push draws first.")
    reject_ratios(kept, "An order of use")
    places = stein_thinning(
        kept.draws, kept.scores, len(kept), kernel=kept.kernel, preconditioner=kept.preconditioner or Preconditioner.identity(),
        validate_scores=False, unique=True,
    )[:, 1]  # fmt: skip
    ordered = _rows(kept, places)
    curve = cumulative_ksd(ordered.draws, ordered.scores, kernel=kept.kernel, preconditioner=kept.preconditioner)
    return replace(ordered, prefix_ksd=curve)


def first(kept: Kept, count: int) -> Kept:
    """The first so many draws of an ordered set, with equal weights."""
    if kept.prefix_ksd is None:
        raise InputError("These draws are in no order of use yet.", "Call ordered() first.")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= len(kept):
        raise InputError(f"A prefix has 1 to {len(kept)} draws, got {count!r}.")
    settings = {name: value for name, value in kept.settings.items() if name not in ("weights", "bound")}
    return replace(
        _rows(kept, np.arange(count)), weights=None, bound=None, settings=settings,
        ksd=float(kept.prefix_ksd[count - 1]), prefix_ksd=kept.prefix_ksd[:count],
    )  # fmt: skip


def _rows(kept: Kept, places: NDArray[np.int64]) -> Kept:
    """The draws at these places, with all that is known of each."""
    each: dict[str, Any] = {
        name: getattr(kept, name) for name in ("draws", "scores", "ids", "second_scores", "weights")
    }
    each = {name: array[places] for name, array in each.items() if array is not None}
    variables = {name: one._replace(values=one.values[places]) for name, one in kept.variables.items()}
    return replace(kept, **each, variables=variables)

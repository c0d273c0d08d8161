"""What guides the choice of who goes, beside KSD: an anchor to the stream, costs, pins.

With n draws kept, F the sum of their waves f (:mod:`steinstream._engine.fourier_features`) and m the stream's mean, the anchor adds
w |F / n - m|^2 to the objective. After draw j is gone, (n - 1)^2 times the anchor's term is w |L - f_j|^2 with
L = F - (n - 1) m; and |f_j|^2 is the same for all j. So the objective is least without the draw that has the greatest

    key_j = u_j + w <L, f_j> ,

u_j being its influence. L changes with every draw of the stream, and all keys with it: every search makes them anew.
The products <L, f_j> are made in single precision, always in the same order; budgets are judged in double precision.

A draw of cost c goes as if its Stein kernel with itself were greater by lambda kappa c / (mean cost): the search is for
the greatest key_j + scale * dear_j, where ``dear`` is the cost of the slot's copy that would go first, or -inf where
all copies are pinned.

A guide may be None: then nothing here does anything, and nothing of it is compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.fourier_features import wave
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import diagonal
from steinstream._engine.kernel_row import SCALE as SCALE
from steinstream._engine.kernel_row import WEIGHT
from steinstream._engine.simd import LANES, fused
from steinstream._engine.state import DRAWS, GREATEST, LATEST, NONE, OWN, SLOTS, Floats, Integers, Store, aligned

_wave = inlined(wave)

# Places in Guide.numbers. WEIGHT and SCALE, which the sweep knows: w / M and the factor of costs, as of this step. Then
# the latest draw's cost, key, and key with its cost; whether the stream is listened to, and not only run once more.
NEW_DEAR, NEW_KEY, NEW_TILTED, LISTENS = 2, 3, 4, 5
GAMMA, LAMBDA = 6, 7
# Sums over the stream, beside that of the waves: draws, costs.
COUNT, COSTS = OVER_THE_STREAM = 8, 9
# Logarithms of k0(x, x), and how many, since the coordinates last changed: of what was kept then and of the stream.
LOGS, LOGGED = 10, 11
NUMBERS = 12

_LEAST_SPREAD = 1e-6  # of the waves over the stream: below it there are no proportions to keep


class Guide(NamedTuple):
    """Slots and labels as in the store; 2 M waves, none without an anchor."""

    waves: NDArray[np.float32]  # (slots / 16, 2 M, 16)
    dear: Floats  # (slots,)
    keys: Floats  # (slots,): of the last search
    going: Integers  # (slots,): the label that would go first, or none
    cost: Floats  # (labels,)
    pinned: NDArray[np.bool_]  # (labels,)
    turns: Floats  # (d, M): the frequencies, for draws as they were given
    here: Floats  # (2 M,): the latest draw's waves
    kept: Floats  # (2 M,): summed over what is kept
    stream: Floats  # (2 M,): summed over the stream
    mean: Floats  # (2 M,): of the stream
    lean: NDArray[np.float32]  # (2 M,): L
    parts: NDArray[np.float32]  # (4, 16): scratch
    numbers: Floats
    given: Floats  # (n, d): the draws of this block as they were given
    costs: Floats  # (n,)
    pins: NDArray[np.bool_]  # (n,)


def empty_guide(turns: Floats, slots: int, labels: int) -> Guide:
    """For a store of so many slots and labels."""
    count = 2 * turns.shape[1]
    return Guide(
        waves=aligned(slots // LANES, count, LANES, kind=np.float32),
        dear=aligned(slots),
        keys=aligned(slots),
        going=np.full(slots, NONE, dtype=np.int64),
        cost=np.zeros(labels),
        pinned=np.zeros(labels, dtype=np.bool_),
        turns=turns,
        here=aligned(count),
        kept=aligned(count),
        stream=aligned(count),
        mean=aligned(count),
        lean=aligned(count, kind=np.float32),
        parts=aligned(4, LANES, kind=np.float32),
        numbers=np.zeros(NUMBERS),
        given=np.zeros((0, turns.shape[0])),
        costs=np.zeros(0),
        pins=np.zeros(0, dtype=np.bool_),
    )


def roomier_guide(guide: Guide, store: Store) -> Guide:
    """The same contents with room for what the store has room for."""
    new = empty_guide(guide.turns, len(store.copies), len(store.following))
    for name in ("waves", "dear", "keys", "going", "cost", "pinned"):
        old = getattr(guide, name)
        getattr(new, name)[: len(old)] = old
    same = ("here", "kept", "stream", "mean", "lean", "parts", "numbers")
    return new._replace(**{name: getattr(guide, name) for name in same})


# -- the stream ----------------------------------------------------------------------------------------------------


@inlined
def make_waves(turns, given, i, out):
    """The waves of a draw."""
    pairs = turns.shape[1]
    for m in range(pairs):
        out[m] = 0.0
    for k in range(turns.shape[0]):
        value, line = given[i, k], turns[k]
        for m in range(pairs):
            out[m] = fused(value, line[m], out[m])
    for m in range(pairs):
        out[m], out[pairs + m] = _wave(out[m])


@inlined
def meet(store, kernel, guide, draws, scores, first, last):
    """The stream goes on by these draws: what is its mean now, and how much do anchor and costs weigh?

    The waves of the last one are left behind. Keys of before hold no more.
    """
    if guide is not None:
        numbers, here, stream = guide.numbers, guide.here, guide.stream
        for i in range(first, last):
            make_waves(guide.turns, guide.given, i, here)
            if numbers[LISTENS] > 0.0:
                for m in range(here.shape[0]):
                    stream[m] += here[m]
                numbers[COUNT] += 1.0
                numbers[COSTS] += guide.costs[i]
                numbers[LOGS] += np.log(diagonal(kernel, draws, scores, i))
                numbers[LOGGED] += 1.0
        settle(guide)
        store.sums[GREATEST] = np.nan


@inlined
def settle(guide):
    """Mean and weights, from the sums over the stream."""
    numbers, stream, mean = guide.numbers, guide.stream, guide.mean
    count, pairs = numbers[COUNT], 0.5 * guide.stream.shape[0]
    kappa, square = np.exp(numbers[LOGS] / numbers[LOGGED]), 0.0
    for m in range(mean.shape[0]):
        mean[m] = stream[m] / count
        square += mean[m] * mean[m]
    numbers[WEIGHT], numbers[SCALE] = 0.0, 1.0  # not 0: it multiplies -inf where a draw is pinned
    spread = pairs - square  # for cosine^2 + sine^2 = 1
    if spread > _LEAST_SPREAD * pairs:
        numbers[WEIGHT] = numbers[GAMMA] * kappa / spread
    if numbers[LAMBDA] * numbers[COSTS] > 0.0:
        numbers[SCALE] = 0.5 * numbers[LAMBDA] * kappa / (numbers[COSTS] / count)


# -- the objective -------------------------------------------------------------------------------------------------


@inlined
def gap_now(store, guide):
    """What the anchor adds to the objective."""
    if guide is None:
        return 0.0
    total, draws = 0.0, float(store.counts[DRAWS])
    for m in range(guide.kept.shape[0]):
        apart = guide.kept[m] / draws - guide.mean[m]
        total += apart * apart
    return guide.numbers[WEIGHT] * total


@inlined
def gap_with_latest(store, guide):
    """The same if the draw that was weighed were added."""
    if guide is None:
        return 0.0
    total, draws = 0.0, float(store.counts[DRAWS] + 1)
    for m in range(guide.kept.shape[0]):
        apart = (guide.kept[m] + guide.here[m]) / draws - guide.mean[m]
        total += apart * apart
    return guide.numbers[WEIGHT] * total


@inlined
def gap_without(store, guide, slot):
    """The same if one draw of this slot were gone."""
    if guide is None:
        return 0.0
    total, draws, tile, lane = 0.0, float(store.counts[DRAWS] - 1), slot // LANES, slot % LANES
    for m in range(guide.kept.shape[0]):
        apart = (guide.kept[m] - np.float64(guide.waves[tile, m, lane])) / draws - guide.mean[m]
        total += apart * apart
    return guide.numbers[WEIGHT] * total


@jit
def gap_as_of_now(store, guide) -> float:
    """What the anchor adds to the objective, whatever step was made last."""
    settle(guide)
    return float(gap_now(store, guide))


# -- keys ----------------------------------------------------------------------------------------------------------


@inlined
def lean(store, guide):
    """L for a search among what is kept."""
    if guide is not None:
        others = float(store.counts[DRAWS] - 1)
        for m in range(guide.lean.shape[0]):
            guide.lean[m] = guide.kept[m] - others * guide.mean[m]


@inlined
def lean_with_latest(store, guide):
    """L for a search among what is kept and the draw that is weighed."""
    if guide is not None:
        others = float(store.counts[DRAWS])
        for m in range(guide.lean.shape[0]):
            guide.lean[m] = (guide.kept[m] + guide.here[m]) - others * guide.mean[m]


@inlined
def key_of_latest(store, guide, new):
    """Key and cost of the draw that was weighed; a repeated state goes as the dearest of its copies."""
    if guide is not None:
        numbers, parts, slot = guide.numbers, guide.parts, store.counts[LATEST]
        for part in range(4):
            parts[part, 0] = 0.0
        for m in range(0, guide.lean.shape[0], 4):
            for part in range(4):
                parts[part, 0] = fused(guide.lean[m + part], np.float32(guide.here[m + part]), parts[part, 0])
        product = np.float64((parts[0, 0] + parts[1, 0]) + (parts[2, 0] + parts[3, 0]))
        dear = -np.inf if guide.pins[new] else guide.costs[new]
        if slot < store.counts[SLOTS]:
            dear = max(dear, guide.dear[slot])
        numbers[NEW_DEAR] = dear
        numbers[NEW_KEY] = fused(numbers[WEIGHT], product, store.sums[OWN])
        numbers[NEW_TILTED] = fused(numbers[SCALE], dear, numbers[NEW_KEY])


@inlined
def note_key(guide, slot):
    """The draw that was weighed is in this slot now."""
    if guide is not None:
        guide.keys[slot] = guide.numbers[NEW_KEY]


@inlined
def key_of_candidate(store, guide, influence, new, here):
    """What adding this draw would raise the objective by, up to a factor: the least is best. Pinned ones come first."""
    numbers, size, product = guide.numbers, float(store.counts[DRAWS] + 1), 0.0
    for m in range(here.shape[0]):
        product = fused(guide.kept[m] - size * guide.mean[m], here[m], product)
    if guide.pins[new]:
        return -np.inf
    return fused(numbers[SCALE], guide.costs[new], fused(numbers[WEIGHT], product, influence))


@inlined
def tilted(guide, slot):
    """The slot's key with its cost."""
    return fused(guide.numbers[SCALE], guide.dear[slot], guide.keys[slot])


# -- slots and labels ----------------------------------------------------------------------------------------------


@inlined
def put_waves(guide, slot):
    """Write the waves of the draw that is weighed into its slot."""
    if guide is not None:
        tile, lane = slot // LANES, slot % LANES
        for m in range(guide.here.shape[0]):
            guide.waves[tile, m, lane] = guide.here[m]
        guide.dear[slot], guide.going[slot] = -np.inf, NONE


@inlined
def add_waves(guide, slot, sign):
    """A draw of this slot comes or goes."""
    if guide is not None:
        tile, lane = slot // LANES, slot % LANES
        for m in range(guide.kept.shape[0]):
            guide.kept[m] += sign * np.float64(guide.waves[tile, m, lane])


@inlined
def move_slot(guide, slot, last):
    """Fill the slot with the last one."""
    if guide is not None:
        to_tile, to_lane, tile, lane = slot // LANES, slot % LANES, last // LANES, last % LANES
        for m in range(guide.here.shape[0]):
            guide.waves[to_tile, m, to_lane] = guide.waves[tile, m, lane]
        guide.dear[slot], guide.keys[slot], guide.going[slot] = guide.dear[last], guide.keys[last], guide.going[last]


@inlined
def mark(guide, slot, label, new):
    """A new copy of the slot's state: does it go before the others?"""
    if guide is not None:
        guide.cost[label], guide.pinned[label] = guide.costs[new], guide.pins[new]
        consider(guide, slot, label)


@inlined
def consider(guide, slot, label):
    """Whether this copy goes before those considered so far: the dearest goes first, of equals the oldest."""
    if not guide.pinned[label] and (guide.going[slot] == NONE or guide.cost[label] > guide.dear[slot]):
        guide.going[slot], guide.dear[slot] = label, guide.cost[label]


@inlined
def reconsider(store, guide, slot):
    """Which copy of the slot's state goes first."""
    if guide is not None:
        guide.going[slot], guide.dear[slot] = NONE, -np.inf
        label = store.oldest[slot]
        while label != NONE:
            consider(guide, slot, label)
            label = store.following[label]


@jit
def reconsider_all(store, guide) -> None:
    """The same for every slot."""
    for slot in range(store.counts[SLOTS]):
        reconsider(store, guide, slot)


@jit
def fill_waves(store, guide) -> None:
    """Waves of all that is kept; ``guide.given`` has the draws, slot by slot."""
    for slot in range(store.counts[SLOTS]):
        make_waves(guide.turns, guide.given, slot, guide.here)
        put_waves(guide, slot)
        for m in range(guide.here.shape[0]):
            guide.kept[m] += store.copies[slot] * guide.here[m]

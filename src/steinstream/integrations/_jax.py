"""What NumPyro and BlackJAX share: chains that run in compiled chunks, and positions that are trees of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.integrations.generic import as_variable
from steinstream.result import Variable
from steinstream.thinner import Thinner
from steinstream.validation import Block, consecutive_ids

Array = NDArray[np.float64]

#: (state, number of the step) -> (next state, what the step leaves: a row of each of some arrays).
Transition = Callable[[Any, Any], tuple[Any, tuple[Any, ...]]]


class Chunks:
    """Runs a chain at most ``chunk`` steps at a time.

    One compiled loop serves every chain, warm-up or not, whole chunk or not, for a sampler takes seconds to compile.
    """

    def __init__(self, step: Transition, chunk: int) -> None:
        if chunk < 1:
            raise InputError(f"chunk must be at least 1 draw, got {chunk!r}.")
        import jax

        def run(state: Any, first: Any, count: Any) -> Any:
            def one(i: Any, carried: Any) -> Any:
                state, rows = carried
                state, new = step(state, first + i)
                return state, tuple(all_rows.at[i].set(row) for all_rows, row in zip(rows, new, strict=True))

            left = jax.eval_shape(step, state, first)[1]
            empty = tuple(jax.numpy.zeros((chunk, *each.shape), each.dtype) for each in left)
            return jax.lax.fori_loop(0, count, one, (state, empty))

        self._run, self._chunk = jax.jit(run), chunk

    def run(self, state: Any, skip: int, total: int) -> Iterator[tuple[Array, ...]]:
        """Run ``skip`` steps and then ``total``, and yield what each of these leaves, chunk by chunk.

        The next chunk is on its way while the caller thins the one before, so two are in memory.
        """
        for first in range(0, skip, self._chunk):
            state, _ = self._run(state, first, min(self._chunk, skip - first))
        pending: tuple[int, Any] | None = None
        for first in range(0, total, self._chunk):
            count = min(self._chunk, total - first)
            state, rows = self._run(state, skip + first, count)
            if pending is not None:
                yield _on_host(*pending)
            pending = count, rows
        if pending is not None:
            yield _on_host(*pending)


def _on_host(count: int, rows: tuple[Any, ...]) -> tuple[Array, ...]:
    return tuple(np.asarray(each[:count], dtype=np.float64) for each in rows)


def side_by_side(draws: Array, scores: Array, chain: int | None, thinner: Thinner) -> Block:
    """A chunk of one chain (n, d); or, if that is None, of chains that run all at once (n, chains, d), draw by draw.

    Draws are numbered on from those that the thinner has of their chain.
    """
    if chain is not None:
        return Block(draws, scores, consecutive_ids(chain, thinner.next_index(chain), len(draws)))
    chains, dim = draws.shape[1:]
    numbers = np.arange(len(draws))[:, None] + [thinner.next_index(each) for each in range(chains)]
    ids = np.column_stack([np.tile(np.arange(chains), len(draws)), numbers.ravel()])
    return Block(draws.reshape(-1, dim), scores.reshape(-1, dim), ids)


def flat(tree: Any) -> Any:
    """All numbers of a tree, in its order."""
    from jax.flatten_util import ravel_pytree

    return ravel_pytree(tree)[0]


def unflatten(like: Any, points: Array) -> Any:
    """Trees like this one, stacked, out of rows that :func:`flat` made."""
    import jax
    from jax.flatten_util import ravel_pytree

    row, back = ravel_pytree(like)
    return jax.vmap(back)(jax.numpy.asarray(points, dtype=row.dtype))


def entry_names(tree: Any) -> tuple[str, ...]:
    """A name for each number of a tree: ``mu``, ``w[0]``, ``w[1]``; x0, x1, ... for a mere array."""
    names = []
    for name, leaf in named_leaves(tree):
        places = np.ndindex(np.shape(leaf))
        names += [f"{name}[{','.join(map(str, place))}]" if place else name for place in places]
    return tuple(names)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The arrays of a tree with their names, in its order."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator=".") or "x", leaf) for path, leaf in leaves]


def as_variables(tree: Any, names: Callable[[str, NDArray[Any]], Variable] = as_variable) -> dict[str, Variable]:
    """The stacked arrays of a tree as variables."""
    return {name: names(name, np.asarray(leaf)) for name, leaf in named_leaves(tree)}

"""Shared code for NumPyro and BlackJAX: chains that run in compiled chunks, and positions that are pytrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from steinstream._typing import AnyArray, Array
from steinstream.errors import InputError
from steinstream.integrations.generic import as_variable
from steinstream.result import Variable
from steinstream.thinner import Thinner
from steinstream.validation import Block

#: Function of the state and the number of the step that returns the next state and a row of each output array.
Transition = Callable[[Any, Any], tuple[Any, tuple[Any, ...]]]


class Chunks:
    """Runs a chain at most ``chunk`` steps at a time.

    One compiled loop serves every chain, the warm-up, and chunks that are not full, because compiling a sampler takes
    seconds.
    """

    def __init__(self, transition: Transition, chunk: int) -> None:
        if chunk < 1:
            raise InputError(f"chunk must be at least 1, got {chunk!r}.")
        import jax

        def run(state: Any, first: Any, count: Any) -> Any:
            def one(i: Any, carried: Any) -> Any:
                state, rows = carried
                state, new = transition(state, first + i)
                return state, tuple(all_rows.at[i].set(row) for all_rows, row in zip(rows, new, strict=True))

            outputs = jax.eval_shape(transition, state, first)[1]
            empty = tuple(jax.numpy.zeros((chunk, *each.shape), each.dtype) for each in outputs)
            return jax.lax.fori_loop(0, count, one, (state, empty))

        self._run, self._chunk = jax.jit(run), chunk

    def run(self, state: Any, skip: int, total: int) -> Iterator[tuple[Array, ...]]:
        """Run ``skip`` steps, then ``total`` steps, and yield the outputs of the latter chunk by chunk."""
        # The next chunk is computed while the caller processes the current one, so two chunks are in memory.
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


def as_block(draws: Array, scores: Array, thinner: Thinner) -> Block:
    """Convert a chunk (n, chains, d) to a block that continues the stream, with one draw of each chain in turn."""
    count, chains = draws.shape[:2]
    indices = np.arange(count)[:, None] + [thinner.next_index(each) for each in range(chains)]
    ids = np.column_stack([np.tile(np.arange(chains), count), indices.ravel()])
    return Block(draws.reshape(count * chains, draws.shape[2]), scores.reshape(count * chains, scores.shape[2]), ids)


def nothing() -> Any:
    """Return an empty vector, the output of a transition for a quantity that the sampler does not have."""
    import jax

    return jax.numpy.zeros(0)


def flatten(tree: Any) -> Any:
    """Return all numbers of a pytree as a vector."""
    from jax.flatten_util import ravel_pytree

    return ravel_pytree(tree)[0]


def unflatten(like: Any, draws: Array) -> Any:
    """Return the inverse of `flatten` for each row, as one stacked pytree."""
    import jax
    from jax.flatten_util import ravel_pytree

    row, back = ravel_pytree(like)
    return jax.vmap(back)(jax.numpy.asarray(draws, dtype=row.dtype))


def entry_names(tree: Any) -> tuple[str, ...]:
    """Return a name for each number of a pytree: ``mu``, ``w[0]``, ``w[1]``; ``x[0]``, ... for an array."""
    names = []
    for name, leaf in _named_leaves(tree):
        places = np.ndindex(np.shape(leaf))
        names += [f"{name}[{','.join(map(str, place))}]" if place else name for place in places]
    return tuple(names)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the arrays of a pytree with their names, in its order."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator=".") or "x", leaf) for path, leaf in leaves]


def as_variables(tree: Any, make: Callable[[str, AnyArray], Variable] = as_variable) -> dict[str, Variable]:
    """Return the stacked arrays of a pytree as variables."""
    return {name: make(name, np.asarray(leaf)) for name, leaf in _named_leaves(tree)}

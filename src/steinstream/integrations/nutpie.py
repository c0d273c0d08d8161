"""nutpie, also as the sampler of PyMC: thin its DataTree, or the Zarr store it is still writing.

    small = ss.integrations.nutpie.thin(tree, size=200)

nutpie samples in threads of its own and hands out no single draws: a running sampler can be inspected, which copies the
whole trace, or write a Zarr store, whose chunks appear on disk one by one, complete. :func:`follow` reads each chunk
once as it comes, so that memory is what is kept; the store on disk is nutpie's, and holds the whole chain.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, need
from steinstream.integrations.xarray import kept, source_of, thin
from steinstream.io.arviz import GRADIENT, UNCONSTRAINED, chain_of_datatree
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.validation import Block, consecutive_ids

__all__ = ["follow", "kept", "thin"]

_STORE = "nutpie.sample(..., store_gradient=True, store_unconstrained=True, zarr_store=...)"

_ASK = 0.5  # seconds: a sampler that is asked whether it is done cannot be stopped by another thread at that moment


def follow(
    source: Any, thinner: Thinner | None = None, *, patience: float | None = None, pause: float = 0.1, **settings: Any
) -> Kept:
    """Thin while nutpie runs: ``source`` is what ``nutpie.sample(..., blocking=False)`` gave, or a Zarr store's folder.

    Returns when the sampler has finished or all draws came, or nothing came for ``patience`` seconds. Chunks of
    different chains are taken as they come. ``settings`` are those of :class:`~steinstream.Thinner`; what a ``thinner``
    of your own has kept is not lost should you stop this with Ctrl-C, and with the same store it goes on.
    """
    store = _Growing(_folder(source), need("zarr", "zarr"), thinner)
    last = asked = time.monotonic()
    while True:
        over = False
        if time.monotonic() - max(last, asked) > _ASK:
            over, asked = _finished(source), time.monotonic()
        for block in store.news(over):
            thinner = thinner or live_thinner(block.draws.shape[1], **settings)
            thinner.extend(block.draws, block.scores, ids=block.ids)
            last = time.monotonic()
        if over or store.complete or (patience is not None and time.monotonic() - last > patience):
            break
        time.sleep(pause)
    if thinner is None or thinner.seen == thinner.skipped:
        raise InputError(f"{store.path}: no draw came after tuning.", "See whether the sampler runs, or wait longer.")
    return _with_variables(thinner.kept, store)


def _with_variables(result: Kept, store: _Growing) -> Kept:
    tree = need("xarray", "zarr").open_datatree(store.path, engine="zarr", consolidated=False)
    try:
        chain = chain_of_datatree(tree, path=store.path)
        source = {**source_of(tree, False), "draws": store.came.tolist()}
        return replace(
            result,
            names=chain.names,
            variables=chain.variables(result.ids),
            settings={**result.settings, "source": {"tool": "nutpie", **source}},
        )
    finally:
        tree.close()


class _Growing:
    """A Zarr store of nutpie that grows: arrays have their final shape from the start, and chunks come in order."""

    def __init__(self, path: Path, zarr: Any, thinner: Thinner | None) -> None:
        self.path, self._zarr, self._thinner = path, zarr, thinner
        if thinner is not None:
            _require_own(thinner, path)
        self._arrays: list[Any] = []
        self.came = np.zeros(0, dtype=np.int64)

    @property
    def complete(self) -> bool:
        """Whether all draws came."""
        return bool(self._arrays) and bool((self.came == self._arrays[0].shape[1]).all())

    def news(self, over: bool) -> Iterator[Block]:
        """Blocks of draws that were not there before; when all is ``over``, also those of a chunk that is not full."""
        if not self._arrays and not self._open():
            return
        draws, scores = self._arrays[:2]
        for chain in range(len(self.came)):
            start = int(self.came[chain])
            stop = self._written(chain, start)
            if stop == start:
                continue
            x, s = draws[chain, start:stop], scores[chain, start:stop]
            there = ~np.isnan(x).all(axis=1)
            if not over and not there.all():  # a chunk that was written before it was full: it will come again
                continue
            count = int(there.sum())
            if count and np.isnan(s[:count]).all():
                raise _no_scores(self.path, GRADIENT)
            self.came[chain] += count
            yield Block(x[:count], s[:count], consecutive_ids(chain, start, count))

    def _open(self) -> bool:
        """Open the arrays, once nutpie has made them all."""
        if not (self.path / "posterior" / "zarr.json").exists() or not (self.path / "sample_stats").exists():
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zarr warns of folders that are still empty
                root = self._zarr.open_group(self.path, mode="r")
                arrays = [root[UNCONSTRAINED], root[GRADIENT]]
                length = arrays[0].shape[:2]
                others = [array for _, array in sorted(root["posterior"].arrays()) if array.shape[:2] == length]
        except (KeyError, FileNotFoundError, ValueError):  # still being made
            return False
        stored = root.attrs.asdict().get("sampler_settings", {})
        for what, where in (("store_gradient", GRADIENT), ("store_unconstrained", UNCONSTRAINED)):
            if stored.get(what) is False:
                raise _no_scores(self.path, where)
        came = [0 if self._thinner is None else self._thinner.next_index(chain) for chain in range(length[0])]
        self._arrays, self.came = [*arrays, *others], np.array(came, dtype=np.int64)
        return True

    def _written(self, chain: int, start: int) -> int:
        """How far the chunks of all arrays reach without a gap."""
        return min(self._reach(array, chain, start) for array in self._arrays)

    def _reach(self, array: Any, chain: int, start: int) -> int:
        length, total = array.chunks[1], array.shape[1]
        chunk, rest = start // length, (0,) * (array.ndim - 2)
        folder = self.path / array.path
        while (
            chunk * length < total
            and (folder / array.metadata.encode_chunk_key((chain // array.chunks[0], chunk, *rest))).exists()
        ):
            chunk += 1
        return max(start, int(min(chunk * length, total)))


def _require_own(thinner: Thinner, path: Path) -> None:
    """Ids lead into one store: a thinner that has draws goes on with theirs, and with no other."""
    here = str(path.absolute())
    if thinner.seen and thinner.note.get("store") != here:
        raise InputError(
            f"The thinner has draws of another source than {path}.",
            "Follow each store with a thinner of its own, and put together what they keep: ss.merge.",
        )
    thinner.note["store"] = here


def _folder(source: Any) -> Path:
    if isinstance(source, str | PathLike):
        return Path(source)
    store: Any = getattr(source, "_zarr_store", None)
    if type(store).__name__ != "LocalStore":
        where = "memory" if store is None else type(store).__name__
        raise InputError(
            f"This sampler writes to {where}, where nobody can follow it.",
            f"Let it write to disk, with nutpie.zarr_store.LocalStore(FOLDER): {_STORE}. "
            "Or wait for it, and thin its tree.",
        )
    arguments, _ = store.__getnewargs_ex__()
    return Path(arguments[0])


def _finished(source: Any) -> bool:
    """Whether a sampler is done; of a folder nobody knows."""
    if isinstance(source, str | PathLike):
        return False
    try:
        return bool(source.is_finished)
    except TimeoutError:  # nutpie 0.16 says so of a sampler that runs
        return False
    except RuntimeError as problem:  # another thread has it in its hands, to stop it say
        if "borrowed" in str(problem):
            return False
        raise


def _no_scores(path: Path, where: str) -> InputError:
    return InputError(f"{path}: {where} is not stored, all of it would be NaN.", f"Sample again with {_STORE}.")

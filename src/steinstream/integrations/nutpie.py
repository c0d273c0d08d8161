"""nutpie, also as the sampler of PyMC: thin its DataTree, or the Zarr store that it is writing.

nutpie samples in its own threads and has no callback per draw. A running sampler can write a Zarr store, whose chunks
appear on disk one by one. `thin` reads each chunk once, so the memory is that of the kept draws; the store holds the
whole chain.
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

from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, log_missing_scores, need, warn_if_sequential, with_source
from steinstream.integrations.xarray import thin as thin_tree
from steinstream.integrations.xarray import with_divergences
from steinstream.io._arviz_layout import GRADIENT, UNCONSTRAINED
from steinstream.io.datatree import chain_of_datatree
from steinstream.io.interleaving import turns
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block, concatenate, consecutive_ids

__all__ = ["thin"]

_STORE = "nutpie.sample(..., store_gradient=True, store_unconstrained=True, zarr_store=...)"

_COUNTS = ("tool", "draws", "divergences")

_ROWS = 8192  # draws in a block
_POLL = 0.5  # seconds between two queries of the sampler, during which no other thread can stop it


def thin(
    source: Any,
    size: int | None = None,
    *,
    timeout: float | None = None,
    pause: float = 0.1,
    thinner: Thinner | None = None,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Thin a finished run of nutpie, or one that is still writing its Zarr store.

    Parameters
    ----------
    source : xarray.DataTree, arviz.InferenceData, nutpie sampler or path
        Result of ``nutpie.sample``, also through ``pm.sample``; the running sampler that
        ``nutpie.sample(..., blocking=False)`` returns; or the folder of a Zarr store, which another process may be
        writing.
    size : int, optional
        Number of draws to keep: see `ThinConfig`.
    timeout : float, optional
        For a store: seconds without new draws after which it is considered complete. Default: wait for all draws.
    pause : float, default 0.1
        For a store: seconds between two readings.
    thinner : Thinner, optional
        For a store: thinner to continue with, from an earlier reading of the same store. After an interruption, its
        ``kept`` holds the kept draws so far. Default: a new one.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`. For a tree, also further arguments of
        `steinstream.integrations.xarray.thin`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the variables of the posterior, ``settings["source"]`` R-hat, ESS and the
        number of divergences of the chains.

    Raises
    ------
    InputError
        If a store has no unconstrained draws, the sampler does not write to disk, or no draws were written.

    Notes
    -----
    Without ``store_gradient=True`` the draws are thinned without scores.

    The thinner receives the draws that all chains have, one of each chain in turn. When the sampler is done, or after
    ``timeout``, it receives those that only some chains have, too.
    """
    if hasattr(source, "children") or callable(getattr(source, "groups", None)):
        if thinner is not None:
            raise InputError("A thinner was given with a finished tree.", "Pass settings instead.")
        return thin_tree(source, size, config=config, **settings)
    if size is not None:
        settings["size"] = size
    if thinner is None:
        ThinConfig.of(config, **settings)  # raise an error for a wrong setting before waiting for draws
    store = _ZarrStore(_folder(source), need("zarr", "zarr"), thinner)
    running: Thinner | None = None
    convergence: RunningConvergence | None = None
    latest = asked = time.monotonic()
    while True:
        finished = False
        if time.monotonic() - max(latest, asked) > _POLL:
            finished, asked = _is_finished(source), time.monotonic()
        expired = timeout is not None and time.monotonic() - latest > timeout
        before = store.available.sum()
        for block in store.new_blocks(finished or expired):
            running = running or live_thinner(block.draws.shape[1], thinner=thinner, config=config, settings=settings)
            convergence = convergence or RunningConvergence(running.dim)
            running.extend(block.draws, block.scores if block.has_scores else None, ids=block.ids)
            convergence.add(block.ids, block.draws)
        if finished or expired or store.complete:
            break
        if store.available.sum() > before:
            latest = time.monotonic()
        time.sleep(pause)
    running = running or thinner
    if running is None or running.seen == running.skipped:
        raise InputError(
            f"{store.path}: no draws were written after tuning.", "Check that the sampler is running, or wait longer."
        )
    return _with_variables(running.kept, store, convergence or RunningConvergence(running.dim))


def _with_variables(result: Kept, store: _ZarrStore, convergence: RunningConvergence) -> Kept:
    tree = need("xarray", "zarr").open_datatree(store.path, engine="zarr", consolidated=False)
    try:
        # Names and variables only: the scores are not read again.
        chain = chain_of_datatree(tree, path=store.path, draws_name=UNCONSTRAINED, scores_name=UNCONSTRAINED)
        result = replace(result, names=chain.names, variables=chain.variables(result.ids))
        result = with_divergences(with_source(result, "nutpie", convergence), tree)
        if store.continued:  # R-hat and ESS are those of a part of the chains
            source = {name: value for name, value in result.settings["source"].items() if name in _COUNTS}
            result = replace(
                result, settings={**result.settings, "source": {**source, "draws": store.received.tolist()}}
            )
        return result
    finally:
        tree.close()


class _ZarrStore:
    """A Zarr store that nutpie is writing: arrays have their final shape from the start, chunks appear in order."""

    def __init__(self, path: Path, zarr: Any, thinner: Thinner | None) -> None:
        self.path, self._zarr, self._thinner = path, zarr, thinner
        if thinner is not None:
            _require_same_store(thinner, path)
        self._arrays: list[Any] = []
        self.has_scores, self.continued = True, False
        self.received = np.zeros(0, dtype=np.int64)
        """Number of draws read of each chain."""
        self.available = self.received
        """Number of draws written of each chain."""

    @property
    def complete(self) -> bool:
        """Whether all draws were read."""
        return bool(self._arrays) and bool((self.received == self._arrays[0].shape[1]).all())

    def new_blocks(self, final: bool) -> Iterator[Block]:
        """Yield the draws that were not read yet: those that all chains have, or all that are written if ``final``."""
        if not self._arrays and not self._open():
            return
        self.available = np.array([self._available(chain, final) for chain in range(len(self.received))])
        first = self.received
        stop = self.available if final else np.maximum(first, self.available.min())
        for rows, order in turns((stop - first).tolist(), _ROWS):
            starts, self.received = self.received, first + np.array([part.stop for part in rows])
            ends = zip(starts.tolist(), self.received.tolist(), strict=True)
            parts = [self._read(chain, *pair) for chain, pair in enumerate(ends)]
            yield concatenate(parts).take(order)

    def _read(self, chain: int, start: int, stop: int) -> Block:
        draws = self._arrays[0][chain, start:stop]
        scores = self._arrays[1][chain, start:stop] if self.has_scores else np.zeros((len(draws), 0))
        return Block(draws, scores, consecutive_ids(chain, start, len(draws)))

    def _available(self, chain: int, final: bool) -> int:
        """Return the number of draws of a chain that are written; if ``final``, also those of a chunk that is not full.

        A chunk that was written before it was full is replaced later.
        """
        draws, start = self._arrays[0], int(self.available[chain])
        stop, length = min(self._written(array, chain, start) for array in self._arrays), draws.chunks[1]
        while start < stop:
            end = min(start - start % length + max(_ROWS // length, 1) * length, stop)
            unwritten = np.isnan(draws[chain, start:end]).all(axis=1)
            if unwritten.any():
                filled = start + int(unwritten.argmax())
                return filled if final else max(start, filled - filled % length)
            start = end
        return stop

    def _open(self) -> bool:
        """Open the arrays if nutpie has created all of them."""
        if not (self.path / "posterior" / "zarr.json").exists() or not (self.path / "sample_stats").exists():
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # zarr warns about folders that are still empty
                root = self._zarr.open_group(self.path, mode="r")
                stored = root.attrs.asdict().get("sampler_settings", {})
                has_scores = stored.get("store_gradient") is not False  # otherwise its chunks are never written
                arrays = [root[UNCONSTRAINED], *([root[GRADIENT]] if has_scores else [])]
                length = arrays[0].shape[:2]
                others = [array for _, array in sorted(root["posterior"].arrays()) if array.shape[:2] == length]
        except (KeyError, FileNotFoundError, ValueError):  # not complete yet
            return False
        if stored.get("store_unconstrained") is False:
            raise InputError(
                f"{self.path}: {UNCONSTRAINED} is not stored, all values would be NaN.",
                f"Sample again with {_STORE}; or wait for the sampler, and thin its tree without scores.",
            )
        self.has_scores = has_scores
        if not has_scores:
            log_missing_scores(f"To add scores, use {_STORE}.")
        first = [0 if self._thinner is None else self._thinner.next_index(chain) for chain in range(length[0])]
        self._arrays, self.received = [*arrays, *others], np.array(first, dtype=np.int64)
        self.available, self.continued = self.received, any(first)
        if self._thinner is not None:
            remedy = "Use a new thinner, which receives all chains in turns."
            warn_if_sequential(self._thinner, range(length[0]), remedy, stacklevel=6)
        return True

    def _written(self, array: Any, chain: int, start: int) -> int:
        """Return the number of draws of a chain up to which all chunks of an array exist."""
        length, total = array.chunks[1], array.shape[1]
        chunk, rest = start // length, (0,) * (array.ndim - 2)
        folder = self.path / array.path
        while (
            chunk * length < total
            and (folder / array.metadata.encode_chunk_key((chain // array.chunks[0], chunk, *rest))).exists()
        ):
            chunk += 1
        return max(start, int(min(chunk * length, total)))


def _require_same_store(thinner: Thinner, path: Path) -> None:
    """Raise an `InputError` if the draws of a thinner are from another source; record the path otherwise."""
    store = str(path.absolute())
    if thinner.seen and thinner.note.get("store") != store:
        raise InputError(
            f"The thinner has draws from another source than {path}.",
            "Use a separate thinner for each store, and merge the kept sets with ss.merge.",
        )
    thinner.note["store"] = store


def _folder(source: Any) -> Path:
    if isinstance(source, str | PathLike):
        return Path(source)
    store: Any = getattr(source, "_zarr_store", None)
    if type(store).__name__ != "LocalStore":
        where = "memory" if store is None else type(store).__name__
        raise InputError(
            f"The sampler writes to {where}, which cannot be read while it runs.",
            f"Write to disk, with nutpie.zarr_store.LocalStore(FOLDER): {_STORE}. "
            "Or wait for the sampler, and thin its tree.",
        )
    arguments, _ = store.__getnewargs_ex__()
    return Path(arguments[0])


def _is_finished(source: Any) -> bool:
    """Return whether a sampler is done; for a folder this is not known."""
    if isinstance(source, str | PathLike):
        return False
    try:
        return bool(source.is_finished)
    except TimeoutError:  # raised by nutpie 0.16 for a running sampler
        return False
    except RuntimeError as error:  # another thread is using it, for example to stop it
        if "borrowed" in str(error):
            return False
        raise

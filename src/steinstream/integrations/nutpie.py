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

from steinstream.errors import InputError
from steinstream.integrations._common import live_thinner, log_missing_scores, need, with_source
from steinstream.integrations._running_convergence import RunningConvergence
from steinstream.integrations.xarray import thin as thin_tree
from steinstream.integrations.xarray import with_divergences
from steinstream.io._arviz_layout import GRADIENT, UNCONSTRAINED
from steinstream.io.datatree import chain_of_datatree
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block, consecutive_ids

__all__ = ["thin"]

_STORE = "nutpie.sample(..., store_gradient=True, store_unconstrained=True, zarr_store=...)"

_COUNTS = ("tool", "draws", "divergences")

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

    Chunks of different chains are processed in the order in which they are written, which changes from run to run.

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
        for block in store.new_blocks(finished):
            running = running or live_thinner(block.draws.shape[1], thinner=thinner, config=config, settings=settings)
            convergence = convergence or RunningConvergence(running.dim)
            running.extend(block.draws, block.scores if block.has_scores else None, ids=block.ids)
            convergence.add(block.ids, block.draws)
            latest = time.monotonic()
        if finished or store.complete or (timeout is not None and time.monotonic() - latest > timeout):
            break
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

    @property
    def complete(self) -> bool:
        """Whether all draws were read."""
        return bool(self._arrays) and bool((self.received == self._arrays[0].shape[1]).all())

    def new_blocks(self, finished: bool) -> Iterator[Block]:
        """Yield the draws that were not read yet; if ``finished``, also those of chunks that are not full."""
        if not self._arrays and not self._open():
            return
        draws, scores = self._arrays[0], self._arrays[1] if self.has_scores else None
        for chain in range(len(self.received)):
            start = int(self.received[chain])
            stop = min(self._written(array, chain, start) for array in self._arrays)
            if stop == start:
                continue
            x = draws[chain, start:stop]
            s = np.zeros((len(x), 0)) if scores is None else scores[chain, start:stop]
            written = ~np.isnan(x).all(axis=1)
            if not finished and not written.all():  # the chunk was written before it was full, and will be replaced
                continue
            count = int(written.sum())
            self.received[chain] += count
            yield Block(x[:count], s[:count], consecutive_ids(chain, start, count))

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
        self.continued = any(first)
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
    """Return the folder of the Zarr store."""
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

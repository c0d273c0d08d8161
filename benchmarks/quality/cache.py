"""Chains and references on disk, so that they are sampled once.

The folder is ``.cache`` next to this file, or the one in the environment variable STEINSTREAM_QUALITY_CACHE. Increase
`VERSION` if a target or a sampler changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.quality.sampling import Array, Chain, Problem
from benchmarks.quality.targets import TARGETS

VERSION = 1
CACHE_VARIABLE = "STEINSTREAM_QUALITY_CACHE"
DATA_VARIABLE = "STEINSTREAM_QUALITY_DATA"
_HERE = Path(__file__).parent


def cache_folder() -> Path:
    """Folder of the cache."""
    return Path(os.environ.get(CACHE_VARIABLE) or _HERE / ".cache") / f"v{VERSION}"


def data_folder() -> Path | None:
    """Folder with posteriordb/: the environment variable STEINSTREAM_QUALITY_DATA, else ../shared/data if it exists."""
    given = os.environ.get(DATA_VARIABLE)
    folder = Path(given) if given else _HERE.parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


@lru_cache(maxsize=1)
def problem(name: str) -> Problem:
    """Build a target."""
    return TARGETS[name].build(data_folder())


def stored(name: str, key: str, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Read arrays of a target from the cache, or make and write them."""
    path = cache_folder() / name / f"{key}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez(file, **make())
        part.replace(path)
    with np.load(path) as file:
        return {field: file[field] for field in file.files}


def work_chain(name: str, seed: int) -> Chain:
    """Work chains of a target, with scores."""

    def make() -> dict[str, Array]:
        chain = problem(name).chain(seed)
        return {field: value for field, value in chain._asdict().items() if value is not None}

    return Chain(**stored(name, f"chain-{seed}", make))


def reference_draws(name: str, seed: int) -> Array:
    """Reference (n, d) of a target."""
    key = f"reference-{seed}" if TARGETS[name].reference_per_seed else "reference"
    return stored(name, key, lambda: {"draws": problem(name).reference(seed)})["draws"]

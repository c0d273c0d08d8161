"""What CmdStan writes: its settings as comments, its columns, and how its files are named.

A run has two files. The *output* file has the draws as the model declares them (``sigma``, ``w.1``, ``w.2``, ``w.3``).
The *diagnostic* file has them unconstrained, as the sampler moves them, with momenta ``p_NAME`` and gradients
``g_NAME``. Two traps: ``g`` is that of the potential energy, **minus** the score; and columns bear the same names in
both, so that ``sigma`` in the diagnostic file is log sigma. Here the unconstrained ones are called ``sigma_unc`` and
``w_unc.1``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import WITHOUT, Floats
from steinstream.io.errors import listing
from steinstream.result import Variable

#: Begins the last comment of a finished run.
FOOTER = b"Elapsed Time"

_SETTING = re.compile(r"#(\s+)(\w+) =\s*(.*?)\s*(?:\(Default\))?\s*$")
_SECTION = re.compile(r"# (\w+)\s*$")
_INDEXED = re.compile(r"(.*?)((?:\.\d+)+)")
_DIAGNOSTIC = re.compile(r"[-_.]?diagnostics?", re.IGNORECASE)


class Config(NamedTuple):
    """What the comments in front of the header say of a run."""

    version: str | None
    model: str | None
    samples: int | None
    """Draws there will be, once it is done."""
    warmup: int
    """Draws of the warm-up that stand before them."""
    output: str | None
    """Name of the output file."""


def config(comments: Iterable[bytes]) -> Config:
    """Read the comments.

    >>> config([b"# model = a", b"#  num_samples = 9", b"#  thin = 2", b"# output", b"#   file = o/a.csv (Default)"])
    Config(version=None, model='a', samples=5, warmup=0, output='a.csv')
    """
    found: dict[str, str] = {}
    section = ""
    for comment in comments:
        line = comment.decode("utf-8", "replace").rstrip()
        if head := _SECTION.match(line):
            section = head[1]
        elif setting := _SETTING.match(line):
            section = section if len(setting[1]) > 1 else ""
            found[f"{section}.{setting[2]}"] = found[setting[2]] = setting[3]
    thin = max(_whole(found.get("thin")) or 1, 1)
    samples, warmup = (_whole(found.get(key)) for key in ("num_samples", "num_warmup"))
    saved = found.get("save_warmup", "").lower() in ("1", "true")
    return Config(
        f"{found['stan_version_major']}.{found.get('stan_version_minor')}" if "stan_version_major" in found else None,
        found.get("model"),
        None if samples is None else math.ceil(samples / thin),
        math.ceil((warmup or 0) / thin) if saved else 0,
        Path(found["output.file"]).name if found.get("output.file") else None,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


class Fields(NamedTuple):
    """Where a diagnostic file has its draws and gradients."""

    names: tuple[str, ...]
    draws: list[int]
    gradients: list[int]
    density: int | None
    """Column ``lp__``, by which a draw can be known again in the output file."""


def is_header(line: bytes) -> bool:
    """Whether this is the line of names of a CmdStan file, for files that have lost their comments."""
    return line.startswith(b"lp__,") and b"__," in line[5:]


def fields(header: Sequence[str], path: Path) -> Fields:
    """Find the draws and gradients of a diagnostic file: after the sampler's columns NAME..., p_NAME..., g_NAME..."""
    first = _first(header)
    names = list(header[first : first + (len(header) - first) // 3])
    if not names or header[first:] != [*names, *(f"p_{name}" for name in names), *(f"g_{name}" for name in names)]:
        raise _no_gradients(path, header)
    start, dim = first, len(names)
    return Fields(
        tuple(map(unconstrained, names)),
        list(range(start, start + dim)),
        list(range(start + 2 * dim, start + 3 * dim)),
        header.index("lp__") if "lp__" in header else None,
    )


def _first(header: Sequence[str]) -> int:
    """Where the sampler's own columns end; Stan keeps names that end in two underscores for itself."""
    return next((at for at, title in enumerate(header) if not title.endswith("__")), len(header))


def unconstrained(name: str) -> str:
    """What to call an unconstrained parameter.

    >>> unconstrained("sigma"), unconstrained("w.1")
    ('sigma_unc', 'w_unc.1')
    """
    base, places = _split(name)
    return f"{base}_unc" + "".join(f".{place}" for place in places)


def _no_gradients(path: Path, header: Sequence[str]) -> InputError:
    beside = diagnostic_of(path)
    remedy = (
        f"Its diagnostic file seems to be {beside}: give that."
        if beside
        else "Sample with output diagnostic_file=FILE (cmdstanpy: save_latent_dynamics=True) and give that file. "
        + WITHOUT
    )
    return InputError(
        f"{path} is an output file of CmdStan, without gradients: it has {listing(header[_first(header) :])}.", remedy
    )


def _beside(path: Path, names: Iterable[str]) -> Path | None:
    """The first of these files that there is in the same folder, gzipped or not."""
    for name in names:
        plain = name.removesuffix(".gz")
        for each in (name, plain, f"{plain}.gz"):
            other = path.with_name(each)
            if each != path.name and other.is_file():
                return other
    return None


def output_of(path: Path, name: str | None) -> Path | None:
    """The output file beside a diagnostic file: named as that one without "diagnostic", or in its comments."""
    names = [_DIAGNOSTIC.sub("", path.name, count=1)] if _DIAGNOSTIC.search(path.name) else []
    return _beside(path, [*names, *([name] if name else [])])


def diagnostic_of(path: Path) -> Path | None:
    """The diagnostic file beside an output file."""
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    names = [f"{stem}{mark}diagnostic.csv" for mark in "-_"]
    if numbered := re.fullmatch(r"(.+)([-_]\d+)", stem):
        names = [f"{numbered[1]}{mark}diagnostic{numbered[2]}.csv" for mark in "-_"] + names
    return _beside(path, names)


def shaped(titles: Sequence[str], table: Floats) -> dict[str, Variable]:
    """Columns of an output file as the model's variables; the sampler's own are left out.

    >>> found = shaped(["lp__", "sigma", "a.1.1", "a.2.1", "a.1.2", "a.2.2"], np.array([[0.0, 9, 1, 2, 3, 4]]))
    >>> found["sigma"].values.tolist(), found["a"].values.tolist(), found["a"].dims
    ([9.0], [[[1.0, 3.0], [2.0, 4.0]]], ('a_dim_0', 'a_dim_1'))
    """
    first = _first(titles)
    return arranged(titles[first:], table[:, first:])


def arranged(titles: Sequence[str], table: Floats) -> dict[str, Variable]:
    """Columns as variables: ``a.1``, ``a.2`` are the places of an array."""
    groups: dict[str, dict[tuple[int, ...], int]] = {}
    for column, title in enumerate(titles):
        name, places = _split(title)
        groups.setdefault(name, {})[places] = column
    found = {}
    for name, members in groups.items():
        shape = tuple(map(max, zip(*members, strict=False)))
        if sorted(members) == [tuple(at + 1 for at in place) for place in np.ndindex(*shape)]:
            columns = [members[place] for place in sorted(members)]
            dims = tuple(f"{name}_dim_{axis}" for axis in range(len(shape)))
            found[name] = Variable(table[:, columns].reshape(len(table), *shape), dims)
        else:  # not an array with all its places: each column for itself
            found |= {titles[column]: Variable(table[:, column].copy()) for column in members.values()}
    return found


def _split(title: str) -> tuple[str, tuple[int, ...]]:
    """Name and places: column ``a.2.1`` is the place (2, 1) of a."""
    indexed = _INDEXED.fullmatch(title)
    if not indexed:
        return title, ()
    return indexed[1], tuple(int(place) for place in indexed[2].split(".")[1:])

"""Strength of the anchor: ``python experiments/anchor/run.py --data FOLDER``.

Measures, for several strengths gamma, the error of the proportions of the modes of mixtures and the increase of KSD.
For real chains, which have no known modes, it measures the increase of KSD and the errors of mean and standard
deviation. The kernel is IMQ; the preconditioner is estimated from the draws (auto), adapted to the stream (streaming)
or identity.

FOLDER contains posteriordb/*.npz and goodwin/goodwin_rw_stride100.npz; without it only the mixtures are run. Writes
results.csv to the folder of this file, one line per stream and setting with means over the seeds and twice their
standard errors, and prints the tables of the README. With --only TEXT only the targets whose names contain TEXT are
measured, with --show none. About ten minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array, Integers

HERE = Path(__file__).parent
GAMMAS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
DEFAULT = 0.3
SEEDS = 10
LENGTH = 20_000
SIZES: tuple[dict[str, Any], ...] = ({"size": 100}, {"growth": "sqrt"})
PRECONDITIONERS = ("auto", "streaming", "identity")
MAX_DIM = 5  # above it, sqrt growth with the identity keeps nearly all draws and takes long

Line = dict[str, Any]


class ModeStream(NamedTuple):
    """Draws, scores, and the most probable mode of each draw, or None if the modes are unknown."""

    draws: Array
    scores: Array
    mode: Integers | None


Sample = Callable[[int], ModeStream]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description="Strength of the anchor.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/ and goodwin/")
    parser.add_argument("--only", default="", help="measure only targets whose names contain this text")
    parser.add_argument("--show", action="store_true", help="only print the tables from results.csv")
    given = parser.parse_args()
    if not given.show:
        for name, sample in targets(given.data):
            if given.only in name:
                write(name, list(measure(name, sample)))
    print(tables(read()))


# -- streams -------------------------------------------------------------------------------------------------------


def targets(data: Path | None) -> Iterator[tuple[str, Sample]]:
    """Yield the name of each target and a function that samples its stream."""
    for distance in (4.0, 6.0, 8.0):
        yield f"0.2/0.8 at {distance:g}, d = 2", mixture(2, distance, (0.2, 0.8))
    yield "0.05/0.95 at 6, d = 2", mixture(2, 6.0, (0.05, 0.95))
    yield "0.5/0.5 at 6, d = 2", mixture(2, 6.0, (0.5, 0.5))
    yield "0.2/0.8 at 6, d = 5", mixture(5, 6.0, (0.2, 0.8))
    yield "0.3/0.7 at 6, d = 10", mixture(10, 6.0, (0.3, 0.7))
    yield "five modes, d = 2", mixture(2, 8.0, (0.1, 0.15, 0.2, 0.25, 0.3))
    yield "0.2/0.8 at 6, d = 2, slow", mixture(2, 6.0, (0.2, 0.8), stay=100)
    if data is None:
        return
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        yield "Goodwin (4)", parts(file["theta"].reshape(20, 1000, -1), file["score"].reshape(20, 1000, -1))
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            name = f"{path.stem.partition('-')[2]} ({file['draws'].shape[2]})"
            yield name, parts(file["draws"], file["scores"])


def mixture(dim: int, distance: float, weights: tuple[float, ...], stay: int = 1) -> Sample:
    """Return a mixture of standard normals: two at a distance, or several on a circle with this radius.

    The stream stays in a mode for ``stay`` draws on average.
    """
    share = np.array(weights)
    means = np.zeros((len(share), dim))
    if len(share) == 2:
        means[1, 0] = distance
    else:
        angles = 2 * np.pi * np.arange(len(share)) / len(share)
        means[:, 0], means[:, 1] = distance * np.cos(angles), distance * np.sin(angles)

    def sample(seed: int) -> ModeStream:
        rng = np.random.default_rng(seed)
        mode = rng.choice(len(share), size=LENGTH, p=share)
        moves = np.maximum.accumulate(np.where(rng.random(LENGTH) < 1 / stay, np.arange(LENGTH), 0))
        draws = means[mode[moves]] + rng.normal(size=(LENGTH, dim))
        toward = means - draws[:, None]
        logs = np.log(share) - 0.5 * np.sum(toward**2, axis=-1)
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        return ModeStream(draws, np.einsum("nm,nmd->nd", posterior, toward), np.argmax(logs, axis=1))

    return sample


def parts(draws: Array, scores: Array) -> Sample:
    """Return streams of a random quarter of the chains, or of the parts of one chain."""

    def sample(seed: int) -> ModeStream:
        some = np.random.default_rng(seed).permutation(len(draws))[: max(5, len(draws) // 4)]
        return ModeStream(np.concatenate(draws[some]), np.concatenate(scores[some]), None)

    return sample


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(name: str, sample: Sample) -> Iterator[Line]:
    """Yield one line per gamma, size and preconditioner."""
    streams = [sample(seed) for seed in range(SEEDS)]
    for preconditioner in PRECONDITIONERS:
        for how in SIZES:
            if preconditioner == "identity" and "growth" in how and streams[0].draws.shape[1] > MAX_DIM:
                continue
            found: dict[float, list[tuple[float, ...]]] = {gamma: [] for gamma in GAMMAS}
            for stream in streams:
                plain = 0.0
                for gamma in GAMMAS:
                    kept = thin(stream, preconditioner, gamma, how)
                    plain = plain or kept.ksd
                    found[gamma].append((kept.ksd / plain, *errors(stream, kept), float(len(kept))))
            for gamma in GAMMAS:
                yield line(name, preconditioner, how, gamma, np.array(found[gamma]))
        print(f"{name}, {preconditioner}", flush=True)


def thin(stream: ModeStream, kind: str, gamma: float, how: dict[str, Any]) -> ss.Kept:
    """Thin a stream with an anchor."""
    preconditioner = ss.Streaming() if kind == "streaming" else ss.Preconditioner.estimate(kind, stream.draws)
    settings = {"preconditioner": preconditioner, "anchor": gamma, "validate_scores": False, **how}
    thinner = ss.Thinner(stream.draws.shape[1], **settings)
    thinner.extend(stream.draws, stream.scores)
    return thinner.kept


def errors(stream: ModeStream, kept: ss.Kept) -> tuple[float, ...]:
    """Compare the kept draws with the stream.

    Returns
    -------
    tuple of float
        Proportion of the smallest mode in the stream and in the kept set, largest error of a proportion, and root mean
        square errors of the means and of the relative standard deviations.

    """
    smallest = small = share = float("nan")
    if stream.mode is not None:
        count = stream.mode.max() + 1
        its, mine = (np.bincount(modes, minlength=count) for modes in (stream.mode, stream.mode[kept.ids[:, 1]]))
        its, mine = its / its.sum(), mine / mine.sum()
        smallest, small, share = float(its.min()), float(mine[its.argmin()]), float(np.abs(mine - its).max())
    width = stream.draws.std(axis=0)
    shift = (kept.draws.mean(axis=0) - stream.draws.mean(axis=0)) / width
    spread = kept.draws.std(axis=0) / width - 1.0
    return smallest, small, share, float(np.sqrt(np.mean(shift**2))), float(np.sqrt(np.mean(spread**2)))


def line(name: str, preconditioner: str, how: dict[str, Any], gamma: float, found: Array) -> Line:
    """Return the means over the seeds and twice their standard errors."""
    mean, error = found.mean(axis=0), 2.0 * found.std(axis=0, ddof=1) / np.sqrt(len(found))
    keep = "size 100" if "size" in how else "sqrt"
    row: Line = {"target": name, "preconditioner": preconditioner, "keep": keep, "gamma": gamma}
    labels = ("ksd ratio", "small share of stream", "small share", "share error", "mean error", "sd error", "kept")
    for place, label in enumerate(labels):
        row[label], row[f"{label} +-"] = f"{mean[place]:.4g}", f"{error[place]:.2g}"
    row["largest share error"] = f"{found[:, 3].max():.4g}"
    return row


def write(name: str, lines: list[Line]) -> None:
    """Write the lines of a target to results.csv and replace earlier ones."""
    lines = [row for row in read() if row["target"] != name] + lines
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def read() -> list[Line]:
    """Read results.csv."""
    path = HERE / "results.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# -- tables --------------------------------------------------------------------------------------------------------


def tables(lines: list[Line]) -> str:
    """Return the tables: proportions without and with the anchor, then errors and ratios of KSD for each gamma."""
    modes = [row for row in lines if row["share error"] != "nan"]
    fitted = [row for row in lines if row["preconditioner"] == "auto"]
    return "\n\n".join(
        [
            shares([row for row in modes if row["target"].startswith("0.2/0.8 at") and row["target"].endswith("= 2")]),
            sweep(modes, lambda rows: f"{worst(rows, 'share error'):.3f} ({worst(rows, 'largest share error'):.3f})"),
            sweep(fitted, lambda rows: " / ".join(f"{float(row['ksd ratio']):.2f}" for row in rows)),
            sweep(
                [row for row in fitted if row["share error"] == "nan"],
                lambda rows: " / ".join(
                    f"{float(row['mean error']):.3f}, {float(row['sd error']):.3f}" for row in rows
                ),
            ),
        ]
    )


def worst(rows: list[Line], label: str) -> float:
    """Return the largest value in a column."""
    return max(float(row[label]) for row in rows)


def shares(lines: list[Line]) -> str:
    """Return the proportion of the small mode without and with the anchor."""
    found: dict[tuple[str, ...], dict[float, Line]] = {}
    for row in lines:
        key = row["target"], row["preconditioner"], row["keep"]
        found.setdefault(key, {})[float(row["gamma"])] = row
    rows = [["target", "preconditioner", "keep", "stream", "plain", "anchor", "largest error", "KSD"]]
    for key, at in found.items():
        one, other = at[0.0], at[DEFAULT]
        cells = [one["small share of stream"], with_error(one, "small share"), with_error(other, "small share")]
        rows.append([*key, *cells, other["largest share error"], f"x {with_error(other, 'ksd ratio', 2)}"])
    return table(rows)


def with_error(row: Line, label: str, digits: int = 3) -> str:
    """Format a mean with twice its standard error."""
    return f"{float(row[label]):.{digits}f} +- {float(row[f'{label} +-']):.{digits}f}"


def sweep(lines: list[Line], cell: Callable[[list[Line]], str]) -> str:
    """Return a table with a row per target and a column per gamma; a cell shows all preconditioners and sizes."""
    found: dict[str, dict[float, list[Line]]] = {}
    for row in lines:
        found.setdefault(row["target"], {}).setdefault(float(row["gamma"]), []).append(row)
    rows = [["target", *(f"{gamma:g}" for gamma in GAMMAS)]]
    rows += [[name, *(cell(at[gamma]) for gamma in GAMMAS)] for name, at in found.items()]
    return table(rows)


def table(rows: list[list[str]]) -> str:
    """Return a table in Markdown; the first row is the header."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


if __name__ == "__main__":
    main()

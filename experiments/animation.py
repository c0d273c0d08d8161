"""Thinning at work in two dimensions: figure 1 of Hawkins, Koppel and Zhang (2022), moving.

Every draw is seen as it comes, in yellow; in the next frame it is green, for kept, or red, for dropped, and what is red
fades. Each kind has a shape of its own, so that nothing hangs on colour. The first draws have a frame each, later ones
share frames, in proportion to how many came before. Needs the ``plot`` extra (matplotlib, which brings Pillow).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steinstream.errors import InputError
from steinstream.targets import Array

if TYPE_CHECKING:
    from steinstream.targets import Target
    from steinstream.targets.mixture import Mixture
    from steinstream.thinner import Thinner

KEPT, NEW, DROPPED = "#009E73", "#F5C518", "#D55E00"  # apart for every kind of colour vision, as are the shapes
_INK, _LAND = "#333333", ("#EEF2F6", "#E0E7EE", "#D0DAE4", "#BFCCD9")
_LOOKS: dict[str, dict[str, Any]] = {
    "new": {"marker": "D", "ms": 7.5, "color": NEW, "mec": _INK, "mew": 0.9},
    "kept": {"marker": "o", "ms": 7.5, "color": KEPT, "mec": "white", "mew": 0.7},
    "dropped": {"marker": "x", "ms": 9, "color": DROPPED, "mew": 2.2},
}
_FORMATS = {".gif": "GIF", ".webp": "WEBP"}
_ALONE = 48  # draws that have a frame each
_FADING = 4  # frames in which a dropped draw is seen
_FRAME, _LAST = 100, 3000  # milliseconds
_PALETTE = 64  # colours: fewer make a smaller file
_MASSES = (0.98, 0.9, 0.7, 0.4)  # of the target within each contour


class Frame(NamedTuple):
    """What one picture shows: points (n, 2) of each kind, and where the thinner stands."""

    seen: int
    kept: Array
    """Kept now, and seen before."""
    new: Array
    """Come since the frame before."""
    dropped: Array
    """Seen in the frame before, and no longer kept."""
    size: int
    ksd: float


def animate(
    path: str | PathLike[str], target: Target, draws: Array, scores: Array, *, thinner: Thinner | None = None,
    width: int = 720,
) -> list[Frame]:  # fmt: skip
    """Run the draws (n, 2) through a thinner and write what it did as an animated gif or webp.

    ``target`` gives the contours. ``thinner`` is a new one, by default that of the paper. Returns what the frames show.
    """
    from steinstream.report.plots import pyplot

    file = Path(path)
    if file.suffix.lower() not in _FORMATS:
        raise InputError(f"cannot write an animation as {file}.", f"Let it end in {' or '.join(_FORMATS)}.")
    if np.ndim(draws) != 2 or np.shape(draws)[1] != 2 or not len(draws):
        raise InputError(f"The draws have shape {np.shape(draws)}.", "An animation shows two dimensions: (n, 2).")
    plt = pyplot()
    shown = list(frames(draws, scores, thinner))
    _write(file, list(_pictures(plt, shown, target, draws, width)))
    return shown


def example(draws: int, seed: int = 0) -> tuple[Mixture, Array, Array]:
    """A target shaped like a crescent, and a chain (MALA) from a start far out: target, draws, scores."""
    from steinstream.samplers import MALA
    from steinstream.targets.mixture import Mixture

    target = Mixture(
        [[-1.9, 0.5], [0.0, -0.6], [1.9, 0.5]],
        [[[0.5, -0.42], [-0.42, 0.6]], [[0.75, 0.0], [0.0, 0.22]], [[0.5, 0.42], [0.42, 0.6]]],
        [3, 4, 3],
    )
    sampler = MALA(target, step=0.4)
    _, block = sampler.sample(sampler.init(np.array([6.8, -2.9]), seed), draws)
    return target, block.draws, block.scores


def frames(draws: Array, scores: Array, thinner: Thinner | None = None) -> Iterator[Frame]:
    """What the thinner does with the draws, from one frame to the next."""
    from steinstream.preconditioning import Preconditioner
    from steinstream.thinner import Thinner

    thinner = thinner or Thinner(2, history=None, preconditioner=Preconditioner.identity())
    seen, before, kept = 0, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)  # before: seen, and not in red
    while seen < len(draws):
        end = min(len(draws), seen + 1 + seen // _ALONE)
        thinner.extend(draws[seen:end], scores[seen:end])
        kept, new = thinner.kept.ids[:, 1], np.arange(seen, end)
        now = np.union1d(kept, new)
        gone = _without(draws[before], draws[now])
        yield Frame(end, draws[kept[kept < seen]], draws[new], gone, len(thinner), thinner.ksd)
        seen, before = end, now
    for gone in (_without(draws[before], draws[kept]), *[draws[:0]] * _FADING):  # until only what is kept is left
        yield Frame(seen, draws[kept], draws[:0], gone, len(thinner), thinner.ksd)


def _without(points: Array, others: Array) -> Array:
    """The points at which none of the others lies: a chain that stays where it is repeats a draw."""
    places = {place.tobytes() for place in others}
    return points[[place.tobytes() not in places for place in points]]


def _pictures(plt: Any, shown: Sequence[Frame], target: Target, draws: Array, width: int) -> Iterator[Any]:
    """Each frame as an image."""
    from PIL import Image

    figure = plt.figure(figsize=(7.2, 5.0), dpi=width / 7.2)
    axes = figure.add_axes((0.0, 0.1, 1.0, 0.9))
    _landscape(axes, target, draws)
    kinds = _kinds(axes)
    words = _caption(figure)
    canvas, fading = figure.canvas, list[Array]()
    try:
        canvas.draw()
        empty = canvas.copy_from_bbox(figure.bbox)
        for frame in shown:
            fading = [frame.dropped, *fading[: _FADING - 1]]
            kinds["kept"].set_data(*frame.kept.T)
            kinds["new"].set_data(*frame.new.T)
            for age, points in enumerate(fading):
                kinds[f"dropped {age}"].set_data(*points.T)
            words.set_text(_numbers(frame))
            canvas.restore_region(empty)
            for artist in (*kinds.values(), words):
                figure.draw_artist(artist)
            yield Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    finally:
        plt.close(figure)


def _numbers(frame: Frame) -> str:
    """A line whose words stay where they are: figure spaces are as wide as digits."""
    parts = f"draws {frame.seen:>4}", f"kept {frame.size:>3}", f"KSD {frame.ksd:>5.2f}"
    return "    ".join(part.replace("  ", " \u2007").replace("\u2007 ", "\u2007\u2007") for part in parts)


def _landscape(axes: Any, target: Target, draws: Array) -> None:
    """The target's contours, and around them all that will be seen."""
    low, high = draws.min(axis=0), draws.max(axis=0)
    x, y = np.linspace(low - 0.4 * (high - low), high + 0.4 * (high - low), 180).T
    density = np.exp([[target.log_density(np.array([a, b])) for a in x] for b in y])
    ranked = np.sort(density, axis=None)[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    levels = [float(ranked[np.searchsorted(mass, wanted)]) for wanted in _MASSES]
    axes.contourf(x, y, density, levels=[*levels, np.inf], colors=_LAND)
    axes.contour(x, y, density, levels=levels, colors="white", linewidths=0.8)
    rows, columns = np.nonzero(density > levels[0])
    low = np.minimum(low, [x[columns.min()], y[rows.min()]])
    high = np.maximum(high, [x[columns.max()], y[rows.max()]])
    margin = 0.05 * (high - low)
    axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    axes.axis("off")


def _kinds(axes: Any) -> dict[str, Any]:
    """A set of points for each kind; those that fade grow smaller, too."""
    points: dict[str, Any] = {}
    for age in reversed(range(_FADING)):
        left = 1 - age / _FADING
        look = _LOOKS["dropped"] | {"ms": 4 + 5 * left, "mew": 0.6 + 1.6 * left, "alpha": 0.15 + 0.85 * left}
        (points[f"dropped {age}"],) = axes.plot([], [], ls="", **look)
    for name in ("kept", "new"):
        (points[name],) = axes.plot([], [], ls="", **_LOOKS[name])
    return points


def _caption(figure: Any) -> Any:
    """What the shapes mean on the left, and the numbers, to be filled in, on the right."""
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[Line2D([], [], ls="", label=name, **look) for name, look in _LOOKS.items()], loc="center left",
        bbox_to_anchor=(0.02, 0.055), ncols=3, frameon=False, fontsize=12, labelcolor=_INK, handletextpad=0.1,
        columnspacing=1.2,
    )  # fmt: skip
    return figure.text(0.97, 0.055, "", ha="right", va="center", fontsize=12, color=_INK)


def _write(path: Path, pictures: list[Any]) -> None:
    """All pictures in few colours, the same for all, so that only what moves takes room."""
    from PIL import Image

    from steinstream.io import replacing

    palette = _palette(pictures[:: max(1, len(pictures) // 6)])
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times = [_FRAME] * (len(flat) - 1) + [_LAST]
    kind = _FORMATS[path.suffix.lower()]
    with replacing(path) as file:
        flat[0].save(
            file, format=kind, save_all=True, append_images=flat[1:], duration=times, loop=0,
            **({"optimize": True, "disposal": 1} if kind == "GIF" else {"lossless": True, "method": 4}),
        )  # fmt: skip


def _palette(pictures: Sequence[Any]) -> Any:
    """The colours of these pictures as an image: the named ones as they are, of the others a selection."""
    from PIL import Image, ImageColor

    width, height = pictures[0].size
    sheet = Image.new("RGB", (width, height * len(pictures)))
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (0, number * height))
    named = [value for name in ("white", KEPT, NEW, DROPPED, _INK, *_LAND) for value in ImageColor.getrgb(name)]
    others = sheet.quantize(_PALETTE - len(named) // 3, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(named + others[: 3 * _PALETTE - len(named)])
    return palette

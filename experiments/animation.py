"""Animation of thinning in two dimensions (figure 1 of Hawkins, Koppel and Zhang, 2022).

``python -m experiments.animation -o thinning.gif``. Each draw is first shown as new (yellow); in the next frame it is
kept (green) or dropped (red), and dropped draws fade. Each state also has its own marker, so that colours are not
essential. The first draws have one frame each; later frames contain more draws, in proportion to the number of previous
draws. The module requires matplotlib and Pillow, which ``steinstream[plot]`` installs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from steinstream._typing import Array
from steinstream.cli import main
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream import Thinner
    from steinstream.targets import Mixture, Target

KEPT, NEW, DROPPED = "#009E73", "#F5C518", "#D55E00"  # distinguishable with any kind of colour vision
_TEXT, _CONTOURS = "#333333", ("#EEF2F6", "#E0E7EE", "#D0DAE4", "#BFCCD9")
_MARKERS: dict[str, dict[str, Any]] = {
    "new": {"marker": "D", "ms": 7.5, "color": NEW, "mec": _TEXT, "mew": 0.9},
    "kept": {"marker": "o", "ms": 7.5, "color": KEPT, "mec": "white", "mew": 0.7},
    "dropped": {"marker": "x", "ms": 9, "color": DROPPED, "mew": 2.2},
}
_FORMATS = {".gif": "GIF", ".webp": "WEBP"}
_SINGLE = 48  # draws that have a frame each
_FADING = 4  # frames in which a dropped draw is visible
_FRAME, _LAST = 100, 3000  # milliseconds
_PALETTE = 64  # colours: fewer colours give a smaller file
_MASSES = (0.98, 0.9, 0.7, 0.4)  # of the target within each contour


class Frame(NamedTuple):
    """Content of one frame: points (n, 2) of each state, and the state of the thinner."""

    seen: int
    kept: Array
    """Kept draws, except new ones."""
    new: Array
    """Draws since the previous frame."""
    dropped: Array
    """Draws that the previous frame shows and that are not kept."""
    size: int
    ksd: float


def animate(
    path: str | PathLike[str],
    target: Target,
    draws: Array,
    scores: Array,
    *,
    thinner: Thinner | None = None,
    width: int = 720,
) -> list[Frame]:
    """Thin a chain in two dimensions and write an animation.

    Parameters
    ----------
    path : str or path-like
        File to write, with the suffix ``.gif`` or ``.webp``.
    target : Target
        Target whose contours are drawn.
    draws : array of shape (n, 2)
        Draws.
    scores : array of shape (n, 2)
        Scores of the draws.
    thinner : Thinner, optional
        A new thinner. Default: the settings of the paper.
    width : int, default 720
        Width of the animation in pixels.

    Returns
    -------
    list of Frame
        The content of the frames.

    Raises
    ------
    InputError
        If the suffix or the shape of the draws is not supported, or matplotlib is not installed.
    """
    from steinstream.report.plots import pyplot

    file = Path(path)
    if file.suffix.lower() not in _FORMATS:
        raise InputError(f"{file} has no suffix of an animation.", f"Choose a name with {' or '.join(_FORMATS)}.")
    if np.ndim(draws) != 2 or np.shape(draws)[1] != 2 or not len(draws):
        raise InputError(f"The draws have shape {np.shape(draws)}.", "Provide draws in two dimensions, shape (n, 2).")
    plt = pyplot()
    shown = list(frames(draws, scores, thinner))
    _write(file, list(_images(plt, shown, target, draws, width)))
    return shown


def example(draws: int, seed: int = 0) -> tuple[Mixture, Array, Array]:
    """Sample a crescent-shaped target with MALA from a start in the tails.

    Parameters
    ----------
    draws : int
        Length of the chain.
    seed : int, default 0
        Seed of the chain.

    Returns
    -------
    target : Mixture
        The target.
    draws, scores : arrays of shape (draws, 2)
        The chain.
    """
    from steinstream.samplers import MALA
    from steinstream.targets import Mixture

    target = Mixture(
        [[-1.9, 0.5], [0.0, -0.6], [1.9, 0.5]],
        [[[0.5, -0.42], [-0.42, 0.6]], [[0.75, 0.0], [0.0, 0.22]], [[0.5, 0.42], [0.42, 0.6]]],
        [3, 4, 3],
    )
    sampler = MALA(target, step=0.4)
    _, block = sampler.sample(sampler.init(np.array([6.8, -2.9]), seed), draws)
    return target, block.draws, block.scores


def frames(draws: Array, scores: Array, thinner: Thinner | None = None) -> Iterator[Frame]:
    """Thin the draws and yield the content of each frame."""
    from experiments.paper.settings import paper_thinner

    thinner = thinner or paper_thinner(2, history=None)
    seen, kept = 0, np.zeros(0, dtype=np.int64)
    previous = kept  # draws that the previous frame shows as kept or new
    while seen < len(draws):
        end = min(len(draws), seen + 1 + seen // _SINGLE)
        thinner.extend(draws[seen:end], scores[seen:end])
        kept, new = thinner.kept.ids[:, 1], np.arange(seen, end)
        current = np.union1d(kept, new)
        dropped = _without(draws[previous], draws[current])
        yield Frame(end, draws[kept[kept < seen]], draws[new], dropped, len(thinner), thinner.ksd)
        seen, previous = end, current
    for dropped in (_without(draws[previous], draws[kept]), *[draws[:0]] * _FADING):  # let dropped draws fade
        yield Frame(seen, draws[kept], draws[:0], dropped, len(thinner), thinner.ksd)


def _without(points: Array, others: Array) -> Array:
    """Return the points that are not among the others; a chain repeats a draw if it rejects a proposal."""
    positions = {position.tobytes() for position in others}
    return points[[position.tobytes() not in positions for position in points]]


def _images(plt: Any, shown: Sequence[Frame], target: Target, draws: Array, width: int) -> Iterator[Any]:
    """Draw each frame."""
    from PIL import Image

    figure = plt.figure(figsize=(7.2, 5.0), dpi=width / 7.2)
    axes = figure.add_axes((0.0, 0.1, 1.0, 0.9))
    _draw_contours(axes, target, draws)
    points = _create_points(axes)
    text = _create_caption(figure)
    canvas, fading = figure.canvas, list[Array]()
    try:
        canvas.draw()
        background = canvas.copy_from_bbox(figure.bbox)
        for frame in shown:
            fading = [frame.dropped, *fading[: _FADING - 1]]
            points["kept"].set_data(*frame.kept.T)
            points["new"].set_data(*frame.new.T)
            for age, positions in enumerate(fading):
                points[f"dropped {age}"].set_data(*positions.T)
            text.set_text(_caption(frame))
            canvas.restore_region(background)
            for artist in (*points.values(), text):
                figure.draw_artist(artist)
            yield Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    finally:
        plt.close(figure)


def _caption(frame: Frame) -> str:
    """Return the caption, padded with figure spaces (as wide as digits), so that its words do not move."""
    parts = f"draws {frame.seen:>4}", f"kept {frame.size:>3}", f"KSD {frame.ksd:>5.2f}"
    return "    ".join(part.replace("  ", " \u2007").replace("\u2007 ", "\u2007\u2007") for part in parts)


def _draw_contours(axes: Any, target: Target, draws: Array) -> None:
    """Draw the contours of the target and set limits that include all draws."""
    low, high = draws.min(axis=0), draws.max(axis=0)
    x, y = np.linspace(low - 0.4 * (high - low), high + 0.4 * (high - low), 180).T
    density = np.exp([[target.log_density(np.array([a, b])) for a in x] for b in y])
    ranked = np.sort(density, axis=None)[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    levels = [float(ranked[np.searchsorted(mass, wanted)]) for wanted in _MASSES]
    axes.contourf(x, y, density, levels=[*levels, np.inf], colors=_CONTOURS)
    axes.contour(x, y, density, levels=levels, colors="white", linewidths=0.8)
    rows, columns = np.nonzero(density > levels[0])
    low = np.minimum(low, [x[columns.min()], y[rows.min()]])
    high = np.maximum(high, [x[columns.max()], y[rows.max()]])
    margin = 0.05 * (high - low)
    axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    axes.axis("off")


def _create_points(axes: Any) -> dict[str, Any]:
    """Create the markers of each state; those of dropped draws become smaller with age."""
    points: dict[str, Any] = {}
    for age in reversed(range(_FADING)):
        rest = 1 - age / _FADING
        style = _MARKERS["dropped"] | {"ms": 4 + 5 * rest, "mew": 0.6 + 1.6 * rest, "alpha": 0.15 + 0.85 * rest}
        (points[f"dropped {age}"],) = axes.plot([], [], ls="", **style)
    for name in ("kept", "new"):
        (points[name],) = axes.plot([], [], ls="", **_MARKERS[name])
    return points


def _create_caption(figure: Any) -> Any:
    """Create the legend on the left and an empty text on the right."""
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[Line2D([], [], ls="", label=name, **style) for name, style in _MARKERS.items()],
        loc="center left",
        bbox_to_anchor=(0.02, 0.055),
        ncols=3,
        frameon=False,
        fontsize=12,
        labelcolor=_TEXT,
        handletextpad=0.1,
        columnspacing=1.2,
    )
    return figure.text(0.97, 0.055, "", ha="right", va="center", fontsize=12, color=_TEXT)


def _write(path: Path, images: list[Any]) -> None:
    """Write all images with one small palette, so that only changes are stored."""
    from PIL import Image

    from steinstream.io import replacing

    palette = _palette(images[:: max(1, len(images) // 6)])
    indexed = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [_FRAME] * (len(indexed) - 1) + [_LAST]
    kind = _FORMATS[path.suffix.lower()]
    options: dict[str, Any] = {"optimize": True, "disposal": 1} if kind == "GIF" else {"lossless": True, "method": 4}
    options |= {"save_all": True, "append_images": indexed[1:], "duration": durations, "loop": 0}
    with replacing(path) as file:
        indexed[0].save(file, format=kind, **options)


def _palette(images: Sequence[Any]) -> Any:
    """Return a palette image with the named colours and a selection of the other colours of some images."""
    from PIL import Image, ImageColor

    width, height = images[0].size
    sheet = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        sheet.paste(image, (0, number * height))
    named = [value for name in ("white", KEPT, NEW, DROPPED, _TEXT, *_CONTOURS) for value in ImageColor.getrgb(name)]
    others = sheet.quantize(_PALETTE - len(named) // 3, dither=Image.Dither.NONE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(named + others[: 3 * _PALETTE - len(named)])
    return palette


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("thinning.gif"),
    show_default=True,
    help="File to write: gif or webp.",
)
@click.option("--draws", type=click.IntRange(min=1), default=800, show_default=True, help="Length of the chain.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
def command(output: Path, draws: int, seed: int) -> None:
    """Draw the animation of the README: a MALA chain in two dimensions that is thinned while it runs.

    \b
    Example: python -m experiments.animation -o docs/thinning.gif
    """
    from steinstream.report.plots import pyplot

    pyplot()  # fail before the compilation if matplotlib is missing
    last = animate(output, *example(draws, seed))[-1]
    click.echo(f"kept {last.size} of {last.seen} draws  ·  wrote {output}")


if __name__ == "__main__":
    main(command, "python -m experiments.animation")

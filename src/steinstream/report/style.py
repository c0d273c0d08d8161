"""How pictures are drawn: matplotlib without a window and without the user's settings, and its vectors for a page.

A page is read in light and in dark, so a figure's colours become CSS variables there, with the colours here for a
reader that knows none. Text stays text, in the page's own font. The names of parameters come from files: they are
never taken for mathematics, and matplotlib escapes them in its vectors.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from steinstream._formatting import count, number
from steinstream.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What a colour is for, and its value in light. Those of data stay apart for every kind of colour vision.
INK, MUTED, RULE = "#24292f", "#6a737d", "#d8dee4"
KEPT, CHAIN, LINE, MARK = "#009e73", "#8b949e", "#0072b2", "#d55e00"
_ROLES = {INK: "ink", MUTED: "muted", RULE: "rule", KEPT: "kept", CHAIN: "chain", LINE: "line", MARK: "mark"}

_STYLE = {
    "font.family": "sans-serif", "font.size": 8.0, "axes.labelsize": 8.0, "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "legend.fontsize": 7.5, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.axisbelow": True,
    "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.edgecolor": CHAIN,
    "xtick.color": CHAIN, "ytick.color": CHAIN, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "xtick.major.width": 0.7, "ytick.major.width": 0.7, "xtick.major.size": 3.0, "ytick.major.size": 3.0,
    "xtick.minor.size": 0.0, "ytick.minor.size": 0.0, "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False, "axes.unicode_minus": True, "path.simplify": True, "svg.fonttype": "none",
    "svg.hashsalt": "steinstream", "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip

_LONGEST = 22  # letters of a name on a figure


def need_matplotlib() -> Any:
    """Matplotlib, or how to get it."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("Pictures need matplotlib.", 'pip install "steinstream[plot]"') from None
    return matplotlib


@contextmanager
def drawing() -> Iterator[None]:
    """Our style for a while, whatever the user has set."""
    matplotlib = need_matplotlib()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the page's font has it
        matplotlib.rcParams.update({k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")})
        matplotlib.rcParams.update(_STYLE)
        yield


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> tuple[Figure, Any]:
    """A figure of so many inches and its axes, as ``plt.subplots`` gives them, without pyplot's windows and memory."""
    need_matplotlib()
    from steinstream.report._show import Picture

    picture = Picture(figsize=(width, height), layout="constrained")
    return picture, picture.subplots(rows, columns, **how)


def name_axes(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Labels as they are: a name from a file may look like mathematics."""
    for text, words in ((axes.xaxis.label, x), (axes.yaxis.label, y), (axes.title, title)):
        text.set_text(words)
        text.set_parse_math(False)


def shown(name: str) -> str:
    r"""A name as it goes on a figure: on one line, and not too long.

    >>> shown("alpha"), shown("a" * 30), shown("a\nb")
    ('alpha', 'aaaaaaaaaaaaaaaaaaaaa…', 'a b')
    """
    plain = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in name)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def plain_ticks(axis: Any, whole: bool = False) -> None:
    """Numbers as people write them, on a logarithmic axis too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        subs = (1.0,) if high > 30 * low else (1.0, 2.0, 5.0) if high > 3 * low else None
        axis.set_major_locator(LogLocator(subs=subs, numticks=6) if subs else MaxNLocator(4))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(4, integer=whole, steps=[1, 2, 5, 10]))
    if whole or axis.get_scale() == "log":
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def tick(value: float) -> str:
    """``10 000``, ``1``, ``0.05``, ``1e-07``."""
    if abs(value) >= 1 and float(value).is_integer() and abs(value) < 1e7:
        return count(int(value))
    return number(value)


def as_svg(picture: Figure, says: str, resolution: int = 160) -> str:
    """The figure as an element for a page: it fills the width it is given, and ``says`` what there is to see.

    ``resolution`` is that of the parts that are not vectors, in dots an inch.
    """
    file = io.StringIO()
    for axes in picture.axes:
        for image in axes.images:
            image.set_interpolation("none")  # as it is: the reader's screen smooths it, and it stays small
    with drawing():
        picture.savefig(
            file, format="svg", dpi=resolution, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', text)
    about = f'{box.group() if box else ""} role="img" aria-label="{escape(says)}" stroke-linejoin="round"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {about}>' + _slim(text[text.index(">") + 1 :])


def _slim(text: str) -> str:
    """Without what a page has no use for: names of groups, digits beyond sight, a style on each of a thousand dots.

    Only tags are touched: what stands between them may be from a file, and what is in them is not.
    """
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))

    def tag(found: re.Match[str]) -> str:
        words = re.sub(r' id="([^"]*)"', lambda m: m.group() if m.group(1) in used else "", found.group())
        words = re.sub(r"image-rendering: ?[\w-]+;?| style=\"\"", "", words.replace("xlink:href", "href"))
        if "base64" not in words:
            words = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), words)
        for colour, role in _ROLES.items():
            words = words.replace(colour, f"var(--{role},{'currentColor' if colour == INK else colour})")
        return words

    text = re.sub(r">\s*\n\s*<", "><", re.sub(r"<[^>]+>", tag, text))
    return re.sub(r'<g clip-path="([^"]*)">((?:<use [^>]*/>)+)</g>', _together, text)


def _together(group: re.Match[str]) -> str:
    """Marks of one style say so once."""
    styles = set(re.findall(r' style="[^"]*"', group.group(2)))
    if len(styles) != 1:
        return group.group()
    (style,) = styles
    return f'<g clip-path="{group.group(1)}"{style}>{group.group(2).replace(style, "")}</g>'

"""Appearance of the figures, and their conversion to SVG.

Figures use matplotlib without a display and without the user's settings. Reports have a light and a dark mode, so
colours become CSS variables in the SVG, with the colours defined here as defaults. Text remains text, in the font of
the page. Parameter names come from files: they are never parsed as mathematics, and matplotlib escapes them in SVG.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from steinstream._formatting import count, number
from steinstream.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours in light mode, by role. Those of data can be distinguished with every kind of colour vision.
INK, MUTED, RULE = "#24292f", "#6a737d", "#d8dee4"
KEPT, CHAIN, LINE, MARK = "#009e73", "#8b949e", "#0072b2", "#d55e00"
_ROLES = {INK: "ink", MUTED: "muted", RULE: "rule", KEPT: "kept", CHAIN: "chain", LINE: "line", MARK: "mark"}

_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": CHAIN,
    "xtick.color": CHAIN,
    "ytick.color": CHAIN,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "steinstream",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

_MAX_LABEL = 22  # characters of a parameter name in a figure
_DPI = 160  # of rasterised parts of figures


def require_matplotlib() -> Any:
    """Return the matplotlib module; raise `InputError` if it is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("Figures require matplotlib.", 'pip install "steinstream[plot]"') from None
    return matplotlib


@contextmanager
def figure_style() -> Iterator[None]:
    """Context manager that replaces the user's matplotlib settings by those of this package."""
    matplotlib = require_matplotlib()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the font of the page has it
        matplotlib.rcParams.update({k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")})
        matplotlib.rcParams.update(_SETTINGS)
        yield


@cache
def _figure_class() -> type[Figure]:
    """Return a figure class that notebooks show as SVG, whether or not pyplot is used there."""
    require_matplotlib()
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_html_(self) -> str:
            width = round(96 * self.get_figwidth())
            return f'<div style="max-width:{width}px">{as_svg(self, "figure")}</div>'

    return NotebookFigure


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Create a figure, in inches, and its axes like ``plt.subplots``, without the windows and the memory of pyplot."""
    figure = _figure_class()(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def label_axes(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Set labels and title as plain text, because a parameter name may look like mathematics."""
    for label, words in ((axes.xaxis.label, x), (axes.yaxis.label, y), (axes.title, title)):
        label.set_text(words)
        label.set_parse_math(False)


def shorten_name(name: str) -> str:
    r"""Return a parameter name for a figure: on one line, and at most 22 characters.

    Returns
    -------
    str
        At most 22 characters.

    Examples
    --------
    >>> shorten_name("alpha"), shorten_name("a\nb"), shorten_name("concentration_of_protein[2,1]")
    ('alpha', 'a b', 'concentrati…otein[2,1]')
    """
    plain = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in name)
    half = _MAX_LABEL // 2  # names often differ at their end only: in an index
    return plain if len(plain) <= _MAX_LABEL else f"{plain[:half]}…{plain[half + 1 - _MAX_LABEL :]}"


def plain_ticks(axis: Any, whole: bool = False) -> None:
    """Use few ticks with plain numbers, also on a logarithmic axis; ``whole`` numbers only, if required."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        subs = (1.0,) if high > 30 * low else (1.0, 2.0, 5.0) if high > 3 * low else None
        axis.set_major_locator(LogLocator(subs=subs, numticks=6) if subs else MaxNLocator(4))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(4, integer=whole, steps=[1, 2, 5, 10]))
    if whole or axis.get_scale() == "log":
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick_label(value)))


def _tick_label(value: float) -> str:
    """Format ``10 000``, ``1``, ``0.05``, ``1e-07``."""
    if abs(value) >= 1 and float(value).is_integer() and abs(value) < 1e7:
        return count(int(value))
    return number(value)


def as_svg(figure: Figure, description: str) -> str:
    """Convert a figure to an SVG element that fills its container; the description is for screen readers."""
    file = io.StringIO()
    for axes in figure.axes:
        for image in axes.images:
            image.set_interpolation("none")  # the browser interpolates; the file stays small
    with figure_style():
        figure.savefig(file, format="svg", dpi=_DPI, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', text)
    attributes = f'{box.group() if box else ""} role="img" aria-label="{escape(description)}" stroke-linejoin="round"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>' + _compress(text[text.index(">") + 1 :])


def _compress(text: str) -> str:
    """Remove unused ids, excess digits and repeated styles, and replace colours by CSS variables.

    Only tags are changed: text between them may come from a file, while text inside them does not.
    """
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))

    def compress_tag(found: re.Match[str]) -> str:
        tag = re.sub(r' id="([^"]*)"', lambda m: m.group() if m.group(1) in used else "", found.group())
        tag = re.sub(r"image-rendering: ?[\w-]+;?| style=\"\"", "", tag.replace("xlink:href", "href"))
        if "base64" not in tag:
            tag = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m.group()):.2f}".rstrip("0").rstrip("."), tag)
        for colour, role in _ROLES.items():
            tag = tag.replace(colour, f"var(--{role},{'currentColor' if colour == INK else colour})")
        return tag

    text = re.sub(r">\s*\n\s*<", "><", re.sub(r"<[^>]+>", compress_tag, text))
    return re.sub(r'<g clip-path="([^"]*)">((?:<use [^>]*/>)+)</g>', _share_style, text)


def _share_style(group: re.Match[str]) -> str:
    """Move a style that all markers of a group have to the group."""
    styles = set(re.findall(r' style="[^"]*"', group.group(2)))
    if len(styles) != 1:
        return group.group()
    (style,) = styles
    return f'<g clip-path="{group.group(1)}"{style}>{group.group(2).replace(style, "")}</g>'

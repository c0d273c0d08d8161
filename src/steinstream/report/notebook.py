"""What a notebook shows of a kept set: its numbers, and with matplotlib how KSD fell."""

from __future__ import annotations

from steinstream._formatting import count, number
from steinstream.errors import InputError
from steinstream.report.html import Markup, element
from steinstream.result import Kept


def card(kept: Kept) -> str:
    """A few numbers and a small figure, as HTML."""
    rows = {
        "draws": _count(kept.settings.get("seen")), "kept": count(len(kept)), "dimensions": count(kept.draws.shape[1]),
        "KSD": number(kept.ksd), "normalised KSD": number(kept.normalised_ksd),
        "bound": None if kept.bound is None else number(kept.bound),
        "honest KSD": None if kept.ksd_debiased is None else number(kept.ksd_debiased),
        "effective size": None if kept.weights is None else f"{kept.effective_size:.1f}",
    }  # fmt: skip
    left, right = "text-align:left;font-weight:normal", "text-align:right;font-variant-numeric:tabular-nums"
    body = (
        element("tr", element("th", name, style=left), element("td", value, style=right))
        for name, value in rows.items()
        if value is not None
    )
    parts = [element("table", element("tbody", *body)), _trace(kept)]
    about = element("div", "Kept: kept.report() shows all of it", style="opacity:.7;font-size:.85em")
    box = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:center"
    return element("div", element("div", *parts, style=box), about)


def _count(seen: object) -> str | None:
    return count(seen) if isinstance(seen, int) else None


def _trace(kept: Kept) -> Markup:
    from steinstream.report import plots
    from steinstream.report.style import as_svg, drawing, figure

    if len(kept.history.step) < 2:
        return Markup("")
    try:
        with drawing():
            picture, axes = figure(3.2, 1.8)
            plots.ksd_trace(axes, kept)
    except InputError:  # no matplotlib: the numbers are enough
        return Markup("")
    return element("div", Markup(as_svg(picture, "KSD of what was kept, against draws")), style="width:310px")

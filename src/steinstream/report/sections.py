"""The sections of a report, one function each. A section that has nothing to say is empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from steinstream._formatting import count, number
from steinstream.diagnostics import Diagnosis
from steinstream.report import plots, provenance
from steinstream.report.compare import LEVELS, Beside
from steinstream.report.html import Markup, element, join, pairs, table
from steinstream.report.style import as_svg, drawing, figure
from steinstream.result import Kept

_PAIRED, _PICTURED, _LISTED = 5, 12, 1000  # parameters at most, in pairs, as marginals and in the table
_VECTORS = 20_000  # points of all pair plots together that are still drawn as vectors

_WIDE, _SMALL = (4.1, 2.6), (2.2, 1.95)  # inches

_KEPT = Markup("<span><i></i>kept</span>")
_CHAIN = Markup('<span><i class="chain"></i>chain</span>')
_END = Markup('<span><i class="end"></i>end of the burn-in</span>')


def panel(
    draw: Callable[[Any], None], says: str, size: tuple[float, float] = _WIDE, style: str | None = None
) -> Markup:
    """One figure of the page, of so many inches."""
    with drawing():
        picture, axes = figure(*size)
        draw(axes)
    return element("div", Markup(as_svg(picture, says)), style=style)


def numbers(kept: Kept, evenly: float | None) -> Markup:
    """What there is to know in one look. ``evenly`` is KSD of as many evenly spaced draws."""
    seen, told = kept.settings.get("seen"), kept.settings
    came = seen if isinstance(seen, int) else None
    rows: list[tuple[str, str, float | int | None, str]] = [
        ("seen", "draws", came, _skipped(told)),
        ("kept", "kept", len(kept), _share(kept, came)),
        (
            "ksd",
            "KSD",
            kept.ksd,
            "with its weights; lower is better" if kept.weights is not None else "lower is better",
        ),
        ("normalised", "normalised KSD", kept.normalised_ksd, "KSD \N{MULTIPLICATION SIGN} √kept: charges for size"),
        ("evenly", "evenly spaced", evenly, "KSD of as many draws at even steps, without burn-in"),
        ("bound", "bound", kept.bound, "on KSD, in the mean, were the draws independent"),
        ("honest", "honest KSD", kept.ksd_debiased, "by second scores that the selection has not seen"),
    ]
    if kept.weights is not None:
        rows.append(("worth", "effective size", kept.effective_size, "draws of equal weight"))
    return pairs(
        (
            (
                label,
                join([element("b", _figure(value), data_number=key, data_value=repr(value)), element("span", says)]),
            )
            for key, label, value, says in rows
            if value is not None
        ),
        class_="numbers",
    )


def _figure(value: float | int) -> str:
    words = count(value) if isinstance(value, int) else shown(value)
    return words.replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _skipped(told: dict[str, Any]) -> str:
    skipped = told.get("skipped")
    return f"{count(skipped)} of them not finite, left out" if isinstance(skipped, int) and skipped else "in the stream"


def _share(kept: Kept, came: int | None) -> str:
    states = len(kept.states().multiplicity)
    same = "" if states == len(kept) else f", {count(states)} different"
    return (f"{100.0 * len(kept) / came:.2g} % of the draws" if came else "draws") + same


def notes(warnings: list[str], diagnosis: Diagnosis | None) -> Markup:
    """What somebody should read first: warnings about the chain, and checks that fired; or that there are none."""
    items = [element("li", line) for line in warnings]
    for finding in diagnosis.fired if diagnosis is not None else ():
        items.append(element("li", _sentence(finding.says), element("span", _sentence(finding.advice))))
    if items:
        return element("ul", *items, class_="notes")
    if diagnosis is None:
        return Markup("")
    said = str(diagnosis) if diagnosis.ok else _sentence(diagnosis.note)
    return element("ul", element("li", said), class_="notes well" if diagnosis.ok else "notes")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def thinned(beside: Beside) -> Markup:
    """What was thinned and how."""
    kept, told = beside.kept, beside.kept.settings
    rows: list[tuple[object, object]] = [("method", _method(kept))]
    growth = str(told.get("growth", ""))
    if told.get("size") and "growth" in told:
        rows.append(("kept", f"exactly {told['size']} draws (hard cap)"))
    elif growth:
        floors = {"sqrt": "at least √(t log t) of t draws", "linear": "at least t / 2 of t draws", "none": "every draw"}
        rows.append(("growth", f"{growth}: {floors[growth]}" if growth in floors else growth))
    if "budget" in told and not told.get("size"):
        free = str(told["budget"]) in ("constant:0.0", "0.0", "0")
        rows.append(("budget", "0: old draws go only while KSD does not rise" if free else told["budget"]))
    rows += [("rule", told["rule"])] if "rule" in told else []
    rows += [("kernel", told.get("kernel", kept.kernel))] if kept.kernel or "kernel" in told else []
    rows += [("preconditioner", told["preconditioner"])] if "preconditioner" in told else []
    if told.get("candidates", 1) != 1:
        rows.append(("candidates", f"the best of {told['candidates']} consecutive draws"))
    rows += [("anchor", told["anchor"])] if told.get("anchor") else []
    rows += [("passes", told["passes"])] if told.get("passes", 1) != 1 else []
    rows += [("proxy", f"scores lent by {told['proxy']}")] if "proxy" in told else []
    rows.append(("dimensions", count(kept.draws.shape[1])))
    if beside.outline is not None:
        rows.append(("chain", beside.outline.title))
        survey = beside.outline.survey
        if survey is not None:
            rows += [("in it", survey.shape(beside.names)), ("scores", survey.sign()), ("repeats", survey.repeats()),
                     ("bad values", survey.bad())]  # fmt: skip
        rows.append(("burn-in", _burn_in(beside)))
    return _section("What was thinned, and how", pairs(rows, class_="facts"))


def _method(kept: Kept) -> str:
    if "merged" in kept.settings:
        return "sets thinned apart, then merged"
    return str(kept.settings.get("method", "online KSD thinning"))


def _burn_in(beside: Beside) -> str:
    late, chains = beside.settled_from, len(beside.evidence.chains)
    if not late:
        return f"none seen: {'the chain begins where it stays' if chains == 1 else 'all chains begin where they stay'}"
    where = "" if chains == 1 else f"in {len(late)} of {chains} chains, "
    inside = count(int(beside.evidence.burnt.sum()))
    kept = f"{'none' if inside == '0' else inside} of the kept draws are from it"
    return f"{where}up to about draw {count(max(late.values()))}; {kept}"


def course(kept: Kept) -> Markup:
    """KSD and size against draws."""
    if len(kept.history.step) < 2:
        return Markup("")
    panels = (
        panel(lambda axes: plots.ksd_trace(axes, kept), "KSD of what was kept, against draws"),
        panel(lambda axes: plots.size_trace(axes, kept), "Number kept, against draws"),
    )
    changed = kept.settings.get("preconditioner_changed")
    caption = "Both axes are logarithmic."
    if changed:
        caption += " Dotted lines: the coordinates were fitted anew, and KSD is another measure from there on."
    if kept.weights is not None:
        caption += " KSD is that of equal weights, as the run had it."
    return _section("While the draws came", _figure_of("two", panels, caption))


def along(beside: Beside) -> Markup:
    """Which draws were kept, along the chain."""
    panels = [panel(lambda axes: plots.places_along_chain(axes, beside), "The kept draws of each chain")]
    legend = [_KEPT]
    caption = "A mark for each kept draw."
    if beside.outline is not None:
        far = panel(lambda axes: plots.distance_along_chain(axes, beside), "Distance from the mean, along the chain")
        panels.insert(0, far)
        legend += [_CHAIN] + ([_END] if beside.settled_from else [])
        caption = (
            "Distance: how many standard deviations the farthest parameter is from its mean after the burn-in. "
            "Chains: a mark for each kept draw."
        )
    return _section(
        "Which draws were kept", element("div", *legend, class_="legend"), _figure_of("two", panels, caption)
    )


def joint(beside: Beside) -> Markup:
    """Kept points over the chain's density."""
    dim = beside.kept.draws.shape[1]
    if dim < 2:
        return Markup("")
    chosen = beside.most_different(_PAIRED)
    side = len(chosen) - 1
    sparse = len(beside.kept) * side * (side + 1) // 2 <= _VECTORS
    size = _WIDE if side == 1 else _SMALL
    panels = [
        panel(
            lambda axes, x=x, y=y: plots.pair(axes, beside, x, y, sparse),  # type: ignore[misc]
            f"{beside.names[y]} against {beside.names[x]}", size, f"--row:{row + 1};--column:{column + 1}",
        )
        for row, y in enumerate(chosen[1:])
        for column, x in enumerate(chosen[: row + 1])
    ]  # fmt: skip
    caption = "" if beside.outline is None else "The view is where 99 % of the settled chain lies, and some room. "
    if dim > len(chosen):
        why = "those that differ most from the chain" if beside.outline is not None else "the first ones"
        caption += f"{len(chosen)} of {count(dim)} parameters: {why}. "
    if beside.kept.weights is not None:
        caption += "The area of a point goes with its weight."
    legend = element("div", _KEPT, *([_CHAIN] if beside.outline is not None else []), class_="legend")
    return _section("Pairs of parameters", legend, _figure_of("corner", panels, caption, f"--side:{side}"))


def single(beside: Beside) -> Markup:
    """Marginals, and how far they are from the chain's."""
    chosen, dim = beside.most_different(_PICTURED), beside.kept.draws.shape[1]
    panels = [
        panel(lambda axes, j=j: plots.marginal(axes, beside, j), f"Density of {beside.names[j]}", (_SMALL[0], 1.5))  # type: ignore[misc]
        for j in chosen
    ]
    caption = "Both densities are smoothed alike. "
    if dim > len(chosen):
        why = "those that differ most from the chain" if beside.outline is not None else "the first ones"
        caption += f"{len(chosen)} of {count(dim)} parameters: {why}."
    legend = element("div", _KEPT, *([_CHAIN] if beside.outline is not None else []), class_="legend")
    shown = [] if beside.outline is None else [_differences(beside)]
    return _section("Parameters one by one", legend, _figure_of("many", panels, caption), *shown)


def _differences(beside: Beside) -> Markup:
    found, dim = beside.differences, beside.kept.draws.shape[1]
    listed = beside.most_different(_LISTED)
    columns = [found.shift, found.ratio - 1.0, *found.quantiles]
    worst = [int(np.argmax(np.abs(column))) for column in columns]

    def cell(j: int, at: int, words: str) -> Markup:
        return element("td", element("b", words) if dim > 1 and worst[at] == j else words)

    rows = [
        (
            beside.names[j], shown(found.chain_mean[j]), shown(found.kept_mean[j]), cell(j, 0, _signed(found.shift[j])),
            shown(found.chain_sd[j]), shown(found.kept_sd[j]), cell(j, 1, f"{found.ratio[j]:.2f}"),
            *(cell(j, 2 + at, _signed(found.quantiles[at, j])) for at in range(len(LEVELS))),
        )
        for j in listed
    ]  # fmt: skip
    head = ["parameter", "mean, chain", "kept", "shift", "sd, chain", "kept", "ratio"]
    head += [f"{100 * level:.0f} %" for level in LEVELS]
    left = "" if len(listed) == dim else f" {count(len(listed))} of {count(dim)} parameters, those that differ most."
    return join([
        table(head, rows, class_="full", id="marginals"),
        element(
            "p", "Shifts of the mean and of the 5, 50 and 95 % quantiles are in standard deviations of the chain after "
            f"its burn-in. The largest of each column is bold.{left}", class_="muted",
        ),
    ])  # fmt: skip


def shown(value: float) -> str:
    """Three digits, a proper minus, and no power of ten where it can be read without.

    >>> shown(2253.4), shown(-0.01234), shown(1.25e9)
    ('2 253', '\N{MINUS SIGN}0.0123', '1.25e+09')
    """
    words = count(round(value)) if 1000 <= abs(value) < 1e6 else number(value)
    return words.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else words


def _signed(value: float) -> str:
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def checks(diagnosis: Diagnosis | None, why_not: str) -> Markup:
    """The blind-spot report."""
    title = "What KSD does not see"
    if diagnosis is None or not diagnosis.findings:
        return _section(title, element("p", why_not if diagnosis is None else _sentence(diagnosis.note)))
    rows = (
        (
            finding.name, element("td", finding.says, class_="said"),
            element("td", shown(finding.value), class_="n"),
            element("td", shown(finding.threshold), class_="n", data_label="threshold"),
            element("td", "fired" if finding.fired else "passed", class_="fired" if finding.fired else None),
        )
        for finding in diagnosis.findings
    )  # fmt: skip
    return _section(
        title,
        element("p", "The kept draws against the stream they are from, and the stream against itself."),
        table(["check", "found", "value", "threshold", ""], rows, class_="full words cards", id="checks"),
        element("p", "Each check fires on at most 0.5 % of clean runs.", class_="muted"),
    )


def reproduce(kept: Kept, file: str) -> Markup:
    """How to get it again."""
    parts: list[object] = []
    typed, call = provenance.commands(kept, file), provenance.python(kept, file)
    if typed:
        parts += [element("h3", "On the command line"), element("pre", element("code", "\n".join(typed)))]
    if call:
        parts += [element("h3", "In Python"), element("pre", element("code", call))]
        apart = "An initial set, a start with a sample, costs and pins are not in the settings: add those of the run."
        parts.append(element("p", apart, class_="muted"))
    settings = {name: value for name, value in kept.settings.items() if name != "commands"}
    rows = ((name, element("code", _brief(value))) for name, value in settings.items())
    parts += [element("h3", "Settings"), table(["setting", "value"], rows, class_="words", id="settings")]
    parts += _preconditioner(kept)
    return _section("How to get it again", *parts)


def _brief(value: object) -> str:
    words = value if isinstance(value, str) else json.dumps(value)
    return words if len(words) <= 400 else f"{words[:400]}…"


def _preconditioner(kept: Kept) -> list[Markup]:
    preconditioner, dim = kept.preconditioner, kept.draws.shape[1]
    if preconditioner is None or preconditioner.factor.ndim == 0 or dim > 10:
        return []
    factor = preconditioner.factor
    names = kept.names or tuple(f"x{j}" for j in range(dim))
    if factor.ndim == 1:
        rows = [(names[j], shown(factor[j])) for j in range(dim)]
        return [element("h3", "Preconditioner: each parameter in these units"), table(["", "scale"], rows)]
    lower = [(names[i], *(shown(factor[i, j]) if j <= i else "" for j in range(dim))) for i in range(dim)]
    return [
        element("h3", "Preconditioner: L, where x becomes L⁻¹x and a score s becomes Lᵀs"),
        table(["", *names], lower),
    ]


def _section(title: str, *content: object) -> Markup:
    return element("section", element("h2", title), *content)


def _figure_of(kind: str, panels: Any, caption: str, style: str | None = None) -> Markup:
    told = [element("figcaption", caption.strip())] if caption.strip() else []
    return element("figure", element("div", *panels, class_=kind, style=style), *told)

"""Sections of the HTML report, one function each. A section without content is an empty string."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steinstream._formatting import count, number, rounded
from steinstream._typing import Array
from steinstream.diagnostics import FALSE_ALARM, POWER, Diagnosis, Finding
from steinstream.report import plots, provenance
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.html import Markup, definition_list, element, join, table, table_head
from steinstream.report.style import as_svg, figure_style, new_figure
from steinstream.result import Kept

_MAX_PAIRS, _MAX_MARGINALS, _MAX_ROWS = 5, 12, 1000  # parameters in pair plots, marginal plots and the table
_MAX_VECTORS = 20_000  # points of all pair plots together that are drawn as vectors

_WIDE, _MEDIUM, _SMALL = (4.1, 2.6), (3.2, 2.5), (2.2, 1.95)  # inches

_KEPT_KEY = Markup("<span><i></i>kept</span>")
_CHAIN_KEY = Markup('<span><i class="chain"></i>chain</span>')
_BURN_IN_KEY = Markup('<span><i class="end"></i>end of burn-in</span>')

_DOCS = "https://github.com/steinstream/steinstream/blob/main/docs/"


def panel(
    draw: Callable[[Any], None], description: str, size: tuple[float, float] = _WIDE, style: str | None = None
) -> Markup:
    """Return one figure of the report as SVG, with axes of this size in inches and a text for screen readers."""
    with figure_style():
        figure, axes = new_figure(*size)
        draw(axes)
    return element("div", Markup(as_svg(figure, description)), style=style)


def key_numbers(kept: Kept, evenly_spaced: float | None) -> Markup:
    """Return the most important numbers. ``evenly_spaced`` is the KSD of the same number of evenly spaced draws."""
    seen = kept.settings.get("seen")
    total = seen if isinstance(seen, int) else None
    has_scores, states = kept.scores is not None, _state_weights(kept)
    effective = float(1.0 / (states**2).sum()) if len(states) else 0.0
    weighted = "with weights; " if kept.weights is not None else ""
    rows: list[tuple[str, str, float | int | None, str]] = [
        ("seen", "draws", total, _describe_skipped(kept)),
        ("kept", "kept", len(kept), f"{100.0 * len(kept) / total:.2g}% of the draws" if total else "draws"),
        ("distinct", "distinct", len(states), "a state may be kept several times"),
        ("effective", "effective size", effective, f"{weighted}of the distinct states"),
        ("ksd", "KSD", kept.ksd if has_scores else None, f"{weighted}lower is better"),
        ("evenly", "KSD, evenly spaced", evenly_spaced, "of as many evenly spaced draws after burn-in"),
        ("mmd", "MMD", None if math.isnan(kept.mmd) else kept.mmd, "distance to the chain; lower is better"),
        ("stream_error", "stream error", kept.stream_error, _describe_summary(kept)),
        ("bound", "bound", kept.bound if has_scores else None, "on the expected KSD, for independent draws"),
        ("debiased", "debiased KSD", kept.ksd_debiased, "from second scores that the selection did not use"),
    ]
    entries = [
        (label, join([element("b", _figure(value), data_number=key, data_value=repr(value)), element("span", note)]))
        for key, label, value, note in rows
        if value is not None
    ]
    meaning = element("p", _link("faq.md#which-ksd-is-good", "Which KSD is good"), class_="muted")
    return join([definition_list(entries, class_="numbers"), meaning if has_scores else ""])


def _describe_summary(kept: Kept) -> str:
    if kept.stream_error is None:
        return ""
    draws = "draws" if kept.stream_summary is None else f"{count(len(kept.stream_summary.weights))} draws"
    share = f"; {kept.stream_error / kept.mmd:.1f} times that of the kept draws" if kept.mmd > 0 else ""
    return f"estimated MMD to the chain of the {draws} that represent it{share}"


def _state_weights(kept: Kept) -> Array:
    """Return the total weight of each distinct state; the sum is 1."""
    _, state = np.unique(kept.draws, axis=0, return_inverse=True)
    totals = np.bincount(state.ravel(), weights=kept.weights)
    return np.asarray(totals / max(totals.sum(), 1e-300))


def _figure(value: float | int) -> str:
    words = count(value) if isinstance(value, int) else format_value(value)
    return words.replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _describe_skipped(kept: Kept) -> str:
    skipped = kept.settings.get("skipped")
    return f"{count(skipped)} not finite, skipped" if isinstance(skipped, int) and skipped else "in the stream"


def chain_facts(comparison: ChainComparison) -> Markup:
    """Return the section with the inspection of the chain."""
    if comparison.chain is None:
        return Markup("")
    rows: list[tuple[object, object]] = [("chain", comparison.chain.title)]
    inspection = comparison.chain.inspection
    if inspection is not None:
        rows += [
            ("contents", inspection.shape(comparison.names)),
            ("scores", inspection.sign()),
            ("repeats", inspection.repeats()),
            ("bad values", inspection.bad()),
        ]
    rows.append(("burn-in", _burn_in(comparison)))
    return _section("The chain", definition_list(rows, class_="facts"))


def _method(kept: Kept) -> str:
    if "merged" in kept.settings:
        return "several thinned sets, merged"
    measures = "KSD and distance to the chain" if kept.scores is not None else "distance to the chain"
    weight = provenance.stored_config(kept).get("stream_weight", 0)
    return str(kept.settings.get("method", f"online thinning by {measures if weight else 'KSD'}"))


def _burn_in(comparison: ChainComparison) -> str:
    ends, chains = comparison.burn_in_ends, len(comparison.context.chain_rows)
    if not ends:
        return "none detected"
    where = "" if chains == 1 else f"in {len(ends)} of {chains} chains, "
    inside = int(comparison.context.burn_in.sum())
    kept = f"{count(inside) if inside else 'none'} of the kept draws belong to it"
    return f"{where}until about draw {count(max(ends.values()))}; {kept}"


def history(kept: Kept) -> Markup:
    """Return the section with KSD (without scores: MMD) and number of kept draws during the run."""
    if len(kept.history.step) < 2:
        return Markup("")
    measure = plots.history_measure(kept)
    panels = (
        panel(lambda axes: plots.measure_panel(axes, kept), f"{measure} of the kept draws against the number of draws"),
        panel(lambda axes: plots.size_panel(axes, kept), "Number of kept draws against the number of draws"),
    )
    caption = "Both axes are logarithmic."
    if kept.settings.get("preconditioner_changed"):
        caption += (
            f" Dotted lines: the preconditioner was refitted; {measure} values before and after are not comparable."
        )
    if kept.weights is not None:
        caption += f" {measure} is that of equal weights."
    return _section(f"{measure} during the run", _figure_of("two", panels, caption))


def positions(comparison: ChainComparison) -> Markup:
    """Return the section with the positions of the kept draws in the chain."""
    panels = [panel(lambda axes: plots.position_panel(axes, comparison), "Positions of the kept draws in each chain")]
    legend = [_KEPT_KEY]
    caption = "One mark for each kept draw."
    if comparison.chain is not None:
        far = panel(lambda axes: plots.deviation_panel(axes, comparison), "Distance from the mean along the chain")
        panels.insert(0, far)
        legend += [_CHAIN_KEY] + ([_BURN_IN_KEY] if comparison.burn_in_ends else [])
        caption = (
            "Left: largest deviation of a parameter from its mean after burn-in, in standard deviations. "
            "Right: one mark for each kept draw."
        )
    page = "faq.md#why-are-the-kept-draws-mostly-late-or-mostly-early"
    return _section(
        "Position of the kept draws in the chain",
        _legend(*legend),
        _figure_of("two", panels, caption),
        element("p", _link(page, "Why kept draws are mostly late or mostly early"), class_="muted"),
    )


def joint_distributions(comparison: ChainComparison) -> Markup:
    """Return the section with the kept draws over the density of the chain, for pairs of parameters."""
    if comparison.kept.draws.shape[1] < 2:
        return Markup("")
    chosen = comparison.most_different(_MAX_PAIRS)
    side = len(chosen) - 1
    sparse = len(comparison.kept) * side * (side + 1) // 2 <= _MAX_VECTORS
    panels = []
    for row, y in enumerate(chosen[1:]):
        for column, x in enumerate(chosen[: row + 1]):

            def draw(axes: Any, x: int = x, y: int = y) -> None:
                plots.pair_panel(axes, comparison, x, y, sparse)

            description = f"{comparison.names[y]} against {comparison.names[x]}"
            place = f"--row:{row + 1};--column:{column + 1}"
            panels.append(panel(draw, description, {1: _WIDE, 2: _MEDIUM}.get(side, _SMALL), place))
    caption = ""
    if comparison.chain is not None:
        caption = "Contours: regions that hold 20%, 50%, 80% and 95% of the chain after burn-in. "
    caption += _describe_choice(comparison, len(chosen))
    if comparison.kept.weights is not None:
        caption += "The area of a point is proportional to its weight."
    figure = _figure_of("corner", panels, caption, f"--side:{side}")
    return _section("Pairs of parameters", _chain_legend(comparison), figure)


def marginal_distributions(comparison: ChainComparison) -> Markup:
    """Return the section with the marginal densities."""
    chosen = comparison.most_different(_MAX_MARGINALS)
    panels = []
    for j in chosen:

        def draw(axes: Any, j: int = j) -> None:
            plots.marginal_panel(axes, comparison, j)

        panels.append(panel(draw, f"Density of {comparison.names[j]}", (_SMALL[0], 1.5)))
    same = "" if comparison.chain is None else " with the same bandwidth"
    caption = f"Kernel density estimates{same}. {_describe_choice(comparison, len(chosen))}"
    return _section("Marginal distributions", _chain_legend(comparison), _figure_of("many", panels, caption))


def _describe_choice(comparison: ChainComparison, shown: int) -> str:
    dim = comparison.kept.draws.shape[1]
    if dim == shown:
        return ""
    which = "those that differ most from the chain" if comparison.chain is not None else "the first ones"
    return f"{shown} of {count(dim)} parameters: {which}. "


def summary_table(comparison: ChainComparison) -> Markup:
    """Return the section with mean, sd and quantiles of kept draws and chain, and a link to save them as csv."""
    listed = comparison.most_different(_MAX_ROWS)
    first = comparison.most_different(_MAX_MARGINALS)
    parts: list[object] = [_summary_rows(comparison, first, "summary")]
    if len(listed) > len(first):
        rest = _summary_rows(comparison, listed, "summary-all")
        title = f"All {count(len(listed))} parameters" if len(listed) == len(comparison.names) else "More parameters"
        parts.append(element("details", element("summary", title), rest))
    note = _describe_choice(comparison, len(first))
    if comparison.chain is not None:
        note = (
            f"Difference: kept minus chain, in standard errors of {count(len(comparison.kept))} independent draws. "
            f"\N{CHECK MARK}: all below {comparison.limit:.1f}. Independent draws exceed this value in one of 1000 "
            "sets; the sds of parameters with heavy tails exceed it more often. "
            f"Numbers are rounded relative to the sd. {note}"
        )
    link = element("a", "Save the table as csv", href=_csv_link(comparison), download="summary.csv")
    return _section("Summary", *parts, element("p", note.strip(), class_="muted"), element("p", link))


def _summary_rows(comparison: ChainComparison, listed: Sequence[int], id: str) -> Markup:
    """Return the table: three rows for each parameter, or one without a chain."""
    kept, chain = comparison.summary, comparison.summary.stream
    head = ["parameter", "", *kept.statistics, *(() if chain is None else ("",))]
    rows = []
    for j in listed:
        name = element("th", comparison.names[j], scope="rowgroup", rowspan=None if chain is None else 3)
        scale = float((kept if chain is None else chain).sd[j])
        own = [element("td", _shown(values[j], scale)) for values in kept.statistics.values()]
        if chain is None:
            rows.append(element("tbody", element("tr", name, element("td", "kept", class_="set"), *own)))
            continue
        other = [element("td", _shown(values[j], scale)) for values in chain.statistics.values()]
        errors = [float(values[j]) for values in comparison.standard_errors.values()]
        beyond = [not abs(error) <= comparison.limit for error in errors]
        difference = [
            element("td", _signed(error), class_="fired" if far else None)
            for error, far in zip(errors, beyond, strict=True)
        ]
        mark = element(
            "span",
            "\N{MULTIPLICATION X}" if any(beyond) else "\N{CHECK MARK}",
            title="beyond" if any(beyond) else "within",
        )
        last = element("td", mark, rowspan=3, class_="fired" if any(beyond) else "good")
        lines = [
            element("tr", name, element("td", "chain", class_="set"), *other, last, class_="chain"),
            element("tr", element("td", "kept", class_="set"), *own),
            element("tr", element("td", "difference (se)", class_="set"), *difference, class_="difference"),
        ]
        rows.append(element("tbody", *lines))
    whole = element("table", table_head(head), *rows, class_="full pairs", id=id)
    return element("div", whole, class_="wide", tabindex=0)


def _signed(value: float) -> str:
    words = f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")
    return words if words[1:] != "0.0" else "0.0"


def _shown(value: float, scale: float) -> str:
    return rounded(float(value), scale).replace("-", "\N{MINUS SIGN}")


def _csv_link(comparison: ChainComparison) -> str:
    """Return the summary of all parameters as the address of a csv file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(comparison.summary.columns)
    writer.writerows(comparison.summary.rows())
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.getvalue().encode()).decode()}"


def format_value(value: float) -> str:
    """Format a number with three significant digits, zeros included, a minus sign and no exponent below one million.

    Returns
    -------
    str
        The number.

    Examples
    --------
    >>> format_value(2253.4), format_value(-0.01234), format_value(1.0), format_value(1.25e9)
    ('2 253', '\N{MINUS SIGN}0.0123', '1.00', '1.25e+09')
    """
    words = count(round(value)) if 1000 <= abs(value) < 1e6 else f"{value:#.3g}".rstrip(".")
    return words.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else words


def checks(diagnosis: Diagnosis | None) -> Markup:
    """Return the section with the results of the diagnostic checks."""
    title = "Diagnostic checks"
    if diagnosis is None:
        missing = "Not checked: the chain is required. Use steinstream report KEPT --chain CHAIN."
        return _section(title, element("p", missing, class_="muted"))
    if len(diagnosis.skipped) == len(diagnosis.findings):
        return _section(title, element("p", diagnosis.verdict))
    return _section(
        title,
        element(
            "p",
            f"The kept draws are compared with {count(diagnosis.stream)} evenly spaced draws of the chain, the stream. "
            "Parts of the stream are compared with each other.",
        ),
        table(
            ["check", "result", "value", "threshold", f"found with {POWER:.0%} probability", ""],
            [_check_row(finding) for finding in diagnosis.findings],
            class_="full words cards",
            id="checks",
        ),
        element(
            "p",
            "A check that passed excludes only faults that are larger than the smallest ones that it would have found. "
            f"Each check fires on about {FALSE_ALARM:.1%} of clean runs. ",
            _link("blind-spots.md", "What each check does"),
            class_="muted",
        ),
    )


def _check_row(finding: Finding) -> tuple[object, ...]:
    state = "fired" if finding.fired else "skipped" if finding.skipped else "passed"
    numbers = ["" if finding.skipped else format_value(value) for value in (finding.value, finding.threshold)]
    return (
        finding.name,
        element("td", finding.says if finding.fired else finding.found or finding.says, class_="said"),
        element("td", numbers[0], class_="n"),
        element("td", numbers[1], class_="n", data_label="threshold"),
        element("td", finding.detects.rstrip(","), class_="detects", data_label="would be found:"),
        element("td", state, class_="fired" if finding.fired else None),
    )


def reproduce(kept: Kept, file: str) -> Markup:
    """Return the section with commands, Python code and all settings."""
    parts: list[object] = []
    typed, code = provenance.recorded_commands(kept, file), provenance.python_code(kept, file)
    if typed:
        parts += [element("h3", "Command line"), element("pre", element("code", "\n".join(typed)))]
    if code:
        parts += [element("h3", "Python"), element("pre", element("code", code))]
        arrays = "The arrays hold all draws of the run: (n, d), or (chains, n, d) for several chains."
        parts.append(element("p", arrays, class_="muted"))
    else:
        parts.append(element("p", f"Python code is not shown: {provenance.obstacle(kept)}.", class_="muted"))
    recorded = {name: value for name, value in kept.settings.items() if name not in ("commands", "config")}
    everything = {"method": _method(kept)} | provenance.stored_config(kept) | recorded
    rows = [(name, element("code", _brief(value))) for name, value in everything.items()]
    parts += [element("h3", "Settings"), table(["setting", "value"], rows, class_="words", id="settings")]
    parts.append(element("p", _link("choosing.md", "What the settings mean"), class_="muted"))
    parts += _preconditioner(kept)
    return _section("Reproduce this result", *parts)


def _brief(value: object) -> str:
    words = value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)
    words = words if isinstance(_plain(value), dict | list) else words.strip('"')
    if isinstance(value, dict):
        words = "; ".join(f"{name}: {_brief(each)}" for name, each in value.items())
    return words if len(words) <= 400 else f"{words[:400]}…"


def _plain(value: object) -> object:
    """Return a setting in words, and numbers with three digits."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool):
        return "not set" if value is None else "yes" if value else "no"
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    short = float(number(value))
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def _preconditioner(kept: Kept) -> list[Markup]:
    preconditioner, dim = kept.preconditioner, kept.draws.shape[1]
    if preconditioner is None or preconditioner.factor.ndim == 0 or dim > 10:
        return []
    factor = preconditioner.factor
    names = kept.names or tuple(f"x{j}" for j in range(dim))
    if factor.ndim == 1:
        rows = [(names[j], format_value(factor[j])) for j in range(dim)]
        return [element("h3", "Preconditioner: scale of each parameter"), table(["", "scale"], rows)]
    lower = [(names[i], *(format_value(factor[i, j]) if j <= i else "" for j in range(dim))) for i in range(dim)]
    return [element("h3", "Preconditioner: L, with draws L⁻¹x and scores Lᵀs"), table(["", *names], lower)]


def _link(page: str, words: str) -> Markup:
    return element("a", words, href=_DOCS + page)


def _section(title: str, *content: object) -> Markup:
    return element("section", element("h2", title), *content)


def _legend(*keys: Markup) -> Markup:
    return element("div", *keys, class_="legend")


def _chain_legend(comparison: ChainComparison) -> Markup:
    return _legend(_KEPT_KEY) if comparison.chain is None else _legend(_KEPT_KEY, _CHAIN_KEY)


def _figure_of(kind: str, panels: Sequence[Markup], caption: str, style: str | None = None) -> Markup:
    captions = [element("figcaption", caption.strip())] if caption.strip() else []
    return element("figure", element("div", *panels, class_=kind, style=style), *captions)

"""Sections of the HTML report, one function each. A section without content is an empty string."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steinstream._formatting import count, number
from steinstream.diagnostics import FALSE_ALARM, POWER, Diagnosis, Finding
from steinstream.report import plots, provenance
from steinstream.report.compare import QUANTILE_LEVELS, ChainComparison
from steinstream.report.html import Markup, definition_list, element, join, table
from steinstream.report.style import as_svg, figure_style, new_figure
from steinstream.result import Kept

_MAX_PAIRS, _MAX_MARGINALS, _MAX_ROWS = 5, 12, 1000  # parameters in pair plots, marginal plots and the table
_MAX_VECTORS = 20_000  # points of all pair plots together that are drawn as vectors

_WIDE, _SMALL = (4.1, 2.6), (2.2, 1.95)  # inches

_KEPT_KEY = Markup("<span><i></i>kept</span>")
_CHAIN_KEY = Markup('<span><i class="chain"></i>chain</span>')
_BURN_IN_KEY = Markup('<span><i class="end"></i>end of burn-in</span>')

_GROWTHS = {"sqrt": "at least √(t log t) of t draws", "linear": "at least t / 2 of t draws", "none": "every draw"}


def panel(
    draw: Callable[[Any], None], description: str, size: tuple[float, float] = _WIDE, style: str | None = None
) -> Markup:
    """Return one figure of the report.

    Parameters
    ----------
    draw : callable
        Draws the figure on the axes that it is given.
    description : str
        Description for screen readers.
    size : tuple of float
        Width and height in inches.
    style : str, optional
        CSS of the container.

    Returns
    -------
    Markup
        The figure as SVG.

    """
    with figure_style():
        figure, axes = new_figure(*size)
        draw(axes)
    return element("div", Markup(as_svg(figure, description)), style=style)


def key_numbers(kept: Kept, evenly_spaced: float | None) -> Markup:
    """Return the most important numbers. ``evenly_spaced`` is the KSD of the same number of evenly spaced draws."""
    seen = kept.settings.get("seen")
    total = seen if isinstance(seen, int) else None
    weighted = "with weights; " if kept.weights is not None else ""
    rows: list[tuple[str, str, float | int | None, str]] = [
        ("seen", "draws", total, _describe_skipped(kept)),
        ("kept", "kept", len(kept), _describe_fraction(kept, total)),
        ("ksd", "KSD", kept.ksd, f"{weighted}lower is better"),
        ("normalised", "normalised KSD", kept.normalised_ksd, "KSD × √n; constant in n for independent draws"),  # noqa: RUF001
        ("evenly", "evenly spaced", evenly_spaced, "KSD of as many evenly spaced draws after burn-in"),
        ("bound", "bound", kept.bound, "on the expected KSD, for independent draws"),
        ("debiased", "debiased KSD", kept.ksd_debiased, "from second scores that the selection did not use"),
    ]
    if kept.weights is not None:
        rows.append(("effective", "effective size", kept.effective_size, "draws of equal weight, 1 / Σw²"))
    entries = [
        (label, join([element("b", _figure(value), data_number=key, data_value=repr(value)), element("span", note)]))
        for key, label, value, note in rows
        if value is not None
    ]
    return definition_list(entries, class_="numbers")


def _figure(value: float | int) -> str:
    words = count(value) if isinstance(value, int) else format_value(value)
    return words.replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _describe_skipped(kept: Kept) -> str:
    skipped = kept.settings.get("skipped")
    return f"{count(skipped)} not finite, skipped" if isinstance(skipped, int) and skipped else "in the stream"


def _describe_fraction(kept: Kept, total: int | None) -> str:
    states = len(np.unique(kept.draws, axis=0))
    distinct = "" if states == len(kept) else f", {count(states)} distinct"
    return (f"{100.0 * len(kept) / total:.2g} % of the draws" if total else "draws") + distinct


def notes(warnings: list[str], diagnosis: Diagnosis | None) -> Markup:
    """Return warnings about the chain, the findings that fired, the verdict of the checks and its notes."""
    items = [element("li", line) for line in warnings]
    if diagnosis is not None:
        for finding in diagnosis.fired:
            items.append(element("li", _sentence(finding.says), element("span", _sentence(finding.advice))))
        items += [element("li", diagnosis.verdict), *(element("li", _sentence(note)) for note in diagnosis.notes)]
    if not items:
        return Markup("")
    is_well = not warnings and diagnosis is not None and diagnosis.ok
    return element("ul", *items, class_="notes well" if is_well else "notes")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def settings(comparison: ChainComparison) -> Markup:
    """Return the section with method and settings, and the inspection of the chain."""
    kept = comparison.kept
    config, recorded = provenance.stored_config(kept), kept.settings
    rows: list[tuple[object, object]] = [("method", _method(kept))]
    if config.get("size"):
        rows.append(("size", f"exactly {config['size']} draws"))
    elif config:
        growth, budget = str(config.get("growth") or "sqrt"), str(config.get("budget"))
        rows.append(("growth", f"{growth}: {_GROWTHS[growth]}" if growth in _GROWTHS else growth))
        zero = "0: a draw is removed only if KSD does not increase"
        rows.append(("budget", zero if budget in ("constant:0.0", "0.0", "0") else budget))
    rows += [("rule", config["rule"])] if "rule" in config else []
    rows += [("kernel", recorded.get("kernel", kept.kernel))] if kept.kernel or "kernel" in recorded else []
    rows += [("preconditioner", recorded["preconditioner"])] if "preconditioner" in recorded else []
    if config.get("candidates", 1) != 1:
        rows.append(("candidates", f"the best of {config['candidates']} consecutive draws"))
    rows += [("stream weight", config["stream_weight"])] if config.get("stream_weight") else []
    rows += [("passes", recorded["passes"])] if recorded.get("passes", 1) != 1 else []
    rows += [("proxy", f"scores of a proxy density: {recorded['proxy']}")] if "proxy" in recorded else []
    rows.append(("dimensions", count(kept.draws.shape[1])))
    if comparison.chain is not None:
        rows.append(("chain", comparison.chain.title))
        inspection = comparison.chain.inspection
        if inspection is not None:
            rows += [
                ("contents", inspection.shape(comparison.names)),
                ("scores", inspection.sign()),
                ("repeats", inspection.repeats()),
                ("bad values", inspection.bad()),
            ]
        rows.append(("burn-in", _burn_in(comparison)))
    return _section("Settings", definition_list(rows, class_="facts"))


def _method(kept: Kept) -> str:
    if "merged" in kept.settings:
        return "several thinned sets, merged"
    return str(kept.settings.get("method", "online KSD thinning"))


def _burn_in(comparison: ChainComparison) -> str:
    ends, chains = comparison.burn_in_ends, len(comparison.context.chain_rows)
    if not ends:
        return "none detected"
    where = "" if chains == 1 else f"in {len(ends)} of {chains} chains, "
    inside = int(comparison.context.burn_in.sum())
    kept = f"{count(inside) if inside else 'none'} of the kept draws belong to it"
    return f"{where}until about draw {count(max(ends.values()))}; {kept}"


def history(kept: Kept) -> Markup:
    """Return the section with KSD and number of kept draws during the run."""
    if len(kept.history.step) < 2:
        return Markup("")
    panels = (
        panel(lambda axes: plots.ksd_panel(axes, kept), "KSD of the kept draws against the number of draws"),
        panel(lambda axes: plots.size_panel(axes, kept), "Number of kept draws against the number of draws"),
    )
    caption = "Both axes are logarithmic."
    if kept.settings.get("preconditioner_changed"):
        caption += " Dotted lines: the preconditioner was refitted; KSD values before and after are not comparable."
    if kept.weights is not None:
        caption += " KSD is that of equal weights."
    return _section("KSD during the run", _figure_of("two", panels, caption))


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
    return _section("Position of the kept draws in the chain", _legend(*legend), _figure_of("two", panels, caption))


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
            panels.append(panel(draw, description, _WIDE if side == 1 else _SMALL, place))
    caption = "" if comparison.chain is None else "Axes show the central 99 % of the chain after burn-in. "
    caption += _describe_choice(comparison, len(chosen))
    if comparison.kept.weights is not None:
        caption += "The area of a point is proportional to its weight."
    figure = _figure_of("corner", panels, caption, f"--side:{side}")
    return _section("Pairs of parameters", _chain_legend(comparison), figure)


def marginal_distributions(comparison: ChainComparison) -> Markup:
    """Return the section with the marginal densities and their differences from the chain."""
    chosen = comparison.most_different(_MAX_MARGINALS)
    panels = []
    for j in chosen:

        def draw(axes: Any, j: int = j) -> None:
            plots.marginal_panel(axes, comparison, j)

        panels.append(panel(draw, f"Density of {comparison.names[j]}", (_SMALL[0], 1.5)))
    caption = f"Kernel density estimates with the same bandwidth. {_describe_choice(comparison, len(chosen))}"
    differences = [] if comparison.chain is None else [_differences(comparison)]
    figure = _figure_of("many", panels, caption)
    return _section("Marginal distributions", _chain_legend(comparison), figure, *differences)


def _describe_choice(comparison: ChainComparison, shown: int) -> str:
    dim = comparison.kept.draws.shape[1]
    if dim == shown:
        return ""
    which = "those that differ most from the chain" if comparison.chain is not None else "the first ones"
    return f"{shown} of {count(dim)} parameters: {which}. "


def _differences(comparison: ChainComparison) -> Markup:
    found, dim = comparison.differences, comparison.kept.draws.shape[1]
    listed = comparison.most_different(_MAX_ROWS)
    columns = [found.shift, found.ratio - 1.0, *found.quantiles]
    worst = [int(np.argmax(np.abs(column))) for column in columns]

    def cell(j: int, column: int, words: str) -> Markup:
        return element("td", element("b", words) if dim > 1 and worst[column] == j else words)

    rows = [
        (
            comparison.names[j],
            format_value(found.chain_mean[j]),
            format_value(found.kept_mean[j]),
            cell(j, 0, _signed(found.shift[j])),
            format_value(found.chain_sd[j]),
            format_value(found.kept_sd[j]),
            cell(j, 1, f"{found.ratio[j]:.2f}"),
            *(cell(j, 2 + level, _signed(found.quantiles[level, j])) for level in range(len(QUANTILE_LEVELS))),
        )
        for j in listed
    ]
    head = ["parameter", "mean, chain", "kept", "shift", "sd, chain", "kept", "ratio"]
    head += [f"{100 * level:.0f} %" for level in QUANTILE_LEVELS]
    note = (
        "Shifts of the mean and of the 5, 50 and 95 % quantiles are in standard deviations of the chain after burn-in. "
        f"The largest value of each column is bold. {_describe_choice(comparison, len(listed))}"
    )
    return join([table(head, rows, class_="full", id="marginals"), element("p", note.strip(), class_="muted")])


def format_value(value: float) -> str:
    """Format a number with three digits, a minus sign and no exponent below one million.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        The formatted number.

    Examples
    --------
    >>> format_value(2253.4), format_value(-0.01234), format_value(1.25e9)
    ('2 253', '\N{MINUS SIGN}0.0123', '1.25e+09')

    """
    words = count(round(value)) if 1000 <= abs(value) < 1e6 else number(value)
    return words.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else words


def _signed(value: float) -> str:
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def checks(diagnosis: Diagnosis | None) -> Markup:
    """Return the section with the results of the diagnostic checks."""
    title = "Diagnostic checks"
    if diagnosis is None:
        missing = "Not checked: the chain is required. Use steinstream report KEPT --chain CHAIN."
        return _section(title, element("p", missing))
    if len(diagnosis.skipped) == len(diagnosis.findings):
        return _section(title, element("p", diagnosis.verdict))
    return _section(
        title,
        element("p", "The kept draws are compared with the stream, and parts of the stream with each other."),
        table(
            ["check", "result", "value", "threshold", f"found with {POWER:.0%} probability", ""],
            [_check_row(finding) for finding in diagnosis.findings],
            class_="full words cards",
            id="checks",
        ),
        element(
            "p",
            "A check that passed excludes only faults that are larger than the smallest ones that it would have found. "
            f"Each check fires on about {FALSE_ALARM:.1%} of clean runs.",
            class_="muted",
        ),
    )


def _check_row(finding: Finding) -> tuple[object, ...]:
    state = "fired" if finding.fired else "skipped" if finding.skipped else "passed"
    numbers = ["" if finding.skipped else format_value(value) for value in (finding.value, finding.threshold)]
    return (
        finding.name,
        element("td", finding.says, class_="said"),
        element("td", numbers[0], class_="n"),
        element("td", numbers[1], class_="n", data_label="threshold"),
        element("td", finding.detects.rstrip(","), data_label="would be found"),
        element("td", state, class_="fired" if finding.fired else None),
    )


def reproduce(kept: Kept, file: str) -> Markup:
    """Return the section with commands, Python code and settings."""
    parts: list[object] = []
    typed, code = provenance.commands(kept, file), provenance.python_code(kept, file)
    if typed:
        parts += [element("h3", "Command line"), element("pre", element("code", "\n".join(typed)))]
    if code:
        parts += [element("h3", "Python"), element("pre", element("code", code))]
        missing = "An initial set, costs and pins are not recorded: add them if they were used."
        parts.append(element("p", missing, class_="muted"))
    recorded = {name: value for name, value in kept.settings.items() if name not in ("commands", "config")}
    everything = provenance.stored_config(kept) | recorded
    rows = [(name, element("code", _brief(value))) for name, value in everything.items()]
    parts += [element("h3", "All settings"), table(["setting", "value"], rows, class_="words", id="settings")]
    parts += _preconditioner(kept)
    return _section("Reproduce this result", *parts)


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
        rows = [(names[j], format_value(factor[j])) for j in range(dim)]
        return [element("h3", "Preconditioner: scale of each parameter"), table(["", "scale"], rows)]
    lower = [(names[i], *(format_value(factor[i, j]) if j <= i else "" for j in range(dim))) for i in range(dim)]
    return [element("h3", "Preconditioner: L, with draws L⁻¹x and scores Lᵀs"), table(["", *names], lower)]


def _section(title: str, *content: object) -> Markup:
    return element("section", element("h2", title), *content)


def _legend(*keys: Markup) -> Markup:
    return element("div", *keys, class_="legend")


def _chain_legend(comparison: ChainComparison) -> Markup:
    return _legend(_KEPT_KEY) if comparison.chain is None else _legend(_KEPT_KEY, _CHAIN_KEY)


def _figure_of(kind: str, panels: Sequence[Markup], caption: str, style: str | None = None) -> Markup:
    captions = [element("figcaption", caption.strip())] if caption.strip() else []
    return element("figure", element("div", *panels, class_=kind, style=style), *captions)

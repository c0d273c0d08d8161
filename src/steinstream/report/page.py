"""The HTML report, and the summary that notebooks show.

The report is a single file that opens offline. Styles and figures are embedded. It has no script, and a content
security policy forbids scripts and requests, so that a name that was not escaped could do nothing. The same kept set
and chain give the same bytes.

Cost: one pass over the chain in bounded memory, and a few seconds for the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template

import numpy as np
from numpy.typing import ArrayLike

from steinstream._formatting import count, number
from steinstream.diagnostics import Diagnosis, diagnose
from steinstream.discrepancy.ksd import ksd
from steinstream.errors import InputError
from steinstream.io import Chain, replacing
from steinstream.report import plots, provenance, sections
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import ChainLike, summarise_chain
from steinstream.report.html import Markup, element, join
from steinstream.report.style import as_svg, figure_style, new_figure, require_matplotlib
from steinstream.report.verdict import verdict
from steinstream.result import Kept


class Report:
    """Report of a kept set. A notebook shows it; :meth:`save` writes it to a file.

    Attributes
    ----------
    html : str
        The whole report.
    title : str
        Its title.
    """

    def __init__(self, html: str, title: str) -> None:
        self.html, self.title = html, title

    def save(self, path: str | PathLike[str]) -> None:
        """Write the report to one HTML file. An existing file is replaced once the new one is complete."""
        with replacing(path) as file:
            file.write(self.html.encode(errors="replace"))  # file names that are not valid UTF-8

    def __repr__(self) -> str:
        return f"Report({self.title}, {len(self.html) / 1e6:.1f} MB; save(path) writes it)"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:1px solid #8b949e;border-radius:6px"
        return f'<iframe srcdoc="{escape(self.html)}" style="{frame}" title="{escape(self.title)}"></iframe>'


def build_report(
    kept: Kept,
    chain: ChainLike = None,
    scores: ArrayLike | None = None,
    *,
    file: str = "",
    title: str = "",
    progress: Callable[[Chain, int], None] | None = None,
) -> Report:
    """Build the report of a kept set.

    Parameters
    ----------
    kept : Kept
        The kept set.
    chain : str, path, sequence of paths, Chain or array, optional
        The chain to compare with: one or several files, an open chain, or draws (n, d) or (chains, n, d). Default: the
        subsample of the stream that the kept set holds.
    scores : array_like, optional
        Scores of the draws in ``chain``, if it is an array.
    file : str, optional
        File of the kept set, for the code that reproduces it.
    title : str, optional
        Title. Default: the file name.
    progress : callable, optional
        Called with the chain and the number of draws read.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    InputError
        If matplotlib is not installed, the set is empty, or the chain cannot be read.
    """
    require_matplotlib()
    if len(kept) == 0:
        raise InputError("The kept set is empty, so there is nothing to report.", "Add draws first.")
    title = title or file or "Kept draws"
    comparison = ChainComparison(kept, summarise_chain(kept, chain, progress, scores))
    diagnosis, evenly_spaced = _diagnosis(comparison), _evenly_spaced_ksd(comparison)
    body = join(
        [
            _header(comparison, title),
            verdict(comparison, _warnings(comparison, diagnosis), diagnosis),
            sections.key_numbers(kept, evenly_spaced),
            sections.summary_table(comparison),
            sections.marginal_distributions(comparison),
            sections.joint_distributions(comparison),
            sections.checks(diagnosis),
            sections.chain_facts(comparison),
            sections.positions(comparison),
            sections.history(kept),
            sections.reproduce(kept, file or "kept.npz"),
            element("footer", f"Made by {provenance.versions()}."),
        ]
    )
    folder = files("steinstream.report")
    template = Template((folder / "page.html").read_text(encoding="utf-8"))
    style = (folder / "page.css").read_text(encoding="utf-8")
    return Report(template.substitute(title=escape(f"{title}: report"), style=style, body=body), title)


def check_report_path(path: str | PathLike[str]) -> None:
    """Raise `InputError` if a report cannot be written to ``path``, before a long run."""
    require_matplotlib()
    target = Path(path)
    if not target.resolve().parent.is_dir():
        raise InputError(
            f"Cannot write {target}: the folder {target.parent} does not exist.", "Create the folder first."
        )
    if target.suffix not in (".html", ".htm"):
        raise InputError(f"Cannot write the report to {target}: it is an HTML file.", "Use a name that ends in .html.")


def _header(comparison: ChainComparison, title: str) -> Markup:
    kept, chain, seen = comparison.kept, comparison.chain, comparison.kept.settings.get("seen")
    of = f" of {count(seen)}" if isinstance(seen, int) else ""
    dim = kept.draws.shape[1]
    lead = f"{count(len(kept))}{of} draws are kept, in {count(dim)} dimension{'' if dim == 1 else 's'}."
    if chain is None:
        source = "The set does not contain a subsample of its stream and no chain was given, so it is not compared."
    elif chain.from_thinner:
        source = f"Compared with {chain.title}."
    else:
        held = len(chain.block.draws)
        some = f" ({count(held)} evenly spaced draws)" if held < chain.seen else ""
        source = f"Compared with the chain{some}: {chain.title}."
    return element(
        "header",
        element("p", "steinstream report", class_="source"),
        element("h1", title),
        element("p", f"{lead} {source}", class_="lead"),
    )


def _warnings(comparison: ChainComparison, diagnosis: Diagnosis | None) -> list[str]:
    """Return the warnings of the inspection, and whether the kept draws come from this chain.

    The inspection evaluates Stein's identity including burn-in. The diagnostic check excludes burn-in, so a passed
    check overrules the warning. A check that fired names the cause; only the remedy for a wrong sign is added.
    """
    chain, total = comparison.chain, len(comparison.kept)
    if chain is None or chain.from_thinner:
        return []
    warnings = [] if chain.inspection is None else chain.inspection.warnings()
    lines = [f"{line[:1].upper()}{line[1:]}." for line in warnings]
    made = () if diagnosis is None else (*diagnosis.passed, *diagnosis.fired)
    for check in (one for one in made if one.name == "scores"):
        known = "Scores: sign plausible" if check.fired else "Scores: "
        lines = [line for line in lines if not line.startswith(known)]
    if chain.found < total and "merged" not in comparison.kept.settings:
        missing = (
            f"{count(total - chain.found)} of the {count(total)} kept draws were not found at their positions in this "
            "chain. If they were kept from another chain, the comparison is not meaningful."
        )
        lines.insert(0, missing)
    return lines


def _diagnosis(comparison: ChainComparison) -> Diagnosis | None:
    kept, chain = comparison.kept, comparison.chain
    stream = kept.stream if chain is None else chain.stream
    if stream is None:
        return None
    return diagnose(kept.draws, kept.ids, stream, comparison.names, kept.weights, kept.settings)


def _evenly_spaced_ksd(comparison: ChainComparison) -> float | None:
    """Return the KSD of the same number of evenly spaced draws after burn-in; None if it cannot be computed."""
    kept, chain = comparison.kept, comparison.chain
    if chain is None or chain.stream.scores.shape[1] == 0 or kept.preconditioner is None or kept.kernel is None:
        return None
    draws, scores = comparison.context.draws, comparison.context.scores
    if "clip" in kept.settings or len(draws) < len(kept) or scores.shape != draws.shape:
        return None
    rows = np.linspace(0, len(draws) - 1, len(kept)).round().astype(np.int64)
    return ksd(draws[rows], scores[rows], kernel=kept.kernel, preconditioner=kept.preconditioner)


# -- notebooks ---------------------------------------------------------------------------------------------------------


def notebook_summary(kept: Kept) -> str:
    """Return a few numbers and a small figure of a kept set, as HTML."""
    seen = kept.settings.get("seen")
    rows = {
        "draws": count(seen) if isinstance(seen, int) else None,
        "kept": count(len(kept)),
        "dimensions": count(kept.draws.shape[1]),
        "KSD": None if kept.scores is None else number(kept.ksd),
        "MMD": None if math.isnan(kept.mmd) else number(kept.mmd),
        "bound": None if kept.bound is None else number(kept.bound),
        "debiased KSD": None if kept.ksd_debiased is None else number(kept.ksd_debiased),
        "effective size": None if kept.weights is None else f"{kept.effective_size:.1f}",
    }
    left, right = "text-align:left;font-weight:normal", "text-align:right;font-variant-numeric:tabular-nums"
    body = (
        element("tr", element("th", name, style=left), element("td", value, style=right))
        for name, value in rows.items()
        if value is not None
    )
    parts = [element("table", element("tbody", *body)), _small_trace(kept)]
    hint = element("div", "kept.report() shows the full report", style="opacity:.7;font-size:.85em")
    box = "display:flex;flex-wrap:wrap;gap:1.5em;align-items:center"
    return element("div", element("div", *parts, style=box), hint)


def _small_trace(kept: Kept) -> Markup:
    if len(kept.history.step) < 2:
        return Markup("")
    try:
        with figure_style():
            figure, axes = new_figure(3.2, 1.8)
            plots.measure_panel(axes, kept)
    except InputError:  # without matplotlib, the numbers have to suffice
        return Markup("")
    svg = as_svg(figure, f"{plots.history_measure(kept)} of the kept draws against the number of draws")
    return element("div", Markup(svg), style="width:310px")

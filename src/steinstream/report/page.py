"""The report: one HTML file with everything in it, that opens offline and asks for nothing.

Its styles and figures stand in the file; there is no script, and a policy in its head forbids any, and all requests, so
that even a name that slipped through unescaped could do nothing. The same kept set and chain give the same bytes.

Cost: one pass through the chain in bounded memory, and a few seconds for the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template

import numpy as np

from steinstream._formatting import count, number
from steinstream.diagnostics import Diagnosis, diagnose
from steinstream.errors import InputError
from steinstream.io import Chain, replacing
from steinstream.report import provenance, sections
from steinstream.report.chain_summary import ChainLike, Outline, Remembered, outline
from steinstream.report.compare import Beside
from steinstream.report.html import Markup, element, join
from steinstream.report.style import need_matplotlib
from steinstream.result import Kept


class Page:
    """A report. A notebook shows it; :meth:`save` writes the file."""

    def __init__(self, html: str, title: str) -> None:
        self.html, self.title = html, title

    def save(self, path: str | PathLike[str]) -> None:
        """Write one HTML file: whole, or not at all."""
        with replacing(path) as file:
            file.write(self.html.encode())

    def __repr__(self) -> str:
        return f"Page({self.title}, {len(self.html) / 1e6:.1f} MB; save(path) writes it)"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:1px solid #8b949e;border-radius:6px"
        return f'<iframe srcdoc="{escape(self.html)}" style="{frame}" title="{escape(self.title)}"></iframe>'


def write(
    path: str | PathLike[str], kept: Kept, chain: ChainLike = None, *, file: str = "", title: str = "",
    tell: Callable[[Chain, int], None] | None = None,
) -> Page:  # fmt: skip
    """Write the report of a kept set to one HTML file. All else as in :func:`page`."""
    result = page(kept, chain, file=file, title=title, tell=tell)
    result.save(path)
    return result


def page(
    kept: Kept, chain: ChainLike = None, *, file: str = "", title: str = "",
    tell: Callable[[Chain, int], None] | None = None,
) -> Page:  # fmt: skip
    """The report of a kept set, beside the chain it is from or what it remembers of that.

    ``chain`` is a file, several, an open chain, or draws (n, d) or (chains, n, d). ``file`` is the name under which the
    kept set can be read, for what makes it again; ``tell`` hears how many draws of the chain have passed.
    """
    need_matplotlib()
    if len(kept) == 0:
        raise InputError("Nothing is kept, so there is nothing to report.", "Push draws first.")
    title = title or file or "Kept draws"
    beside = Beside(kept, outline(kept, chain, tell))
    diagnosis = _diagnosis(beside)
    evenly = _evenly_spaced(beside)
    body = join([
        _head(beside, title, evenly),
        sections.notes(_warnings(beside, diagnosis), diagnosis),
        sections.numbers(kept, evenly),
        sections.thinned(beside),
        sections.course(kept),
        sections.along(beside),
        sections.joint(beside),
        sections.single(beside),
        sections.checks(diagnosis, "It takes the chain and its scores to tell: steinstream report KEPT --chain CHAIN."),
        sections.reproduce(kept, file or "kept.npz"),
        element("footer", f"Made by {provenance.versions()}."),
    ])  # fmt: skip
    here = files("steinstream.report")
    shell = Template((here / "page.html").read_text(encoding="utf-8"))
    style = (here / "page.css").read_text(encoding="utf-8")
    return Page(shell.substitute(title=escape(f"{title}: report"), style=style, body=body), title)


def check_output(path: str | PathLike[str]) -> None:
    """Raise now what writing a report there would raise after a long run."""
    need_matplotlib()
    target = Path(path)
    if not target.resolve().parent.is_dir():
        raise InputError(f"cannot write {target}: there is no folder {target.parent}.", "Make the folder first.")
    if target.suffix not in (".html", ".htm"):
        raise InputError(f"{target} would be a report.", "Let its name end in .html.")


def _head(beside: Beside, title: str, evenly: float | None) -> Markup:
    kept, seen = beside.kept, beside.kept.settings.get("seen")
    of = f" of {count(seen)}" if isinstance(seen, int) else ""
    lead = f"{count(len(kept))}{of} draws in {count(kept.draws.shape[1])} dimensions, with a KSD of {number(kept.ksd)}"
    lead += f"; as many evenly spaced draws have {number(evenly)}." if evenly is not None else "."
    about = [
        element("p", "steinstream report", class_="source"),
        element("h1", title),
        element("p", lead, class_="lead"),
    ]
    if beside.outline is None:
        about.append(element(
            "p", "The set does not remember its stream, so nothing is compared with the chain: give it with --chain.",
            class_="muted",
        ))  # fmt: skip
    elif isinstance(beside.outline, Remembered):
        about.append(element("p", f"Compared with {beside.outline.title}.", class_="muted"))
    else:
        held = len(beside.outline.block.draws)
        some = f", by {count(held)} evenly spaced draws" if held < beside.outline.seen else ""
        about.append(element("p", f"Compared with the chain{some}: {beside.outline.title}.", class_="muted"))
    return element("header", *about)


def _warnings(beside: Beside, diagnosis: Diagnosis | None) -> list[str]:
    """What `inspect` warns of, and whether this is the chain at all.

    Stein's identity may be off for a burn-in alone: the blind-spot report looks at it without, and has the last word.
    """
    out = beside.outline
    if out is None or isinstance(out, Remembered):
        return []
    lines = [f"{line[:1].upper()}{line[1:]}." for line in out.survey.warnings()] if out.survey is not None else []
    if diagnosis is not None and any(finding.name == "scores" and not finding.fired for finding in diagnosis.findings):
        lines = [line for line in lines if not line.startswith("Scores: ")]
    total = len(beside.kept)
    if out.found < total and "merged" not in beside.kept.settings:
        lines.insert(0, (
            f"{count(total - out.found)} of the {count(total)} kept draws do not stand at their places in this chain. "
            "If they were kept from another one, what is compared here means little."
        ))  # fmt: skip
    return lines


def _diagnosis(beside: Beside) -> Diagnosis | None:
    kept, out = beside.kept, beside.outline
    stream = out.stream if isinstance(out, Outline) else None
    stream = kept.stream if stream is None else stream
    return None if stream is None else diagnose(kept.draws, kept.ids, stream, beside.names, kept.weights)


def _evenly_spaced(beside: Beside) -> float | None:
    """KSD of as many evenly spaced draws after the burn-in, in the same coordinates; None if it cannot be told."""
    kept, out = beside.kept, beside.outline
    if (
        out is None
        or out.stream is None
        or kept.preconditioner is None
        or kept.kernel is None
        or "clip" in kept.settings
    ):
        return None
    draws, scores = beside.evidence.draws, beside.evidence.scores
    if len(draws) < len(kept) or scores.shape != draws.shape:
        return None
    from steinstream.discrepancy import ksd

    rows = np.linspace(0, len(draws) - 1, len(kept)).round().astype(np.int64)
    return ksd(draws[rows], scores[rows], kernel=kept.kernel, preconditioner=kept.preconditioner)

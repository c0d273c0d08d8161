"""The verdict at the top of the report: whether a fault was found, and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steinstream._formatting import count
from steinstream.diagnostics import Diagnosis, Finding
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.html import Markup, element

_MAIN = ("mean", "spread", "ranges")  # checks whose sensitivity is shown


def verdict(comparison: ChainComparison, warnings: list[str], diagnosis: Diagnosis | None) -> Markup:
    """Return the verdict: whether a fault was found, how far the kept draws are from the chain, and what to do.

    Returns
    -------
    Markup
        A headline, one sentence with the largest differences, the findings with advice, and a list of what was checked.
    """
    fired = () if diagnosis is None else diagnosis.fired
    if warnings or fired:
        state, headline = "fault", "Check this set before you use it"
    elif diagnosis is None or not diagnosis.ok:
        state, headline = "unknown", "Not checked"
    else:
        state, headline = "good", "No fault found"
    items = [element("li", line) for line in warnings]
    items += [_finding_with_consequences(one, fired) for one in fired if not one.cause]
    lines = [element("p", _largest_differences(comparison))] if comparison.chain is not None else []
    lines += [element("ul", *items)] if items else []
    if diagnosis is not None:
        details = [*_details(diagnosis), *(_sentence(note) for note in diagnosis.notes)]
        lines.append(element("ul", *(element("li", line) for line in details), class_="muted"))
    else:
        missing = "The checks need the chain: steinstream report KEPT --chain CHAIN."
        lines.append(element("p", missing, class_="muted"))
    return element("div", element("h2", headline), *lines, class_=f"verdict {state}")


def _details(diagnosis: Diagnosis) -> list[str]:
    """Return what was compared, which faults would have been found, and what was not checked."""
    lines = []
    if len(diagnosis.skipped) < len(diagnosis.findings):
        effective = diagnosis.effective
        known = "" if math.isnan(effective) else f" (effective sample size {count(round(effective))})"
        lines.append(
            f"Compared: {count(diagnosis.kept)} kept draws with {count(diagnosis.stream)} of the chain{known}."
        )
    main = [one for one in diagnosis.passed if one.name in _MAIN and not one.detects.startswith("no differences")]
    found = [f"{one.name} ({one.detects.rstrip(',')})" for one in main]
    lines += [f"Checks that did not fire would have found: {', '.join(found)}."] if found else []
    reasons: dict[str, list[str]] = {}
    for one in diagnosis.skipped:
        reasons.setdefault(one.skipped, []).append(one.name)
    skipped = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return [*lines, f"Not checked: {skipped}."] if skipped else lines


def _finding_with_consequences(finding: Finding, fired: Sequence[Finding]) -> Markup:
    """Return a finding with its advice, and the findings that it probably explains."""
    explained = [_sentence(one.says) for one in fired if one.cause == finding.name]
    also = [element("span", f"Probably a consequence: {' '.join(explained)}")] if explained else []
    return element("li", _sentence(finding.says), element("span", _sentence(finding.advice)), *also)


def _largest_differences(comparison: ChainComparison) -> str:
    """Describe the largest differences of means, standard deviations and quantiles from the chain."""
    differences = {name: float(np.nanmax(np.abs(d), initial=0.0)) for name, d in comparison.summary.difference.items()}
    quantiles = max(value for name, value in differences.items() if name.endswith("%"))
    return (
        f"Compared with {count(len(comparison.draws))} draws of the chain after burn-in, means differ by at most "
        f"{differences['mean']:.2f} sd, sds by at most {differences['sd']:.0%}, and 5%, 50% and 95% quantiles by at "
        f"most {quantiles:.2f} sd."
    )


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")

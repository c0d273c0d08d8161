"""Settings of the thinners that the experiments of the paper share."""

from __future__ import annotations

from typing import Any

import steinstream as ss

KERNELS = {"imq": ss.IMQ(), "rbf": ss.RBF()}
GROWTHS = {"every draw": "none", "KSDT-LINEAR": "linear", "KSDT-SQRT": "sqrt"}
RULES = ("paper", "monotone")
#: Growth schedules and budgets as formulas, for summaries and figures.
GROWTH_FORMULAS = {
    "linear": "$t / 2$",
    **{f"power:{alpha}": rf"$\sqrt{{t^{{{alpha}}} \log t}} / 2$" for alpha in (1.2, 1.5, 1.8)},
    "sqrt": r"$\sqrt{t \log t}$",
}
BUDGET_FORMULAS = {"constant:0.0": "0", "decaying": r"$\log t / f(t)^2$", "constant:0.0001": "0.0001"}
MEAN_SQUARE = r"\mathrm{E}\thinspace\mathrm{KSD}^2"  # without dollars


def paper_thinner(dim: int, **settings: Any) -> ss.Thinner:
    """Return a thinner with the settings of the paper, except for those given.

    Returns
    -------
    Thinner
        A thinner that has received no draws.

    Examples
    --------
    >>> paper_thinner(2, growth="linear").config.rule
    'paper'
    """
    return ss.Thinner(dim, **{**ss.PAPER, **settings})

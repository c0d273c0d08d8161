"""Settings of the thinners that the experiments of the paper share."""

from __future__ import annotations

from typing import Any

import steinstream as ss

KERNELS = {"imq": ss.IMQ(), "rbf": ss.RBF()}
GROWTHS = {"every draw": "none", "KSDT-LINEAR": "linear", "KSDT-SQRT": "sqrt"}
RULES = ("paper", "monotone")


def paper_thinner(dim: int, **settings: Any) -> ss.Thinner:
    """Return a thinner with the settings of the paper, except for those given.

    >>> paper_thinner(2, growth="linear").config.rule
    'paper'
    """
    return ss.Thinner(dim, **{**ss.PAPER, **settings})

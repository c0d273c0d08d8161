"""Thin an xarray DataTree, which is what ArviZ 1.x, PyMC and nutpie give.

    import steinstream.integrations.xarray          # or ss.integrations.xarray: registers dt.stein
    small = dt.stein.thin(size=200)                 # a DataTree
    dt.stein.ksd()

The score is ``sample_stats/gradient``, as nutpie writes it, and the draws are the unconstrained ones that go with it;
other places can be named. A tree that was opened from a file is read in blocks, and only the kept draws of the
variables are read at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from steinstream.api import ChainSource, thin_source
from steinstream.discrepancy import ksd as ksd_of
from steinstream.io.arviz import chain_of_datatree, kept_of_datatree
from steinstream.io.base import DRAWS, SCORES
from steinstream.io.errors import need
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner.config import ThinConfig
from steinstream.validation import empty_block

_xarray: Any = need("xarray", "netcdf")

#: Groups that are about the model and not about the draws: they go along as they are.
CARRIED = ("observed_data", "constant_data", "predictions_constant_data")


def kept(
    tree: Any,
    size: int | None = None,
    *,
    draws: str = DRAWS,
    scores: str = SCORES,
    negate_scores: bool = False,
    convergence: bool = False,
    **settings: Any,
) -> Kept:
    """The draws of a tree that matter, with all of its posterior's variables.

    ``draws`` and ``scores`` name variables as GROUP/NAME, or whole groups, where they are not in their usual places.
    ``settings`` are those of :func:`steinstream.thin`. ``settings["source"]`` of the result says how long the chains
    were and how often they diverged; with ``convergence`` also R-hat and ESS of the worst parameter, by ArviZ: of the
    chains, for those of a thinned set mean nothing.
    """
    chain = chain_of_datatree(tree, draws_name=draws, scores_name=scores, negate=negate_scores)
    result = thin_source(ChainSource(chain), ThinConfig.of(None, size=size, **settings)).kept
    return replace(
        result,
        names=chain.names,
        variables=chain.variables(result.ids),
        settings={**result.settings, "source": source_of(tree, convergence)},
    )


def thin(tree: Any, size: int | None = None, *, stacked: bool = True, **settings: Any) -> Any:
    """What :func:`kept` keeps as a DataTree, with the observed and constant data of the given one.

    One dimension ``sample``, with coordinates ``chain`` and ``draw``; or without ``stacked`` a single chain.
    """
    return with_data_of(tree, kept(tree, size, **settings).to_datatree(stacked=stacked))


def ksd(
    tree: Any,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str | None = None,
    draws: str = DRAWS,
    scores: str = SCORES,
    negate_scores: bool = False,
) -> float:
    """KSD of all draws of a tree, with their weights if they have any: n^2 / 2 evaluations, O(n d) memory.

    For a thinned tree kernel and coordinates are those it was thinned with, so that the result is its ``ksd``
    attribute; otherwise coordinates are estimated from the draws, as :func:`steinstream.thin` does.
    """
    weights = None
    if "settings" in tree.attrs and draws == DRAWS and scores == SCORES:
        known = kept_of_datatree(tree)
        kernel, preconditioner, weights = kernel or known.kernel, preconditioner or known.preconditioner, known.weights
    chain = chain_of_datatree(tree, draws_name=draws, scores_name=scores, negate=negate_scores)
    whole = empty_block(chain.dim)
    for block in chain.blocks(chain.length or 1):
        whole = whole.append(block)
    if not isinstance(preconditioner, Preconditioner):
        preconditioner = Preconditioner.estimate(preconditioner or "auto", whole.draws)
    return ksd_of(whole.draws, whole.scores, kernel=kernel, preconditioner=preconditioner, weights=weights)


def with_data_of(source: Any, tree: Any) -> Any:
    """The tree, with the observed and constant data of another."""
    return tree.assign({name: source[name].copy() for name in CARRIED if name in source.children})


def source_of(tree: Any, convergence: bool) -> dict[str, Any]:
    """What is known of the chains themselves."""
    posterior = tree["posterior"].dataset if "posterior" in tree.children else None
    stats = tree["sample_stats"].dataset if "sample_stats" in tree.children else {}
    said: dict[str, Any] = {}
    if posterior is not None and {"chain", "draw"} <= set(posterior.dims):
        said["draws"] = [posterior.sizes["draw"]] * posterior.sizes["chain"]
    if "diverging" in stats:
        said["divergences"] = int(stats["diverging"].sum())
    if convergence and posterior is not None:
        said |= _health(posterior)
    return said


def _health(posterior: Any) -> dict[str, Any]:
    arviz = need("arviz_stats", "arviz")
    said: dict[str, Any] = {}
    for what, values, pick in (("rhat", arviz.rhat(posterior), np.nanmax), ("ess", arviz.ess(posterior), np.nanmin)):
        each = {str(name): float(pick(array)) for name, array in values.data_vars.items()}
        worst = pick(list(each.values()))
        said |= {what: float(worst), f"{what}_of": next(name for name, value in each.items() if value == worst)}
    return said


@_xarray.register_datatree_accessor("stein")
class Stein:
    """``dt.stein``: thinning and KSD of a DataTree."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def thin(self, size: int | None = None, **settings: Any) -> Any:
        """See :func:`thin`."""
        return thin(self._tree, size, **settings)

    def kept(self, size: int | None = None, **settings: Any) -> Kept:
        """See :func:`kept`."""
        return kept(self._tree, size, **settings)

    def ksd(self, **settings: Any) -> float:
        """See :func:`ksd`."""
        return ksd(self._tree, **settings)

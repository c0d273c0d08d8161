"""Thin an xarray DataTree, the result of ArviZ 1.x, PyMC and nutpie.

Importing this module registers the accessor ``tree.stein``::

    import steinstream.integrations.xarray
    small = tree.stein.thin(size=200)               # a DataTree
    tree.stein.ksd()

The scores are ``sample_stats/gradient``, which nutpie writes, and the draws are the unconstrained draws next to it;
other variables can be named. A tree that was opened from a file is read in blocks, and other variables are read for the
kept draws only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from steinstream.api import ChainSource, thin_source
from steinstream.discrepancy import ksd as ksd_of
from steinstream.integrations._common import need
from steinstream.io.arviz import chain_of_datatree, kept_of_datatree
from steinstream.io.base import DRAWS, SCORES
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner.config import ThinConfig
from steinstream.validation import empty_block

_xarray: Any = need("xarray", "netcdf")

#: Groups that describe the model rather than the draws; they are copied.
MODEL_GROUPS = ("observed_data", "constant_data", "predictions_constant_data")


def thin(
    tree: Any,
    size: int | None = None,
    *,
    draws: str = DRAWS,
    scores: str = SCORES,
    negate_scores: bool = False,
    convergence: bool = False,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Thin the draws of a tree.

    Parameters
    ----------
    tree : xarray.DataTree
        Tree with unconstrained draws and their scores.
    size : int, optional
        Number of draws to keep: see `ThinConfig`.
    draws, scores : str, optional
        Variables as GROUP/NAME, or whole groups. Default: ``sample_stats/unconstrained_draw`` or the group
        ``unconstrained_posterior``, and ``sample_stats/gradient``.
    negate_scores : bool, default False
        Change the sign of the scores, for tools that store minus the gradient.
    convergence : bool, default False
        Compute R-hat and ESS of the chains with ArviZ; those of a thinned set have no meaning.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the variables of the posterior, ``settings["source"]`` the length of the
        chains, the number of divergences and, with ``convergence``, R-hat and ESS of the worst parameter.

    Raises
    ------
    InputError
        If the tree has no scores, or all of them are NaN.

    """
    if size is not None:
        settings["size"] = size
    chain = chain_of_datatree(tree, draws_name=draws, scores_name=scores, negate=negate_scores)
    result = thin_source(ChainSource(chain), ThinConfig.of(config, **settings)).kept
    return replace(
        result,
        names=chain.names,
        variables=chain.variables(result.ids),
        settings={**result.settings, "source": source_of(tree, convergence)},
    )


def ksd(
    tree: Any,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str | None = None,
    draws: str = DRAWS,
    scores: str = SCORES,
    negate_scores: bool = False,
) -> float:
    """Compute the KSD of all draws of a tree, with their weights if there are any.

    Parameters
    ----------
    tree : xarray.DataTree
        Tree with unconstrained draws and their scores.
    kernel : Kernel, optional
        Base kernel. Default: that of a thinned tree, otherwise `IMQ`.
    preconditioner : Preconditioner or str, optional
        Preconditioner. Default: that of a thinned tree, otherwise an estimate from the draws, as in
        :func:`steinstream.thin`.
    draws, scores, negate_scores
        See `thin`.

    Returns
    -------
    float
        KSD, computed with n^2 / 2 kernel evaluations and O(n d) memory.

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


def source_of(tree: Any, convergence: bool) -> dict[str, Any]:
    """Return length, divergences and, with ``convergence``, R-hat and ESS of the chains of a tree."""
    posterior = tree["posterior"].dataset if "posterior" in tree.children else None
    stats = tree["sample_stats"].dataset if "sample_stats" in tree.children else {}
    found: dict[str, Any] = {}
    if posterior is not None and {"chain", "draw"} <= set(posterior.dims):
        found["draws"] = [posterior.sizes["draw"]] * posterior.sizes["chain"]
    if "diverging" in stats:
        found["divergences"] = int(stats["diverging"].sum())
    if convergence and posterior is not None:
        found |= _worst_convergence(posterior)
    return found


def _worst_convergence(posterior: Any) -> dict[str, Any]:
    """Return the largest R-hat and the smallest ESS, and the variables that have them."""
    arviz = need("arviz_stats", "arviz")
    found: dict[str, Any] = {}
    for name, values, pick in (("rhat", arviz.rhat(posterior), np.nanmax), ("ess", arviz.ess(posterior), np.nanmin)):
        each = {str(variable): float(pick(array)) for variable, array in values.data_vars.items()}
        worst = pick(list(each.values()))
        found |= {name: float(worst), f"{name}_of": next(key for key, value in each.items() if value == worst)}
    return found


@_xarray.register_datatree_accessor("stein")
class Stein:
    """Accessor ``tree.stein``: thinning and KSD of a DataTree."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def thin(self, size: int | None = None, *, stacked: bool = True, **settings: Any) -> Any:
        """Return the kept draws as a DataTree, with the observed and constant data of this one.

        Parameters
        ----------
        size : int, optional
            Number of draws to keep.
        stacked : bool, default True
            Use one dimension ``sample`` with coordinates ``chain`` and ``draw``; otherwise a single chain.
        **settings
            Further arguments of `steinstream.integrations.xarray.thin`.

        Returns
        -------
        xarray.DataTree
            The thinned tree. Its attributes hold KSD and settings.

        """
        small = thin(self._tree, size, **settings).to_datatree(stacked=stacked)
        model = {name: self._tree[name].copy() for name in MODEL_GROUPS if name in self._tree.children}
        return small.assign(model)

    def kept(self, size: int | None = None, **settings: Any) -> Kept:
        """Return the kept draws: see `steinstream.integrations.xarray.thin`."""
        return thin(self._tree, size, **settings)

    def ksd(self, **settings: Any) -> float:
        """Return the KSD of all draws: see `steinstream.integrations.xarray.ksd`."""
        return ksd(self._tree, **settings)

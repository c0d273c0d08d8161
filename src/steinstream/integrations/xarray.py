"""Thin an xarray DataTree, the result of ArviZ 1.x, PyMC and nutpie, or an InferenceData of ArviZ 0.x.

Importing this module registers the accessor ``tree.stein``::

    import steinstream.integrations.xarray
    small = tree.stein.thin(size=200)               # a DataTree
    tree.stein.ksd()

The scores are ``sample_stats/gradient``, which nutpie writes, and the draws are the unconstrained draws next to it;
other variables can be named. Without a gradient, the variables of the posterior are thinned without scores. A tree that
was opened from a file is read in blocks, and other variables are read for the kept draws only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from steinstream.api import ChainSource, thin_source
from steinstream.discrepancy.ksd import ksd as ksd_of
from steinstream.errors import InputError
from steinstream.integrations._common import log_missing_scores, need, with_source
from steinstream.io._arviz_layout import diverging_draws, groups_of_tree
from steinstream.io.base import DRAWS, SCORES
from steinstream.io.datatree import DataTreeAdapter, chain_of_datatree, kept_of_datatree
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.thinner.config import ThinConfig
from steinstream.validation import empty_block
from steinstream.watched_source import WatchedSource

_xarray: Any = need("xarray", "netcdf")

_REMEDY = (
    "sample with nutpie.sample(..., store_gradient=True, store_unconstrained=True), or use "
    "steinstream.integrations.pymc.with_scores(model, tree)."
)


def thin(
    tree: Any,
    size: int | None = None,
    *,
    draws: str = DRAWS,
    scores: str = SCORES,
    negate_scores: bool = False,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Thin the draws of a tree.

    Parameters
    ----------
    tree : xarray.DataTree or arviz.InferenceData
        Tree with unconstrained draws and their scores, or with draws alone.
    size : int, optional
        Number of draws to keep: see `ThinConfig`.
    draws : str, optional
        Variables as GROUP/NAME, or a whole group. Default: ``sample_stats/unconstrained_draw`` or the group
        ``unconstrained_posterior``.
    scores : str, optional
        The same for the scores. Default: ``sample_stats/gradient``.
    negate_scores : bool, default False
        Change the sign of the scores, for tools that store minus the gradient.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the variables of the posterior, ``groups`` the other groups at the kept
        draws with the observed and constant data, ``settings["source"]`` the length of the chains, the number of
        divergences, and R-hat and ESS of the worst parameter; those of a thinned set have no meaning.

    Raises
    ------
    InputError
        If the tree has no draws, or the named variables do not exist.
    """
    if size is not None:
        settings["size"] = size
    tree = as_datatree(tree)
    chain = chain_of_datatree(tree, draws_name=draws, scores_name=scores, negate=negate_scores)
    source = WatchedSource(ChainSource(chain))
    result = thin_source(source, ThinConfig.of(config, **settings)).kept
    if result.scores is None:
        log_missing_scores(f"To add scores, {_REMEDY}")
    result = replace(result, names=chain.names, variables=chain.variables(result.ids), groups=chain.groups(result.ids))
    return with_divergences(with_source(result, "xarray", source.convergence), tree)


def thin_tree(tree: Any, size: int | None = None, *, stacked: bool | None = None, **settings: Any) -> Any:
    """Thin the draws of a tree, and return a tree with all of its groups at the kept draws.

    Parameters
    ----------
    tree : xarray.DataTree or arviz.InferenceData
        See `thin`.
    size : int, optional
        Number of draws to keep.
    stacked : bool, optional
        Use one dimension ``sample`` with coordinates ``chain`` and ``draw``; otherwise a single chain, with dimensions
        ``chain`` and ``draw``. Default: True for a DataTree, False for an InferenceData.
    **settings
        Further arguments of `thin`.

    Returns
    -------
    xarray.DataTree or arviz.InferenceData
        The thinned tree, of the same type: see `select`.
    """
    return select(tree, thin(tree, size, **settings), stacked=stacked)


def select(tree: Any, kept: Kept, *, stacked: bool | None = None) -> Any:
    """Return the kept draws as a tree, with the other groups of the tree from which they were kept.

    Parameters
    ----------
    tree : xarray.DataTree or arviz.InferenceData
        The tree with all draws.
    kept : Kept
        Draws that were kept from it.
    stacked : bool, optional
        See `thin_tree`.

    Returns
    -------
    xarray.DataTree or arviz.InferenceData
        ``posterior`` and ``sample_stats`` of the kept draws; ``log_likelihood``, ``log_prior``,
        ``posterior_predictive`` and ``predictions`` at the kept draws; and the observed and constant data. The
        attributes hold KSD and settings.
    """
    whole = as_datatree(tree)
    is_tree = whole is tree
    kept = replace(kept, groups=groups_of_tree(DataTreeAdapter(whole), kept.ids, Path("the DataTree")))
    small = kept.to_datatree(stacked=is_tree if stacked is None else stacked)
    if is_tree:
        return small
    return type(tree)(attrs=small.attrs, **{name: small[name].to_dataset() for name in small.children})


def as_datatree(tree: Any) -> Any:
    """Return a DataTree as it is, and an InferenceData of ArviZ 0.x as a DataTree."""
    if isinstance(tree, _xarray.DataTree):
        return tree
    groups = getattr(tree, "groups", None)
    if callable(groups):
        whole = _xarray.DataTree.from_dict({name.strip("/"): tree[name.strip("/")] for name in groups()})
        whole.attrs.update(getattr(tree, "attrs", {}))
        return whole
    if isinstance(tree, _xarray.Dataset):
        return _xarray.DataTree.from_dict({"posterior": tree})
    raise InputError(
        f"Expected an xarray.DataTree or an arviz.InferenceData, got {type(tree).__name__}.",
        "Open a file with xarray.open_datatree or arviz.from_netcdf.",
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
    tree : xarray.DataTree or arviz.InferenceData
        Tree with unconstrained draws and their scores.
    kernel : Kernel, optional
        Base kernel. Default: that of a thinned tree, otherwise `IMQ`.
    preconditioner : Preconditioner or str, optional
        Preconditioner. Default: that of a thinned tree, otherwise an estimate from the draws, as in
        :func:`steinstream.thin`.
    draws : str, optional
        Variables of the draws as GROUP/NAME, or a whole group. Default: as in `thin`.
    scores : str, optional
        The same for the scores. Default: ``sample_stats/gradient``.
    negate_scores : bool, default False
        Change the sign of the scores, for tools that store minus the gradient.

    Returns
    -------
    float
        KSD, computed with :math:`n^2 / 2` kernel evaluations and :math:`O(n d)` memory.

    Raises
    ------
    InputError
        If the tree has no scores.
    """
    tree, weights = as_datatree(tree), None
    if "settings" in tree.attrs and draws == DRAWS and scores == SCORES:
        known = kept_of_datatree(tree)
        kernel, preconditioner, weights = kernel or known.kernel, preconditioner or known.preconditioner, known.weights
    chain = chain_of_datatree(tree, draws_name=draws, scores_name=scores, negate=negate_scores)
    if not chain.has_scores:
        raise InputError("The tree has no scores, and KSD needs them.", f"To add scores, {_REMEDY}")
    whole = empty_block(chain.dim)
    for block in chain.blocks(chain.length or 1):
        whole = whole.append(block)
    if not isinstance(preconditioner, Preconditioner):
        preconditioner = Preconditioner.estimate(preconditioner or "auto", whole.draws)
    return ksd_of(whole.draws, whole.scores, kernel=kernel, preconditioner=preconditioner, weights=weights)


def with_divergences(kept: Kept, tree: Any) -> Kept:
    """Add the number of divergences of a tree to the source of its kept draws."""
    found = diverging_draws(DataTreeAdapter(tree))
    if found is None:
        return kept
    source = {**kept.settings["source"], "divergences": sum(int(flags.sum()) for _, flags in found)}
    return replace(kept, settings={**kept.settings, "source": source})


@_xarray.register_datatree_accessor("stein")
class Stein:
    """Accessor ``tree.stein``: thinning and KSD of a DataTree.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def thin(self, size: int | None = None, *, stacked: bool = True, **settings: Any) -> Any:
        """Return the kept draws as a DataTree, with the other groups of this one at the kept draws.

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
            The thinned tree: see `steinstream.integrations.xarray.select`.
        """
        return thin_tree(self._tree, size, stacked=stacked, **settings)

    def select(self, kept: Kept, *, stacked: bool = True) -> Any:
        """Return kept draws as a DataTree: see `steinstream.integrations.xarray.select`.

        Parameters
        ----------
        kept : Kept
            Kept draws of the tree.
        stacked : bool, default True
            Use one dimension ``sample`` with coordinates ``chain`` and ``draw``; otherwise a single chain.

        Returns
        -------
        xarray.DataTree
            The tree at the kept draws.
        """
        return select(self._tree, kept, stacked=stacked)

    def kept(self, size: int | None = None, **settings: Any) -> Kept:
        """Return the kept draws: see `steinstream.integrations.xarray.thin`.

        Parameters
        ----------
        size : int, optional
            Number of draws to keep.
        **settings
            Further arguments of `steinstream.integrations.xarray.thin`.

        Returns
        -------
        Kept
            The kept draws.
        """
        return thin(self._tree, size, **settings)

    def ksd(self, **settings: Any) -> float:
        """Return the KSD of all draws: see `steinstream.integrations.xarray.ksd`.

        Parameters
        ----------
        **settings
            Further arguments of `steinstream.integrations.xarray.ksd`.

        Returns
        -------
        float
            The KSD.
        """
        return ksd(self._tree, **settings)

"""Bayesian neural networks in a few dimensions: models, data, training, a subspace of the weights, its posterior.

A network's weights are one long vector w. In a subspace w = w_0 + z_1 v_1 + ... + z_k v_k only z is random, so that a
chain can be run and thinned in k dimensions, and every kept z is a whole network to predict with. Needs PyTorch, which
is imported when one of these names is first used.

P. Izmailov et al., "Subspace inference for Bayesian deep learning", UAI 2020.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steinstream.networks.data import Data as Data
    from steinstream.networks.data_cifar10 import cifar10 as cifar10
    from steinstream.networks.data_imdb import imdb as imdb
    from steinstream.networks.flat import FlatNetwork as FlatNetwork
    from steinstream.networks.models import MLP as MLP
    from steinstream.networks.models import ConvolutionLSTM as ConvolutionLSTM
    from steinstream.networks.models import FilterResponseNorm as FilterResponseNorm
    from steinstream.networks.models import ResNet20 as ResNet20
    from steinstream.networks.posterior import SubspacePosterior as SubspacePosterior
    from steinstream.networks.recipe import Recipe as Recipe
    from steinstream.networks.subspace import Subspace as Subspace
    from steinstream.networks.training import train_curve as train_curve
    from steinstream.networks.training import train_network as train_network
    from steinstream.networks.words import WordVectors as WordVectors

_HOMES = {
    "ConvolutionLSTM": "models",
    "Data": "data",
    "FilterResponseNorm": "models",
    "FlatNetwork": "flat",
    "MLP": "models",
    "Recipe": "recipe",
    "ResNet20": "models",
    "Subspace": "subspace",
    "SubspacePosterior": "posterior",
    "WordVectors": "words",
    "cifar10": "data_cifar10",
    "imdb": "data_imdb",
    "train_curve": "training",
    "train_network": "training",
}
_WITHOUT_TORCH = ("data", "data_cifar10", "data_imdb", "recipe", "words")

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOMES[name] not in _WITHOUT_TORCH:
        from steinstream.integrations._live import need

        need("torch", "torch")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

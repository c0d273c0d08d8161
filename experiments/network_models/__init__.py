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
    from experiments.network_models.data import Data as Data
    from experiments.network_models.data_cifar10 import cifar10 as cifar10
    from experiments.network_models.data_imdb import imdb as imdb
    from experiments.network_models.models import MLP as MLP
    from experiments.network_models.models import ConvolutionLSTM as ConvolutionLSTM
    from experiments.network_models.models import FilterResponseNorm as FilterResponseNorm
    from experiments.network_models.models import ResNet20 as ResNet20
    from experiments.network_models.recipe import Recipe as Recipe
    from experiments.network_models.training import train_curve as train_curve
    from experiments.network_models.training import train_network as train_network
    from experiments.network_models.words import WordVectors as WordVectors

_HOMES = {
    "ConvolutionLSTM": "models",
    "Data": "data",
    "FilterResponseNorm": "models",
    "MLP": "models",
    "Recipe": "recipe",
    "ResNet20": "models",
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
        from steinstream.integrations._common import need

        need("torch", "torch")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

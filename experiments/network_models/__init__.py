"""Networks, data sets and training for the experiments with Bayesian neural networks.

The subspace of weights and its posterior are in `steinstream.integrations.torch`. Names that need PyTorch import it on
first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from steinstream.io.errors import need

if TYPE_CHECKING:
    from experiments.network_models.cifar10 import load_cifar10 as load_cifar10
    from experiments.network_models.datasets import Dataset as Dataset
    from experiments.network_models.imdb import load_imdb as load_imdb
    from experiments.network_models.models import MLP as MLP
    from experiments.network_models.models import ConvolutionLSTM as ConvolutionLSTM
    from experiments.network_models.models import FilterResponseNorm as FilterResponseNorm
    from experiments.network_models.models import ResNet20 as ResNet20
    from experiments.network_models.models import TextCNN as TextCNN
    from experiments.network_models.text import WordVectors as WordVectors
    from experiments.network_models.training import train_curve as train_curve
    from experiments.network_models.training import train_network as train_network
    from experiments.network_models.training_config import TrainingConfig as TrainingConfig

_MODULES = {
    "ConvolutionLSTM": "models",
    "Dataset": "datasets",
    "FilterResponseNorm": "models",
    "MLP": "models",
    "ResNet20": "models",
    "TextCNN": "models",
    "TrainingConfig": "training_config",
    "WordVectors": "text",
    "load_cifar10": "cifar10",
    "load_imdb": "imdb",
    "train_curve": "training",
    "train_network": "training",
}
_WITH_TORCH = ("models", "training")

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] in _WITH_TORCH:
        need("torch", "torch")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

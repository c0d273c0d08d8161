"""Sizes of the experiments with networks: quick (a minute), medium (two cores) and full (a GPU).

The full scale is that of the paper: all data, full images, 20 000 steps of ground truth, five chains of 2000 steps. The
paper does not state the variance of the prior (at full scale, that of Izmailov et al. 2021 is used) and the settings of
the training. The step of SGLD is computed once, for the ground truth: see `sgld`.

With two directions and thousands of data, the posterior in the plane is so narrow that each network predicts the same
as the average. The posterior is therefore tempered with T = n / 50, as in Izmailov et al. 2020: the data count as 50.
The paper does not state whether it tempers. The public code of its authors samples another posterior, which is the
alternative here (``authors=True``).

The quick and medium scales replace the network by an interpolant: see `experiments.network_models.interpolation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.network_models.training_config import TrainingConfig


@dataclass(frozen=True)
class NetworkScale:
    """Sizes and settings of an experiment.

    Parameters
    ----------
    description : str
        Differences from the paper.
    train, test : int or None
        Number of training and test examples; None means all.
    ends : TrainingConfig
        Training of the two networks at the ends of the curve.
    curve : TrainingConfig
        Training of the curve.
    prior_variance : float
        Variance of the prior of every weight.
    minibatch : int
        Size of the minibatches of SGLD.
    moves : int
        Length of the compared chains.
    truth : int
        Length of the chain of the ground truth. The first tenth is discarded as burn-in.
    part : int
        Moves per file, that is, the most that a crash can lose.
    step : float or None
        Step of SGLD: variance of its noise in coordinates in which the mode has unit width. None: see `stages`.
    temperature : float
        The log posterior is divided by this number.
    chains : int
        Number of compared chains.
    candidates : int
        Number m of SPMCMC.
    width : int
        Filters of the first layers of the ResNet.
    halvings : int
        Number of times that the sides of the images are halved.
    length : int
        Words per review.
    words : int
        Size of the vocabulary if no word vectors are given.
    filters : int
        Filters of the convolution before the LSTM.
    cells : int
        Cells of the LSTM.
    nodes : tuple of two int, optional
        The network is replaced by an interpolant with these numbers of nodes, see
        `experiments.network_models.interpolation`. Default: the network itself.
    pilot : int
        Number of training examples of the pilot interpolant that locates the chains.
    authors : bool
        Sample the posterior of the authors' code instead of the tempered posterior, with their SGLD.
    """

    description: str
    train: int | None
    test: int | None
    ends: TrainingConfig
    curve: TrainingConfig
    prior_variance: float
    minibatch: int
    moves: int = 2000
    truth: int = 20_000
    part: int = 50
    step: float | None = None
    temperature: float = 1.0
    chains: int = 5
    candidates: int = 5
    width: int = 16
    halvings: int = 0
    length: int = 100
    words: int = 20_000
    filters: int = 64
    cells: int = 128
    nodes: tuple[int, int] | None = None
    pilot: int = 1000
    authors: bool = False

    def with_moves(self, moves: int | None) -> NetworkScale:
        """Return the scale with another number of moves and a ground truth in proportion; None: no change."""
        if moves is None:
            return self
        part = min(self.part, moves)
        return replace(self, moves=moves, truth=moves * self.truth // self.moves, part=part)

    def of_the_authors(self, **smaller: Any) -> NetworkScale:
        """Return the scale with the posterior and the SGLD of the authors' code, and other sizes."""
        return replace(self, authors=True, minibatch=256, **smaller)


CIFAR10 = {
    "full": NetworkScale(
        "the scale of the paper",
        train=None,
        test=None,
        ends=TrainingConfig(200, 50, rate=0.1, averaged_rate=0.05),
        curve=TrainingConfig(100, 10, rate=0.05, averaged_rate=0.02),
        prior_variance=1 / 5,
        temperature=1_000,
        minibatch=500,
        part=100,
    ),
    "medium": NetworkScale(
        "10 000 training images; 18 epochs instead of 200, the first 14 on images of half the sides",
        train=10_000,
        test=2000,
        ends=TrainingConfig(18, 3, rate=0.1, averaged_rate=0.02, batch=64, coarse=14),
        curve=TrainingConfig(15, 2, rate=0.1, averaged_rate=0.02, batch=64, coarse=12),
        prior_variance=1 / 5,
        temperature=200,
        minibatch=200,
        truth=100_000,
        chains=10,
        part=1000,
        nodes=(11, 9),
    ),
    "quick": NetworkScale(
        "a ResNet-20 of width 4 on 1000 images of 8 x 8 pixels; chains of 200 steps, a ground truth of 2000",
        train=1000,
        test=500,
        ends=TrainingConfig(12, 3, rate=0.1, averaged_rate=0.02, batch=50),
        curve=TrainingConfig(10, 2, rate=0.1, averaged_rate=0.02, batch=50),
        prior_variance=1 / 5,
        temperature=20,
        minibatch=50,
        moves=200,
        truth=2000,
        part=100,
        width=4,
        halvings=2,
        nodes=(9, 9),
    ),
}

IMDB = {
    "full": NetworkScale(
        "the scale of the paper",
        train=None,
        test=None,
        ends=TrainingConfig(50, 10, rate=0.1, averaged_rate=0.05),
        curve=TrainingConfig(30, 5, rate=0.1, averaged_rate=0.05),
        prior_variance=1 / 40,
        temperature=500,
        minibatch=500,
        part=100,
    ),
    "medium": NetworkScale(
        "2000 test reviews; 10 epochs instead of 50; a wider prior",
        train=None,
        test=2000,
        ends=TrainingConfig(10, 3, rate=0.1, averaged_rate=0.05, batch=64),
        curve=TrainingConfig(8, 2, rate=0.1, averaged_rate=0.05, batch=64),
        prior_variance=1 / 5,
        temperature=500,
        minibatch=200,
        truth=100_000,
        chains=10,
        part=1000,
        nodes=(13, 9),
    ),
    "quick": NetworkScale(
        "an LSTM of 8 cells on 1000 reviews of 30 words; chains of 200 steps, a ground truth of 2000",
        train=1000,
        test=500,
        ends=TrainingConfig(20, 4, rate=0.1, averaged_rate=0.05, batch=50),
        curve=TrainingConfig(15, 3, rate=0.1, averaged_rate=0.05, batch=50),
        prior_variance=1 / 5,
        temperature=50,
        minibatch=50,
        moves=200,
        truth=2000,
        part=100,
        length=30,
        words=500,
        filters=16,
        cells=8,
        nodes=(9, 9),
    ),
}

#: Smaller sizes for the wide posterior of the authors, which needs many nodes.
_CIFAR10_SMALLER: dict[str, Any] = {
    "description": "half the width, 5000 training and 1000 test images of 16 x 16 pixels; 20 epochs instead of 200",
    "train": 5000,
    "test": 1000,
    "width": 8,
    "halvings": 1,
    "ends": TrainingConfig(20, 5, rate=0.1, averaged_rate=0.02, batch=64),
    "curve": TrainingConfig(20, 4, rate=0.1, averaged_rate=0.02, batch=64),
    "nodes": (21, 21),
}
_IMDB_SMALLER: dict[str, Any] = {
    "description": "5000 training and 1000 test reviews, 50 filters; 10 epochs instead of 50; a wider prior",
    "train": 5000,
    "test": 1000,
    "filters": 50,
    "nodes": (21, 21),
}
_QUICK: dict[str, Any] = {"nodes": (17, 17)}

CIFAR10_AUTHORS = {
    "full": CIFAR10["full"].of_the_authors(),
    "medium": CIFAR10["medium"].of_the_authors(**_CIFAR10_SMALLER),
    "quick": CIFAR10["quick"].of_the_authors(**_QUICK),
}
IMDB_AUTHORS = {
    "full": IMDB["full"].of_the_authors(filters=100),
    "medium": IMDB["medium"].of_the_authors(**_IMDB_SMALLER),
    "quick": IMDB["quick"].of_the_authors(**_QUICK),
}

"""Sizes of the experiments with networks: quick (a minute), medium (two cores, an hour) and full (a GPU).

The full scale is that of the paper: all data, full images, 20 000 steps of ground truth, five chains of 2000 steps. The
paper does not state the variance of the prior (at full scale, that of Izmailov et al. 2021 is used) and the settings of
the training. The step of SGLD is computed once, for the ground truth: see `stages`.

With two directions and thousands of data, the posterior in the plane is so narrow that each network predicts the same
as the average (on IMDB at the medium scale, single networks agree with the mean on 99.6 to 100 % of the inputs). The
posterior is therefore tempered with T = n / 50, as in Izmailov et al. 2020: the data count as 50. The paper does not
state whether it tempers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    stride : int
        Every ``stride``-th network of the ground truth is used for predictions.
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
    stride: int = 1
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

    def with_moves(self, moves: int | None) -> NetworkScale:
        """Return the scale with another number of moves and a ground truth in proportion; None: no change."""
        if moves is None:
            return self
        part = min(self.part, moves)
        return replace(self, moves=moves, truth=moves * self.truth // self.moves, part=part)


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
    # Time on one core: a forward pass of a ResNet-20 of width 8 takes 0.13 ms per image of 16 x 16 pixels (width 16:
    # 0.28 ms; 32 x 32 pixels: 1.2 ms), forward and backward 0.48 ms. Total in core seconds: two networks (2 x 30 epochs
    # x 10 000 images) 400; curve and mode 400 (on one core); chains (5 x 2000 x (2 scores of 200 images + 500
    # predictions)) 2600; ground truth (20 000 scores of 200 images + 2250 x 500 predictions) 2100; thinning 300. This
    # takes 55 minutes on two cores.
    "medium": NetworkScale(
        "a ResNet-20 of half the width, 10 000 training and 500 test images, downsampled to 16 x 16 pixels; 30 epochs "
        "instead of 200; predictions of every eighth network of the ground truth",
        train=10_000,
        test=500,
        ends=TrainingConfig(30, 8, rate=0.1, averaged_rate=0.02, batch=64),
        curve=TrainingConfig(30, 6, rate=0.1, averaged_rate=0.02, batch=64),
        prior_variance=1 / 5,
        temperature=200,
        minibatch=200,
        stride=8,
        width=8,
        halvings=1,
    ),
    "quick": NetworkScale(
        "a ResNet-20 of width 4 on 1000 images of 8 x 8 pixels; chains of 200 steps, a ground truth of 1000",
        train=1000,
        test=200,
        ends=TrainingConfig(12, 3, rate=0.1, averaged_rate=0.02, batch=50),
        curve=TrainingConfig(10, 2, rate=0.1, averaged_rate=0.02, batch=50),
        prior_variance=1 / 5,
        temperature=20,
        minibatch=50,
        moves=200,
        truth=1000,
        stride=4,
        width=4,
        halvings=2,
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
    # Time on one core: a forward pass takes 0.13 ms per review of 100 words, forward and backward 0.32 ms. Total in
    # core seconds: two networks (2 x 30 epochs x 10 000 reviews) 220; curve and mode 250 (on one core); chains (5 x
    # 2000 x (2 scores of 200 reviews + 1000 predictions)) 2600; ground truth (20 000 scores of 200 reviews + 2250 x
    # 1000 predictions) 1600; thinning 300. This takes 45 minutes on two cores.
    "medium": NetworkScale(
        "64 LSTM cells instead of 128, 10 000 training and 1000 test reviews; 30 epochs; predictions of every eighth "
        "network of the ground truth; a wider prior because there are fewer data",
        train=10_000,
        test=1000,
        ends=TrainingConfig(30, 10, rate=0.1, averaged_rate=0.05, batch=64),
        curve=TrainingConfig(20, 5, rate=0.1, averaged_rate=0.05, batch=64),
        prior_variance=1 / 5,
        temperature=200,
        minibatch=200,
        stride=8,
        cells=64,
    ),
    "quick": NetworkScale(
        "an LSTM of 8 cells on 1000 reviews of 30 words; chains of 200 steps, a ground truth of 1000",
        train=1000,
        test=400,
        ends=TrainingConfig(20, 4, rate=0.1, averaged_rate=0.05, batch=50),
        curve=TrainingConfig(15, 3, rate=0.1, averaged_rate=0.05, batch=50),
        prior_variance=1 / 5,
        temperature=20,
        minibatch=50,
        moves=200,
        truth=1000,
        stride=4,
        length=30,
        words=500,
        filters=16,
        cells=8,
    ),
}

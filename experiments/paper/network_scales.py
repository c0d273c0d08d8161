"""How large the experiments with networks are: for two cores and an hour, for a GPU, for a minute.

The full scale is the paper's: all data, whole images, 20 000 steps of ground truth, five chains of 2000 steps. What the
paper leaves open is chosen here: the prior's variance (that of Izmailov et al. 2021, at full scale) and the recipes of
training. The step of SGLD is chosen once, for the ground truth, by a rule: see `network_stages`.

Two directions against thousands of data: the posterior itself is so narrow in the plane that any one network of it
predicts as all of them together do (on IMDB at two cores' scale singles agree with the mean on 99.6 to 100 % of the
inputs). So it is tempered, as in Izmailov et al. 2020, by n / 50: the data count as fifty. The paper does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.network_models.recipe import Recipe


@dataclass(frozen=True)
class Scale:
    """Everything that is chosen."""

    about: str
    """How it differs from the paper's scale."""
    train: int | None
    test: int | None
    first: Recipe
    """Of the two networks at the ends of the curve."""
    curve: Recipe
    prior_variance: float
    minibatch: int
    moves: int = 2000
    truth: int = 20_000
    """Moves of the ground truth; the first tenth is left out as burn-in."""
    stride: int = 1
    """Of the ground truth's networks every so-manieth predicts."""
    part: int = 50
    """Moves between two files: what may be lost by a crash."""
    step: float | None = None
    """Of SGLD: the variance of its noise, where the mode has unit width; None: by the rule."""
    temperature: float = 1.0
    """The log posterior is divided by it: see above."""
    chains: int = 5
    candidates: int = 5
    width: int = 16
    """Filters of the ResNet's first layers."""
    halvings: int = 0
    """How often the sides of images are halved."""
    length: int = 100
    """Words of a review."""
    words: int = 20_000
    """Known words, where no vectors are given."""
    filters: int = 64
    """Of the convolution before the LSTM."""
    cells: int = 128
    """Of the LSTM."""

    def of(self, moves: int | None) -> Scale:
        """The same with another number of moves, and a ground truth in proportion."""
        if moves is None:
            return self
        part = min(self.part, moves)
        return replace(self, moves=moves, truth=moves * self.truth // self.moves, part=part)


CIFAR10 = {
    "full": Scale(
        "the paper's scale",
        train=None,
        test=None,
        first=Recipe(200, 50, rate=0.1, averaged_rate=0.05),
        curve=Recipe(100, 10, rate=0.05, averaged_rate=0.02),
        prior_variance=1 / 5,
        temperature=1_000,
        minibatch=500,
        part=100,
    ),
    # On one core a pass forward of a ResNet-20 of width 8 takes 0.13 ms an image of 16 x 16 (width 16: 0.28 ms, at
    # 32 x 32: 1.2 ms), forward and backward 0.48 ms. In core seconds: two networks 2 x 30 epochs x 10 000 images =
    # 400, curve and mode 400 (on one core), chains 5 x 2000 x (2 scores of 200 images + 500 predictions) = 2600, ground
    # truth 20 000 scores of 200 images + 2250 x 500 predictions = 2100, thinning 300: on two cores 55 minutes.
    "medium": Scale(
        "a ResNet-20 of half the width, 10 000 images to train on and 500 to test with, halved to 16 x 16 pixels; 30 "
        "epochs instead of 200; of the ground truth's networks every eighth predicts",
        train=10_000,
        test=500,
        first=Recipe(30, 8, rate=0.1, averaged_rate=0.02, batch=64),
        curve=Recipe(30, 6, rate=0.1, averaged_rate=0.02, batch=64),
        prior_variance=1 / 5,
        temperature=200,
        minibatch=200,
        stride=8,
        width=8,
        halvings=1,
    ),
    "quick": Scale(
        "a ResNet-20 of width 4 on 100 images of 8 x 8 pixels; chains of 200 steps, a ground truth of 400",
        train=100,
        test=50,
        first=Recipe(6, 2, rate=0.05, averaged_rate=0.02, batch=50),
        curve=Recipe(4, 1, rate=0.05, averaged_rate=0.02, batch=50),
        prior_variance=1 / 5,
        temperature=2,
        minibatch=25,
        moves=200,
        truth=400,
        stride=4,
        width=4,
        halvings=2,
    ),
}

IMDB = {
    "full": Scale(
        "the paper's scale",
        train=None,
        test=None,
        first=Recipe(50, 10, rate=0.1, averaged_rate=0.05),
        curve=Recipe(30, 5, rate=0.1, averaged_rate=0.05),
        prior_variance=1 / 40,
        temperature=500,
        minibatch=500,
        part=100,
    ),
    # On one core a pass forward takes 0.13 ms a review of 100 words, forward and backward 0.32 ms. In core seconds:
    # two networks 2 x 30 epochs x 10 000 = 220, curve and mode 250 (on one core), chains 5 x 2000 x (2 scores of 200
    # + 1000 predictions) = 2600, ground truth 20 000 scores of 200 + 2250 x 1000 predictions = 1600, thinning 300: on
    # two cores 45 minutes.
    "medium": Scale(
        "64 LSTM cells instead of 128, 10 000 reviews to train on and 1000 to test with; 30 epochs; of the ground "
        "truth's networks every eighth predicts; a wider prior for fewer data",
        train=10_000,
        test=1000,
        first=Recipe(30, 10, rate=0.1, averaged_rate=0.05, batch=64),
        curve=Recipe(20, 5, rate=0.1, averaged_rate=0.05, batch=64),
        prior_variance=1 / 5,
        temperature=200,
        minibatch=200,
        stride=8,
        cells=64,
    ),
    "quick": Scale(
        "an LSTM of 8 cells on 200 reviews of 30 words; chains of 200 steps, a ground truth of 400",
        train=200,
        test=100,
        first=Recipe(6, 2, rate=0.1, averaged_rate=0.05, batch=50),
        curve=Recipe(4, 1, rate=0.1, averaged_rate=0.05, batch=50),
        prior_variance=1 / 5,
        temperature=4,
        minibatch=50,
        moves=200,
        truth=400,
        stride=4,
        length=30,
        words=500,
        filters=16,
        cells=8,
    ),
}

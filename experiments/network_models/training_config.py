"""Settings of the training of a network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingConfig:
    """Length, learning rates and batch size of a training.

    Parameters
    ----------
    epochs : int
        Number of epochs.
    averaged : int
        Number of final epochs whose weights are averaged.
    rate : float, default 0.05
        Learning rate before averaging.
    averaged_rate : float, default 0.02
        Learning rate of the averaged epochs.
    momentum : float, default 0.9
        Momentum.
    batch : int, default 128
        Batch size.
    max_gradient : float, default 5.0
        Longer gradients are scaled to this length.
    coarse : int, default 0
        Number of first epochs that use images of half the sides, which takes a quarter of the time. Only for images.
    """

    epochs: int
    averaged: int
    rate: float = 0.05
    averaged_rate: float = 0.02
    momentum: float = 0.9
    batch: int = 128
    max_gradient: float = 5.0
    coarse: int = 0

    def rate_at(self, time: float) -> float:
        """Return the learning rate at a time in epochs.

        It increases in the first epoch, stays constant until the middle of the epochs before averaging and then
        decreases to ``averaged_rate``.

        Returns
        -------
        float
            Learning rate.

        Examples
        --------
        >>> config = TrainingConfig(epochs=12, averaged=2, rate=0.1, averaged_rate=0.02)
        >>> [round(config.rate_at(time), 3) for time in (0.5, 2, 7.5, 11)]
        [0.051, 0.1, 0.06, 0.02]
        """
        before_averaging = self.epochs - self.averaged
        if time >= before_averaging:
            return self.averaged_rate
        decay = max(0.0, 2.0 * time / before_averaging - 1.0)
        return min(1.0, time + 0.01) * ((1 - decay) * self.rate + decay * self.averaged_rate)

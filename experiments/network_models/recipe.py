"""How a network is trained, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """How to train: ``epochs`` in all, of which the last ``averaged`` at ``averaged_rate`` are averaged."""

    epochs: int
    averaged: int
    rate: float = 0.05
    averaged_rate: float = 0.02
    momentum: float = 0.9
    batch: int = 128
    longest: float = 5.0  # a gradient above this length is shortened to it

    def rate_at(self, time: float) -> float:
        """At a time in epochs."""
        held = self.epochs - self.averaged
        if time >= held:
            return self.averaged_rate
        fall = max(0.0, 2.0 * time / held - 1.0)
        return min(1.0, time + 0.01) * ((1 - fall) * self.rate + fall * self.averaged_rate)

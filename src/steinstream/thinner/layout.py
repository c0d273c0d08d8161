"""Columns of the draws of a stream, and those that the stream term compares: draws, features, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.features import FeatureMap
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig

DRAWS, FEATURES, BOTH = "draws", "features", "both"
STREAM_ON = (DRAWS, FEATURES, BOTH)

#: Name of the density ratio among the variables of a kept set.
RATIO = "ratio"


@dataclass(frozen=True)
class DrawLayout:
    """Columns of a draw: its coordinates, its score, a second score or a density ratio, features.

    With density ratios, the kernel is scaled by them, and they are one more coordinate: see
    :func:`steinstream._engine.compiled_kernel.compile_kernel`.

    The stream term compares *base vectors*: the draws, their features, or both. Base vectors are stored as given
    (draws, sketches of features) and evaluated in the coordinates of the kernel.
    """

    dim: int
    has_scores: bool = True
    has_second_scores: bool = False
    features: FeatureMap | None = None
    stream_on: str = DRAWS
    has_ratios: bool = False

    @property
    def width(self) -> int:
        """Number of columns of a draw as given: draw, score, second score, density ratio, sketch of the features."""
        sketch = 0 if self.features is None else self.features.sketch_width
        return self.dim * (1 + self.has_scores + self.has_second_scores) + self.has_ratios + sketch

    @property
    def base_width(self) -> int:
        """Number of entries of a base vector as given."""
        if self.features is None or self.stream_on == DRAWS:
            return self.dim
        return self.features.sketch_width + (self.dim if self.stream_on == BOTH else 0)

    @property
    def base_dim(self) -> int:
        """Number of coordinates of a base vector in the kernel."""
        if self.features is None or self.compares_draws:
            return self.dim + self.has_ratios
        return self.features.components + (self.dim if self.stream_on == BOTH else 0)

    @property
    def compares_draws(self) -> bool:
        """Whether base vectors are the draws alone."""
        return self.features is None or self.stream_on == DRAWS

    @property
    def sketches_draws(self) -> bool:
        """Whether the features are the draws themselves, for draws that are stored as float32."""
        return self.features is not None and self.stream_on == DRAWS

    def with_sketches(self, block: Block) -> Block:
        """Return the draws with sketches of their features, which may be the draws themselves."""
        if self.features is None:
            return block
        return block._replace(features=self.features.sketch(block.draws if block.features is None else block.features))

    def columns(self, block: Block) -> Array:
        """Return all columns of the draws as given, (n, width)."""
        parts = (block.draws, block.scores, block.ratios, block.features)
        return np.hstack([part for part in parts if part is not None])

    def split(self, columns: Array) -> Columns:
        dim = self.dim
        edges = np.cumsum([dim, dim * self.has_scores, dim * self.has_second_scores, int(self.has_ratios)])
        draws, scores, second_scores, ratios, sketches = np.split(columns, edges, axis=1)
        return Columns(
            draws,
            scores,
            second_scores,
            ratios if self.has_ratios else None,
            sketches if self.features is not None else None,
        )

    def kernel_coordinates(self, block: Block, preconditioner: Preconditioner) -> tuple[Array, Array]:
        """Return draws and scores in the coordinates of the kernel; without scores, base vectors and zeros."""
        if not self.has_scores:
            base = self.in_kernel_coordinates(self.base_vectors(block), preconditioner)
            return base, np.zeros_like(base)
        draws, scores = preconditioner.apply(block.draws, block.scores[:, : self.dim])
        if block.ratios is None:
            return draws, scores
        return _with_zero(draws), np.hstack([scores, block.ratios])

    def base_vectors(self, block: Block) -> Array:
        """Return the base vectors of the draws as given, (n, base_width)."""
        if self.compares_draws or block.features is None:
            return block.draws
        return np.hstack([block.draws, block.features]) if self.stream_on == BOTH else block.features

    def in_kernel_coordinates(self, base: Array, preconditioner: Preconditioner) -> Array:
        """Return base vectors in the coordinates of the kernel, (n, base_dim)."""
        if self.features is None or self.compares_draws:
            draws = preconditioner.apply_to_draws(base)
            return _with_zero(draws) if self.has_ratios else draws
        features = self.features.apply(base[:, -self.features.sketch_width :])
        if self.stream_on == FEATURES:
            return features
        return np.hstack([preconditioner.apply_to_draws(base[:, : self.dim]), features])

    def state(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "features": None if self.features is None else self.features.state()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> DrawLayout:
        features = None
        if state["features"] is not None:
            features = FeatureMap(int(state["features"]["width"]))
            features.restore(state["features"])
        return cls(**{name: state[name] for name in _PLAIN}, features=features)


class Columns(NamedTuple):
    """Columns of draws as given, each (n, ...)."""

    draws: Array
    scores: Array
    """Without columns for draws without scores."""
    second_scores: Array
    """Without columns if there are none."""
    ratios: Array | None
    sketches: Array | None

    def block(self) -> Block:
        """Return the draws as a block, without ids and second scores."""
        return Block(self.draws, self.scores, np.zeros((len(self.draws), 2), np.int64), self.sketches, self.ratios)


def _with_zero(draws: Array) -> Array:
    """Return draws with one more coordinate, 0."""
    return np.hstack([draws, np.zeros((len(draws), 1))])


_PLAIN = ("dim", "has_scores", "has_second_scores", "stream_on", "has_ratios")


def as_layout(config: ThinConfig, dim: int, first: Block, has_second_scores: bool) -> DrawLayout:
    """Return the layout of a stream that starts with ``first``; raise an `InputError` if a setting does not fit it."""
    if not first.has_scores:
        _require_stream_term(config)
    if first.features is None and config.stream_on in (FEATURES, BOTH):
        raise InputError(
            f'stream_on="{config.stream_on}" needs features.', "Pass features= with the draws, or leave out stream_on."
        )
    if first.features is not None and (config.stream_weight == 0 or config.stream_on == DRAWS):
        raise InputError(
            "features have no effect, because the stream term does not use them.",
            'Use stream_weight above 0 and stream_on="features" or "both", or leave out features.',
        )
    if first.ratios is not None and config.storage == "float32":
        raise InputError('storage="float32" cannot be used with the gradient-free KSD.', 'Use storage="float64".')
    features = None if first.features is None else FeatureMap(first.features.shape[1])
    stream_on = config.stream_on or (DRAWS if features is None else FEATURES)
    if config.storage == "float32" and config.stream_weight:
        if stream_on == BOTH:
            raise InputError('stream_on="both" is not available for storage="float32".', 'Use stream_on="features".')
        features = features or FeatureMap(dim)  # of the draws themselves
    return DrawLayout(dim, first.has_scores, has_second_scores, features, stream_on, first.ratios is not None)


def _require_stream_term(config: ThinConfig) -> None:
    """Raise an `InputError` if draws without scores cannot be thinned."""
    if config.stream_weight == 0:
        raise InputError(
            "Draws without scores cannot be thinned by KSD alone (stream_weight=0).",
            "Pass scores, or use the default stream_weight: the draws are then compared with the chain.",
        )
    if config.kernel.linear:
        raise InputError(
            "The linear term of the kernel is part of KSD, which needs scores.", "Pass scores, or leave out linear."
        )

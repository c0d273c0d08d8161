"""Labelled data as arrays, balanced subsets, and synthetic data that need no download."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError


class Dataset(NamedTuple):
    """Inputs (n, ...) and labels (n,) of a training set and a test set."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]

    def subset(self, train: int | None, test: int | None, seed: int = 0) -> Dataset:
        """Return random balanced subsets of at most ``train`` and ``test`` examples; None means all."""
        rows = balanced_rows(self.labels, train, seed)
        test_rows = balanced_rows(self.test_labels, test, seed + 1)
        return Dataset(self.inputs[rows], self.labels[rows], self.test_inputs[test_rows], self.test_labels[test_rows])


def balanced_rows(labels: NDArray[np.int64], count: int | None, seed: int) -> NDArray[np.int64]:
    """Return sorted indices of at most ``count`` random labels with class counts that differ by at most one."""
    if count is None or count >= len(labels):
        return np.arange(len(labels))
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    rank = np.empty(len(labels), dtype=np.int64)  # of each example within its class
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = np.arange(len(members))
    first = shuffled[np.argsort(rank[shuffled], kind="stable")][:count]
    return np.sort(first)


def downsample(images: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    """Halve the sides of images (n, c, h, w) several times by averaging blocks of four pixels."""
    for _ in range(times):
        sums = images[:, :, 0::2, 0::2].astype(np.uint16) + images[:, :, 1::2, 0::2]
        sums += images[:, :, 0::2, 1::2]
        sums += images[:, :, 1::2, 1::2]
        images = ((sums + 2) // 4).astype(np.uint8)
    return images


def standardise(data: Dataset) -> Dataset:
    """Convert images to float32 with mean 0 and standard deviation 1 in every channel of the training set."""
    mean = data.inputs.mean(axis=(0, 2, 3), keepdims=True)
    deviation = np.maximum(data.inputs.std(axis=(0, 2, 3), keepdims=True), 1e-3)
    train, test = (((images - mean) / deviation).astype(np.float32) for images in (data.inputs, data.test_inputs))
    return data._replace(inputs=train, test_inputs=test)


def synthetic_images(train: int, test: int, seed: int, classes: int = 10) -> Dataset:
    """Generate images (n, 3, 32, 32): a coarse pattern per class with strong noise."""
    generator = np.random.default_rng(seed)
    patterns = np.kron(generator.normal(size=(classes, 3, 4, 4)), np.ones((8, 8)))
    labels = np.arange(train + test) % classes
    images = 128 + 24 * patterns[labels] + 60 * np.kron(generator.normal(size=(train + test, 3, 8, 8)), np.ones((4, 4)))
    pixels = np.clip(images, 0, 255).astype(np.uint8)
    return Dataset(pixels[:train], labels[:train], pixels[train:], labels[train:])


def synthetic_reviews(train: int, test: int, seed: int) -> tuple[list[str], list[int], list[str], list[int]]:
    """Generate texts and labels of both sets: random words, and some positive or negative words."""
    generator = np.random.default_rng(seed)
    positive, negative = ["great", "moving", "brilliant"], ["dull", "awful", "boring"]
    labels = [number % 2 for number in range(train + test)]
    texts = []
    for label in labels:
        words = [f"word{number}" for number in generator.integers(0, 200, size=30)]
        for place in generator.integers(0, 30, size=4):
            good = generator.uniform() < (0.75 if label else 0.25)
            words[place] = str(generator.choice(positive if good else negative))
        texts.append(" ".join(words))
    return texts[:train], labels[:train], texts[train:], labels[train:]


def require_labels(labels: NDArray[np.int64], classes: int, source: object) -> None:
    """Raise `InputError` unless all labels are between 0 and ``classes - 1``."""
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise InputError(f"{source} has the label {wrong}.", f"Labels must be whole numbers from 0 to {classes - 1}.")

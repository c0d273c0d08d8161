"""Labelled data as arrays, parts of them, and made-up ones that take no download."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError


class Data(NamedTuple):
    """Inputs (n, ...) and labels (n,) to train on and to test with."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]

    def part(self, train: int | None, test: int | None, seed: int = 0) -> Data:
        """At most so many of each, as many of every class as of any other (one more or less)."""
        rows = balanced(self.labels, train, seed)
        test_rows = balanced(self.test_labels, test, seed + 1)
        return Data(self.inputs[rows], self.labels[rows], self.test_inputs[test_rows], self.test_labels[test_rows])


def balanced(labels: NDArray[np.int64], count: int | None, seed: int) -> NDArray[np.int64]:
    """Positions of at most ``count`` labels, the classes in turn, chosen at random; in the order of the data."""
    if count is None or count >= len(labels):
        return np.arange(len(labels))
    mixed = np.random.default_rng(seed).permutation(len(labels))
    turn = np.empty(len(labels), dtype=np.int64)  # the how-manieth of its class a label is
    for kind in np.unique(labels):
        mine = mixed[labels[mixed] == kind]
        turn[mine] = np.arange(len(mine))
    first = mixed[np.argsort(turn[mixed], kind="stable")][:count]
    return np.sort(first)


def halved(images: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    """Images (n, c, h, w) with their sides halved so many times, by means of four pixels."""
    for _ in range(times):
        quarters = images[:, :, 0::2, 0::2].astype(np.uint16) + images[:, :, 1::2, 0::2]
        quarters += images[:, :, 0::2, 1::2]
        quarters += images[:, :, 1::2, 1::2]
        images = ((quarters + 2) // 4).astype(np.uint8)
    return images


def standardised(data: Data) -> Data:
    """Images as numbers (float32) of mean 0 and standard deviation 1 in every channel of what is trained on."""
    mean = data.inputs.mean(axis=(0, 2, 3), keepdims=True)
    spread = np.maximum(data.inputs.std(axis=(0, 2, 3), keepdims=True), 1e-3)
    train, test = (((part - mean) / spread).astype(np.float32) for part in (data.inputs, data.test_inputs))
    return data._replace(inputs=train, test_inputs=test)


def made_up_images(train: int, test: int, seed: int, classes: int = 10) -> Data:
    """Images (n, 3, 32, 32): a blurred pattern of each class under much noise."""
    generator = np.random.default_rng(seed)
    patterns = np.kron(generator.normal(size=(classes, 3, 4, 4)), np.ones((8, 8)))
    labels = np.arange(train + test) % classes
    images = 128 + 24 * patterns[labels] + 60 * np.kron(generator.normal(size=(train + test, 3, 8, 8)), np.ones((4, 4)))
    pixels = np.clip(images, 0, 255).astype(np.uint8)
    return Data(pixels[:train], labels[:train], pixels[train:], labels[train:])


def made_up_reviews(train: int, test: int, seed: int) -> tuple[list[str], list[int], list[str], list[int]]:
    """Texts and labels for both parts: words by chance, and some that praise or blame."""
    generator = np.random.default_rng(seed)
    praise, blame = ["great", "moving", "brilliant"], ["dull", "awful", "boring"]
    labels = [number % 2 for number in range(train + test)]
    texts = []
    for label in labels:
        words = [f"word{number}" for number in generator.integers(0, 200, size=30)]
        for place in generator.integers(0, 30, size=4):
            good = generator.uniform() < (0.75 if label else 0.25)
            words[place] = str(generator.choice(praise if good else blame))
        texts.append(" ".join(words))
    return texts[:train], labels[:train], texts[train:], labels[train:]


def require_labels(labels: NDArray[np.int64], classes: int, where: object) -> None:
    """Raise unless all are among the classes."""
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise InputError(f"{where} has the label {wrong}.", f"Labels must be whole numbers from 0 to {classes - 1}.")

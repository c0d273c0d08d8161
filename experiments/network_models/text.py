"""Texts as word numbers: 0 for padding, 1 for an unknown word, from 2 on the words of the vocabulary."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.io.errors import DAMAGE

_WORD = re.compile(r"[a-z0-9]+|[!?]")
_NEGATION, _POSSESSIVE = re.compile(r"n't\b"), re.compile(r"(?<=\w)'s\b")
_PADDING, _UNKNOWN, _FIRST = 0, 1, 2


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without HTML line breaks; n't becomes the word not.

    Returns
    -------
    list of str
        The words in their order.

    Examples
    --------
    >>> split_words("Ann's film isn't bad.<br /><br />Is it?")
    ['ann', 'film', 'is', 'not', 'bad', 'is', 'it', '?']
    """
    plain = text.lower().replace("<br />", " ")
    return _WORD.findall(_POSSESSIVE.sub(" ", _NEGATION.sub(" not", plain)))


@dataclass(frozen=True)
class Vocabulary:
    """Known words, numbered from 2 on."""

    words: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number + _FIRST for number, word in enumerate(self.words)}
        object.__setattr__(self, "_numbers", numbers)

    def __len__(self) -> int:
        return len(self.words) + _FIRST

    @classmethod
    def from_texts(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """Return the most frequent words, with ties in alphabetical order.

        ``size`` is the number of word numbers, including padding and unknown words.

        Returns
        -------
        Vocabulary
            The most frequent words.

        Examples
        --------
        >>> Vocabulary.from_texts(["a b a", "c b a"], 4).words
        ('a', 'b')
        """
        counts = Counter(word for text in texts for word in split_words(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: size - _FIRST]))

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """Return the numbers (n, length) of the last words of each text; shorter texts are padded on the left.

        Returns
        -------
        ndarray
            Numbers of words (n, length).

        Examples
        --------
        >>> Vocabulary(("a", "b")).encode(["b", "a b c"], 2).tolist()
        [[0, 3], [3, 1]]
        """
        table = np.full((len(texts), length), _PADDING, dtype=np.int32)
        for row, text in zip(table, texts, strict=True):
            last = [self._numbers.get(word, _UNKNOWN) for word in split_words(text)[-length:]]
            if last:
                row[-len(last) :] = last
        return table


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors (words, dimensions), for example GloVe."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]

    @classmethod
    def read(cls, path: str | Path) -> WordVectors:
        """Read word vectors.

        Parameters
        ----------
        path : str or Path
            An npz file with the arrays ``words`` and ``vectors``, a text file (also gzipped) with a word and its
            numbers per line, or a folder with such a file whose name begins with ``glove``.

        Returns
        -------
        WordVectors
            The words and vectors.

        Raises
        ------
        InputError
            If the file cannot be read.
        """
        path = Path(path)
        if path.is_dir():
            inside = [*sorted(path.rglob("glove*.npz")), *sorted(path.rglob("glove*.txt*"))]
            if not inside:
                raise InputError(
                    f"{path} does not contain a file glove*.npz or glove*.txt.", "Specify the file itself."
                )
            path = inside[0]
        try:
            return cls._from_npz(path) if path.suffix == ".npz" else cls._from_text(path)
        except DAMAGE as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(
                f"{path} cannot be read as word vectors: {problem}.", "Provide an npz, txt or txt.gz file."
            ) from None

    @classmethod
    def _from_npz(cls, path: Path) -> WordVectors:
        with np.load(path, allow_pickle=False) as file:
            if "words" not in file.files or "vectors" not in file.files:
                raise InputError(
                    f"{path} contains the arrays {', '.join(file.files)}.", "It must contain words and vectors."
                )
            return cls._checked(file["words"].tolist(), file["vectors"], path)

    @classmethod
    def _from_text(cls, path: Path) -> WordVectors:
        words, vectors = [], []
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                word, *values = line.rstrip().split(" ")
                try:
                    vectors.append(np.array(values, dtype=np.float32))
                except ValueError:
                    raise InputError(f"{path}, line {number} is not a word followed by numbers.") from None
                if len(vectors[-1]) != len(vectors[0]):
                    raise InputError(
                        f"{path}, line {number} has {len(values)} numbers; earlier lines have {len(vectors[0])}."
                    )
                words.append(word)
        return cls._checked(words, np.array(vectors), path)

    @classmethod
    def _checked(cls, words: Sequence[object], vectors: NDArray[np.floating], path: Path) -> WordVectors:
        if vectors.ndim != 2 or len(words) != len(vectors) or not len(words) or not np.isfinite(vectors).all():
            raise InputError(
                f"{path} has {len(words)} words and vectors {vectors.shape}.", "Provide one finite vector per word."
            )
        names = tuple(word.decode() if isinstance(word, bytes) else str(word) for word in words)
        return cls(names, vectors.astype(np.float32))

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary of these words."""
        return Vocabulary(self.words)

    def table(self) -> NDArray[np.float32]:
        """Return a vector per word number: zeros for padding, the mean vector for unknown words."""
        width = self.vectors.shape[1]
        return np.vstack([np.zeros((1, width), np.float32), self.vectors.mean(axis=0, keepdims=True), self.vectors])

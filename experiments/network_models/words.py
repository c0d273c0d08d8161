"""Texts as word numbers: 0 where there is no word, 1 for a word that is not known, then the vocabulary."""

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
_NOT, _OWNED = re.compile(r"n't\b"), re.compile(r"(?<=\w)'s\b")
_NO_WORD, _UNKNOWN, _FIRST = 0, 1, 2


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters, without line breaks of web pages; n't is not.

    >>> words_of("Ann's film isn't bad.<br /><br />Is it?")
    ['ann', 'film', 'is', 'not', 'bad', 'is', 'it', '?']
    """
    plain = text.lower().replace("<br />", " ")
    return _WORD.findall(_OWNED.sub(" ", _NOT.sub(" not", plain)))


@dataclass(frozen=True)
class Vocabulary:
    """Known words; the number of the first is 2."""

    words: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number + _FIRST for number, word in enumerate(self.words)}
        object.__setattr__(self, "_numbers", numbers)

    def __len__(self) -> int:
        return len(self.words) + _FIRST

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Vocabulary:
        """The most frequent words, as many as make ``size`` numbers; ties in alphabetical order.

        >>> Vocabulary.of(["a b a", "c b a"], 4).words
        ('a', 'b')
        """
        counts = Counter(word for text in texts for word in words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: size - _FIRST]))

    def numbers(self, texts: Sequence[str], length: int) -> NDArray[np.int32]:
        """The last ``length`` words of each text (n, length); shorter texts have nothing before their first word.

        >>> Vocabulary(("a", "b")).numbers(["b", "a b c"], 2).tolist()
        [[0, 3], [3, 1]]
        """
        table = np.full((len(texts), length), _NO_WORD, dtype=np.int32)
        for row, text in zip(table, texts, strict=True):
            last = [self._numbers.get(word, _UNKNOWN) for word in words_of(text)[-length:]]
            if last:
                row[-len(last) :] = last
        return table


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors (words, dimensions), such as GloVe's."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]

    @classmethod
    def read(cls, path: str | Path) -> WordVectors:
        """From an npz file with ``words`` and ``vectors``, or a text file (gz too): a word and its numbers a line."""
        path = Path(path)
        if path.is_dir():
            inside = [*sorted(path.rglob("glove*.npz")), *sorted(path.rglob("glove*.txt*"))]
            if not inside:
                raise InputError(f"{path} holds no word vectors.", "Name the file itself.")
            path = inside[0]
        try:
            return cls._from_npz(path) if path.suffix == ".npz" else cls._from_text(path)
        except DAMAGE as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(f"{path} cannot be read as word vectors: {problem}.", "Give npz, txt or txt.gz.") from None

    @classmethod
    def _from_npz(cls, path: Path) -> WordVectors:
        with np.load(path, allow_pickle=False) as file:
            if "words" not in file.files or "vectors" not in file.files:
                raise InputError(f"{path} has {', '.join(file.files)}.", "It must have words and vectors.")
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
                    raise InputError(f"{path}, line {number}: not a word and numbers.") from None
                if len(vectors[-1]) != len(vectors[0]):
                    raise InputError(f"{path}, line {number}: {len(values)} numbers, before {len(vectors[0])}.")
                words.append(word)
        return cls._checked(words, np.array(vectors), path)

    @classmethod
    def _checked(cls, words: Sequence[object], vectors: NDArray[np.floating], path: Path) -> WordVectors:
        if vectors.ndim != 2 or len(words) != len(vectors) or not len(words) or not np.isfinite(vectors).all():
            raise InputError(
                f"{path} has {len(words)} words and vectors {vectors.shape}.", "They must belong together."
            )
        names = tuple(word.decode() if isinstance(word, bytes) else str(word) for word in words)
        return cls(names, vectors.astype(np.float32))

    def vocabulary(self) -> Vocabulary:
        """Their words."""
        return Vocabulary(self.words)

    def table(self) -> NDArray[np.float32]:
        """A vector for each number of the vocabulary: zeros for no word, the mean for an unknown one."""
        width = self.vectors.shape[1]
        return np.vstack([np.zeros((1, width), np.float32), self.vectors.mean(axis=0, keepdims=True), self.vectors])

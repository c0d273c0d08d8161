"""Reader for IMDB reviews: the official folder or archive, or two csv files.

The official layout is ``aclImdb/{train,test}/{neg,pos}/*.txt``. The csv files (also gzipped) are named ``*train.csv``
and ``*test.csv``; they have a column ``text`` and a column ``label`` with 0 for negative and 1 for positive reviews.

A. L. Maas et al., "Learning word vectors for sentiment analysis", ACL 2011.
"""

from __future__ import annotations

import csv
import gzip
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.network_models.datasets import Dataset, require_labels
from experiments.network_models.text import Vocabulary
from steinstream.errors import InputError
from steinstream.io.errors import DAMAGE

_REVIEW = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/[^/]+\.txt")
_REMEDY = "Provide aclImdb_v1.tar.gz from ai.stanford.edu/~amaas/data/sentiment, its folder, or a folder of csv files."


class Reviews(NamedTuple):
    """Texts and labels of the training set and the test set."""

    texts: list[str]
    labels: list[int]
    test_texts: list[str]
    test_labels: list[int]

    def encode(self, vocabulary: Vocabulary, length: int) -> Dataset:
        """Return the word numbers of the last ``length`` words of each review."""
        train, test = (vocabulary.encode(texts, length) for texts in (self.texts, self.test_texts))
        return Dataset(train, np.array(self.labels, np.int64), test, np.array(self.test_labels, np.int64))


def load_imdb(path: str | Path) -> Reviews:
    """Read the IMDB reviews.

    Parameters
    ----------
    path : str or Path
        The official archive, its unpacked folder or the parent of this folder, or a folder of csv files.

    Returns
    -------
    Reviews
        All texts and labels.

    Raises
    ------
    InputError
        If the path does not exist or does not contain the reviews.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist.", _REMEDY)
    try:
        reviews = _from_folder(path) if path.is_dir() else _from_archive(path)
    except (*DAMAGE, tarfile.TarError, csv.Error) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{path} cannot be read as IMDB: {problem}.", _REMEDY) from None
    for labels, part in ((reviews.labels, "training"), (reviews.test_labels, "test")):
        if not labels:
            raise InputError(f"{path} does not contain {part} reviews.", _REMEDY)
        require_labels(np.array(labels), 2, path)
    return reviews


def _from_folder(path: Path) -> Reviews:
    for home in (path, path / "aclImdb", path / "imdb", path / "imdb" / "aclImdb"):
        if (home / "train" / "pos").is_dir():
            files = sorted(home.glob("t*/*/*.txt"))
            return _assigned((str(file.relative_to(home)), file.read_bytes()) for file in files)
        tables = [sorted(home.glob(f"*{part}.csv*")) for part in ("train", "test")]
        if all(tables):
            (texts, labels), (test_texts, test_labels) = (_read_csv(found[0]) for found in tables)
            return Reviews(texts, labels, test_texts, test_labels)
    packed = sorted(path.glob("aclImdb*.tar.gz"))
    if not packed:
        raise InputError(f"{path} does not contain IMDB reviews.", _REMEDY)
    return _from_archive(packed[0])


def _from_archive(path: Path) -> Reviews:
    found = []
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and _REVIEW.fullmatch(member.name) else None
            if file is not None:
                found.append((member.name, file.read()))
    return _assigned(sorted(found))


def _assigned(files: Iterable[tuple[str, bytes]]) -> Reviews:
    """Assign the reviews to sets and labels by the names of their folders."""
    reviews = Reviews([], [], [], [])
    for name, content in files:
        match = _REVIEW.fullmatch(name)
        if match is None:
            continue
        train = match[1] == "train"
        (reviews.texts if train else reviews.test_texts).append(content.decode("utf-8", "replace"))
        (reviews.labels if train else reviews.test_labels).append(int(match[2] == "pos"))
    return reviews


def _read_csv(path: Path) -> tuple[list[str], list[int]]:
    texts, labels = [], []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if not {"label", "text"} <= set(rows.fieldnames or ()):
            raise InputError(f"{path} has the columns {rows.fieldnames}.", "It must have label and text.")
        for number, row in enumerate(rows, 2):
            if row["label"] not in ("0", "1"):
                raise InputError(f"{path}, row {number}: the label is {row['label']!r}.", "It must be 0 or 1.")
            texts.append(row["text"])
            labels.append(int(row["label"]))
    return texts, labels

"""Reader for CIFAR-10: the official Python or binary archives, packed or unpacked, or an npz file.

Images are arrays (n, 3, 32, 32) of bytes, labels are 0 to 9. No code in a file is executed: the official pickles are
read by an unpickler that accepts only plain containers and numpy arrays.

A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.network_models.datasets import Dataset, require_labels
from steinstream.errors import InputError
from steinstream.io.errors import DAMAGE

_ROW = 1 + 3 * 32 * 32  # bytes of a label and an image
_FILE = re.compile(r"(data_batch(_\d+)?|test_batch)(\.bin)?")
_NAMES = {  # accepted names of arrays in npz files
    "inputs": ("x_train", "train_images", "X_train", "train_x"),
    "labels": ("y_train", "train_labels", "Y_train", "train_y"),
    "test_inputs": ("x_test", "test_images", "X_test", "test_x"),
    "test_labels": ("y_test", "test_labels", "Y_test", "test_y"),
}
_REMEDY = (
    "Provide cifar-10-python.tar.gz or cifar-10-binary.tar.gz from www.cs.toronto.edu/~kriz/cifar.html, or its folder."
)

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def load_cifar10(path: str | Path) -> Dataset:
    """Read CIFAR-10.

    Parameters
    ----------
    path : str or Path
        An official archive, its unpacked folder or the parent of this folder, or an npz file.

    Returns
    -------
    Dataset
        All images and labels.

    Raises
    ------
    InputError
        If the path does not exist or does not contain CIFAR-10.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist.", _REMEDY)
    try:
        if path.is_dir():
            return _from_folder(path)
        if path.suffix == ".npz":
            return _from_npz(path)
        return _gathered(_in_archive(path), path)
    except (*DAMAGE, tarfile.TarError, pickle.UnpicklingError, IndexError, AttributeError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"{path} cannot be read as CIFAR-10: {problem}.", _REMEDY) from None


def _from_folder(path: Path) -> Dataset:
    found = sorted(file for file in path.rglob("*") if file.is_file() and _FILE.fullmatch(file.name))
    if found:
        home = found[0].parent
        return _gathered(((file.name, file.read_bytes()) for file in found if file.parent == home), path)
    packed = [*sorted(path.glob("cifar-10-*.tar.gz")), *sorted(path.rglob("cifar*10*.npz"))]
    if not packed:
        raise InputError(f"{path} does not contain CIFAR-10.", _REMEDY)
    return load_cifar10(packed[0])


def _in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            file = archive.extractfile(member) if member.isfile() and _FILE.fullmatch(name) else None
            if file is not None:
                yield name, file.read()


def _gathered(files: Iterator[tuple[str, bytes]], where: Path) -> Dataset:
    train: list[Batch] = []
    test: list[Batch] = []
    for name, content in sorted(files):
        batch = _binary(content, name) if name.endswith(".bin") else _pickled(content, name)
        (test if name.startswith("test") else train).append(batch)
    if not train or not test:
        raise InputError(f"{where} contains {len(train)} training batches and {len(test)} test batches.", _REMEDY)
    arrays = [np.concatenate(parts) for batches in (train, test) for parts in zip(*batches, strict=True)]
    return _checked(Dataset(*arrays), where)


def _binary(content: bytes, name: str) -> Batch:
    if len(content) % _ROW:
        raise InputError(
            f"{name} has {len(content)} bytes, which is not a multiple of {_ROW}: it is truncated.", _REMEDY
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, _ROW)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def _pickled(content: bytes, name: str) -> Batch:
    batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict) or b"data" not in batch or b"labels" not in batch:
        raise InputError(f"{name} is not a batch of CIFAR-10: data or labels are missing.", _REMEDY)
    images = np.asarray(batch[b"data"], dtype=np.uint8)
    return images.reshape(-1, 3, 32, 32), np.asarray(batch[b"labels"], dtype=np.int64)


class _RestrictedUnpickler(pickle.Unpickler):
    """Unpickler that accepts only plain containers and numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the four objects that pickled arrays need; refuse all others."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.zeros(0).__reduce__()[0]
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _number_type
        if (module, name) == ("_codecs", "encode"):
            return lambda text, codec: text.encode("latin1")
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no CIFAR-10 file uses")


def _number_type(kind: Any, *more: Any) -> Any:
    made = np.dtype(kind, *more)
    if made.hasobject:
        raise pickle.UnpicklingError("it contains an array of objects")
    return made


def _from_npz(path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as file:
        arrays = {}
        for field, names in _NAMES.items():
            name = next((name for name in names if name in file.files), None)
            if name is None:
                raise InputError(f"{path} has no array {names[0]}, only {', '.join(file.files)}.", "Rename its arrays.")
            arrays[field] = file[name]
    for field in ("inputs", "test_inputs"):
        images = arrays[field]
        if images.ndim == 4 and images.shape[-1] == 3:
            images = images.transpose(0, 3, 1, 2)
        arrays[field] = np.ascontiguousarray(images.reshape(-1, 3, 32, 32))
    labels = {field: arrays[field].ravel().astype(np.int64) for field in ("labels", "test_labels")}
    return _checked(Dataset(arrays["inputs"], labels["labels"], arrays["test_inputs"], labels["test_labels"]), path)


def _checked(data: Dataset, where: Path) -> Dataset:
    for images, labels in ((data.inputs, data.labels), (data.test_inputs, data.test_labels)):
        if images.dtype != np.uint8 or len(images) != len(labels):
            raise InputError(f"{where} has {len(images)} images of {images.dtype} and {len(labels)} labels.", _REMEDY)
        require_labels(labels, 10, where)
    return data

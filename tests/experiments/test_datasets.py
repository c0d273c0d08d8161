"""Readers for CIFAR-10, IMDB and word vectors: official layouts, packed and unpacked, and damaged files."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments.network_models.cifar10 import load_cifar10
from experiments.network_models.datasets import balanced_rows, downsample, standardise, synthetic_images
from experiments.network_models.imdb import load_imdb
from experiments.network_models.text import Vocabulary, WordVectors, split_words
from steinstream.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def images():
    """Four batches of ten images, the last to test with."""
    generator = np.random.default_rng(0)
    return [(generator.integers(0, 256, (10, 3072), dtype=np.uint8), np.arange(10)[::-1]) for _ in range(4)]


def write_python_version(folder, images):
    folder.mkdir(parents=True)
    for number, (pixels, labels) in enumerate(images):
        name = "test_batch" if number == 3 else f"data_batch_{number + 1}"
        batch = {b"batch_label": b"some", b"labels": labels.tolist(), b"data": pixels, b"filenames": [b"a.png"] * 10}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"airplane"]}))


def write_binary_version(folder, images):
    folder.mkdir(parents=True)
    for number, (pixels, labels) in enumerate(images):
        name = "test_batch.bin" if number == 3 else f"data_batch_{number + 1}.bin"
        (folder / name).write_bytes(np.column_stack([labels.astype(np.uint8), pixels]).tobytes())


def check(data, images):
    assert data.inputs.shape == (30, 3, 32, 32) and data.test_inputs.shape == (10, 3, 32, 32)
    assert np.array_equal(data.inputs[20:].reshape(10, -1), images[2][0])
    assert np.array_equal(data.labels, np.tile(np.arange(10)[::-1], 3))
    assert np.array_equal(data.test_inputs.reshape(10, -1), images[3][0])


@pytest.mark.parametrize(
    ("write", "name"), [(write_python_version, "cifar-10-batches-py"), (write_binary_version, "cifar-10-batches-bin")]
)
def test_both_official_versions_packed_and_unpacked(tmp_path, images, write, name):
    folder = tmp_path / "data" / name
    write(folder, images)
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname=name)
    for path in (folder, folder.parent, tmp_path / "cifar.tar.gz"):
        check(load_cifar10(path), images)


def test_an_npz_file_with_channels_last(tmp_path, images):
    train, test = (
        np.concatenate([pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for pixels, _ in part])
        for part in (images[:3], images[3:])
    )
    labels = np.tile(np.arange(10)[::-1], 3).astype(np.uint8)
    np.savez(tmp_path / "cifar10.npz", x_train=train, y_train=labels, x_test=test, y_test=labels[:10, None])
    check(load_cifar10(tmp_path / "cifar10.npz"), images)


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("/tmp/steinstream-was-here"),)


def test_nothing_in_a_pickle_is_executed(tmp_path, images):
    folder = tmp_path / "cifar-10-batches-py"
    write_python_version(folder, images)
    for bad in (Evil(), {b"data": Evil(), b"labels": []}, {b"data": np.array([Evil()]), b"labels": [1]}):
        (folder / "data_batch_1").write_bytes(pickle.dumps(bad))
        with pytest.raises(InputError, match=r"it refers to|array of objects"):
            load_cifar10(folder)
    assert not Path("/tmp/steinstream-was-here").exists()


def test_damaged_cifar10_files_are_reported(tmp_path, images):
    write_binary_version(tmp_path / "bin", images)
    (tmp_path / "bin" / "data_batch_2.bin").write_bytes(b"123")
    with pytest.raises(InputError, match=r"data_batch_2\.bin has 3 bytes"):
        load_cifar10(tmp_path / "bin")
    write_python_version(tmp_path / "py", images)
    (tmp_path / "py" / "test_batch").unlink()
    with pytest.raises(InputError, match="contains 3 training batches and 0 test"):
        load_cifar10(tmp_path / "py")
    (tmp_path / "py" / "test_batch").write_bytes(b"garbage")
    with pytest.raises(InputError, match="cannot be read as CIFAR-10"):
        load_cifar10(tmp_path / "py")
    (tmp_path / "x.tar.gz").write_bytes(b"garbage")
    with pytest.raises(InputError, match="cannot be read as CIFAR-10"):
        load_cifar10(tmp_path / "x.tar.gz")
    with pytest.raises(InputError, match="does not exist"):
        load_cifar10(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="does not contain CIFAR-10"):
        load_cifar10(tmp_path / "empty")
    bad = np.zeros((1, 3073), np.uint8)
    bad[0, 0] = 12
    (tmp_path / "bin" / "data_batch_2.bin").write_bytes(bad.tobytes())
    with pytest.raises(InputError, match="has the label 12"):
        load_cifar10(tmp_path / "bin")


def test_subsets_are_balanced_and_downsampling_averages():
    labels = np.array([0] * 50 + [1] * 5 + [2] * 45)
    rows = balanced_rows(labels, 12, seed=0)
    assert np.bincount(labels[rows]).tolist() == [4, 4, 4] and (np.diff(rows) > 0).all()
    assert len(balanced_rows(labels, None, 0)) == 100 and len(balanced_rows(labels, 500, 0)) == 100
    pixels = np.array([[[[0, 4, 255, 255], [8, 0, 255, 255]]]], dtype=np.uint8)
    assert downsample(pixels, 1).tolist() == [[[[3, 255]]]]
    data = standardise(synthetic_images(100, 20, seed=0))
    np.testing.assert_allclose(data.inputs.mean(axis=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(data.inputs.std(axis=(0, 2, 3)), 1, atol=1e-3)


# -- words ---------------------------------------------------------------------------------------------------------

REVIEWS = {
    "train": [("pos", "A great film!<br /><br />Great."), ("neg", "It isn't good")],
    "test": [("neg", "dull and dull"), ("pos", "Brilliant, the director's best")],
}


def write_official(folder):
    for part, reviews in REVIEWS.items():
        for number, (kind, text) in enumerate(reviews):
            path = folder / part / kind / f"{number}_7.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0_0.txt").write_text("not labelled")
    (folder / "train" / "urls_pos.txt").write_text("http://")


def write_sheets(folder, suffix):
    folder.mkdir()
    for part, reviews in REVIEWS.items():
        path = folder / f"imdb_{part}.csv{suffix}"
        with gzip.open(path, "wt", newline="") if suffix else path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["label", "id", "text"])
            writer.writerows([int(kind == "pos"), 3, text] for kind, text in reviews)


def test_imdb_in_every_layout(tmp_path):
    write_official(tmp_path / "a" / "aclImdb")
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a" / "aclImdb", arcname="aclImdb")
    write_sheets(tmp_path / "plain", "")
    write_sheets(tmp_path / "packed", ".gz")
    paths = [tmp_path / "a", tmp_path / "a" / "aclImdb", tmp_path / "aclImdb_v1.tar.gz"]
    for path in (*paths, tmp_path, tmp_path / "plain", tmp_path / "packed"):
        reviews = load_imdb(path)
        assert set(zip(reviews.labels, reviews.texts, strict=True)) == {
            (int(kind == "pos"), text) for kind, text in REVIEWS["train"]
        }
        assert set(zip(reviews.test_labels, reviews.test_texts, strict=True)) == {
            (int(kind == "pos"), text) for kind, text in REVIEWS["test"]
        }


def test_damaged_imdb_files_are_reported(tmp_path):
    with pytest.raises(InputError, match="does not contain IMDB"):
        load_imdb(tmp_path)
    (tmp_path / "x.tar.gz").write_bytes(b"garbage")
    with pytest.raises(InputError, match="cannot be read as IMDB"):
        load_imdb(tmp_path / "x.tar.gz")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("nothing"), io.BytesIO())
    with pytest.raises(InputError, match="does not contain training reviews"):
        load_imdb(tmp_path / "empty.tar.gz")
    for content, problem in (
        ("label,words\n1,a\n", "has the columns"),
        ("label,text\n7,a\n", "row 2: the label is '7'"),
    ):
        for part in ("train", "test"):
            (tmp_path / f"imdb_{part}.csv").write_text(content)
        with pytest.raises(InputError, match=problem):
            load_imdb(tmp_path)


def test_words_are_numbered_from_the_end():
    reviews = imdb_texts()
    assert split_words(reviews[0]) == ["a", "great", "film", "!", "great"]
    vocabulary = Vocabulary.from_texts(reviews, 5)
    assert vocabulary.words[0] == "great" and len(vocabulary) == 5
    numbers = vocabulary.encode([*reviews, ""], 6)
    assert numbers.shape == (3, 6) and numbers[0, 0] == 0 and numbers[0, -1] == 2 and not numbers[2].any()


def imdb_texts():
    return [text for _, text in REVIEWS["train"]]


def test_word_vectors_from_text_and_npz(tmp_path):
    words, vectors = ["the", "é", "not"], np.arange(6, dtype=np.float32).reshape(3, 2)
    text = "".join(f"{word} {a} {b}\n" for word, (a, b) in zip(words, vectors, strict=True))
    (tmp_path / "glove.txt").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "glove.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    np.savez(tmp_path / "glove.npz", words=np.array(words), vectors=vectors)
    for path in (tmp_path / "glove.txt", tmp_path / "glove.txt.gz", tmp_path / "glove.npz", tmp_path):
        read = WordVectors.read(path)
        assert read.words == tuple(words) and np.array_equal(read.vectors, vectors)
        table, numbers = read.table(), read.vocabulary().encode(["isn't the"], 4)
        assert numbers.tolist() == [[0, 1, 4, 2]]
        assert table[0].tolist() == [0, 0] and table[1].tolist() == [2, 3] and np.array_equal(table[2:], vectors)
    for content, problem in (("the 1 2\na 1\n", "line 2 has 1 numbers"), ("the 1 x\n", "line 1 is not a word")):
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(InputError, match=problem):
            WordVectors.read(tmp_path / "bad.txt")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"requires the data in {SHARED}")
def test_the_real_data():
    data = load_cifar10(SHARED / "cifar10")
    assert data.inputs.shape == (10_000, 3, 32, 32) and np.bincount(data.test_labels).tolist() == [200] * 10
    reviews = load_imdb(SHARED / "imdb")
    assert len(reviews.labels) == len(reviews.test_labels) == 25_000 and sum(reviews.labels) == 12_500
    vectors = WordVectors.read(SHARED / "glove")
    numbers = vectors.vocabulary().encode(reviews.texts[:200], 100)
    assert (numbers == 1).sum() < 0.08 * (numbers > 0).sum()  # nearly all words are known

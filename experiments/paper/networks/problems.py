"""The two classification problems: data as tensors, and the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.network_models.cifar10 import load_cifar10
from experiments.network_models.datasets import Dataset, downsample, standardise, synthetic_images, synthetic_reviews
from experiments.network_models.imdb import Reviews, load_imdb
from experiments.network_models.text import Vocabulary, WordVectors
from experiments.paper import ExperimentOptions
from experiments.paper.networks.scales import NetworkScale
from steinstream.errors import InputError
from steinstream.io.errors import need


class NetworkProblem(NamedTuple):
    """Tensors on their device, a function that creates the network, and a description."""

    create_network: Callable[[], Any]
    inputs: Any
    labels: Any
    test_inputs: Any
    test_labels: Any
    description: str


def images(options: ExperimentOptions, scale: NetworkScale) -> NetworkProblem:
    """Return CIFAR-10, or synthetic images, with a ResNet-20."""
    torch = need("torch", "torch")
    from experiments.network_models.models import ResNet20

    if options.data is None:
        data = synthetic_images(scale.train or 1000, scale.test or 1000, options.seed)
    else:
        data = load_cifar10(options.data).subset(scale.train, scale.test)
    small = data._replace(
        inputs=downsample(data.inputs, scale.halvings), test_inputs=downsample(data.test_inputs, scale.halvings)
    )
    side = small.inputs.shape[-1]
    kind = "synthetic images" if options.data is None else "images"
    description = f"{len(data.labels):,} {kind} of {side} x {side} pixels, {len(data.test_labels):,} test images"
    layout = torch.channels_last  # about 1.5 times as fast

    def create_network() -> Any:
        return ResNet20(10, scale.width).to(memory_format=layout)

    return _on_device(options, create_network, standardise(small), description, layout)


def reviews(options: ExperimentOptions, scale: NetworkScale) -> NetworkProblem:
    """Return IMDB, or synthetic reviews, with a convolution and an LSTM, or the TextCNN of the authors."""
    need("torch", "torch")
    from experiments.network_models.models import ConvolutionLSTM, TextCNN

    if options.data is None:
        texts = Reviews(*synthetic_reviews(scale.train or 1000, scale.test or 1000, options.seed))
    else:
        texts = load_imdb(options.data)
    if options.glove is None:
        vocabulary, vectors, origin = Vocabulary.from_texts(texts.texts, scale.words), None, "trained"
    else:
        glove = WordVectors.read(options.glove)
        vocabulary, vectors, origin = glove.vocabulary(), glove.table(), "given"
    data = texts.encode(vocabulary, scale.length).subset(scale.train, scale.test)
    kind = "synthetic reviews" if options.data is None else "reviews"
    description = (
        f"{len(data.labels):,} {kind} (last {scale.length} words), {len(data.test_labels):,} test reviews; "
        f"{len(vocabulary):,} words with {origin} vectors"
    )

    def create_network() -> Any:
        given: dict[str, Any] = {"words": len(vocabulary), "vectors": vectors, "filters": scale.filters}
        return TextCNN(2, **given) if scale.authors else ConvolutionLSTM(2, **given, cells=scale.cells)

    return _on_device(options, create_network, data, description)


def _on_device(
    options: ExperimentOptions, create_network: Callable[[], Any], data: Dataset, description: str, layout: Any = None
) -> NetworkProblem:
    """Convert the data to tensors on the device."""
    torch = need("torch", "torch")
    device = device_of(options)
    inputs, test_inputs = (torch.as_tensor(part).to(device) for part in (data.inputs, data.test_inputs))
    if layout is not None:
        inputs, test_inputs = (part.contiguous(memory_format=layout) for part in (inputs, test_inputs))
    labels, test_labels = (torch.as_tensor(part).to(device) for part in (data.labels, data.test_labels))
    return NetworkProblem(
        lambda: create_network().to(device), inputs, labels, test_inputs, test_labels, description=description
    )


def device_of(options: ExperimentOptions) -> str:
    """Choose the device.

    Returns
    -------
    str
        The device of the options or, by default, a GPU if there is one.

    Raises
    ------
    InputError
        If PyTorch is not installed or cannot use the device.
    """
    torch = need("torch", "torch")
    if options.device is not None:
        try:
            torch.empty(1, device=options.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"The device {options.device!r} cannot be used: {error}.", "Try --device cpu.") from None
        return options.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def require_data(options: ExperimentOptions, name: str, archive: str) -> None:
    """Raise `InputError` if the experiment has no data and the scale is not quick."""
    device_of(options)
    if options.data is None and options.scale != "quick":
        raise InputError(
            f"{name} requires data; only --quick uses synthetic data.",
            f"Download {archive} and specify its path with --data.",
        )

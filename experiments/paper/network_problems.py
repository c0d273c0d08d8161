"""The two problems: data as tensors, and the network for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.network_models.data import Data, halved, made_up_images, made_up_reviews, standardised
from experiments.network_models.data_cifar10 import cifar10
from experiments.network_models.data_imdb import Reviews, imdb
from experiments.network_models.words import Vocabulary, WordVectors
from experiments.paper import Options
from experiments.paper.network_scales import Scale
from steinstream.errors import InputError
from steinstream.integrations._common import need


class Problem(NamedTuple):
    """Tensors on their device, and what makes the network."""

    make: Callable[[], Any]
    inputs: Any
    labels: Any
    test_inputs: Any
    test_labels: Any
    about: str


def images(options: Options, scale: Scale) -> Problem:
    """CIFAR-10 and a ResNet-20."""
    from experiments.network_models.models import ResNet20

    torch = need("torch", "torch")
    if options.data is None:
        data = made_up_images(scale.train or 1000, scale.test or 1000, options.seed)
    else:
        data = cifar10(options.data).part(scale.train, scale.test)
    small = data._replace(
        inputs=halved(data.inputs, scale.halvings), test_inputs=halved(data.test_inputs, scale.halvings)
    )
    side = small.inputs.shape[-1]
    made_up = "made-up images" if options.data is None else "images"
    about = f"{len(data.labels):,} {made_up} of {side} x {side} pixels, {len(data.test_labels):,} to test with"
    last = torch.channels_last  # a third faster

    def network() -> Any:
        return ResNet20(10, scale.width).to(memory_format=last)

    return _problem(options, network, standardised(small), about, last)


def reviews(options: Options, scale: Scale) -> Problem:
    """IMDB and a convolution with an LSTM."""
    from experiments.network_models.models import ConvolutionLSTM

    if options.data is None:
        texts = Reviews(*made_up_reviews(scale.train or 1000, scale.test or 1000, options.seed))
    else:
        texts = imdb(options.data)
    if options.glove is None:
        vocabulary, table, how = Vocabulary.of(texts.texts, scale.words), None, "trained"
    else:
        vectors = WordVectors.read(options.glove)
        vocabulary, table, how = vectors.vocabulary(), vectors.table(), "given"
    data = texts.next_index(vocabulary, scale.length).part(scale.train, scale.test)
    made_up = "made-up reviews" if options.data is None else "reviews"
    about = (
        f"{len(data.labels):,} {made_up}, their last {scale.length} words, {len(data.test_labels):,} to test with; "
        f"{len(vocabulary):,} words with {how} vectors"
    )

    def network() -> Any:
        return ConvolutionLSTM(2, words=len(vocabulary), vectors=table, filters=scale.filters, cells=scale.cells)

    return _problem(options, network, data, about)


def _problem(options: Options, make: Callable[[], Any], data: Data, about: str, layout: Any = None) -> Problem:
    torch = need("torch", "torch")
    device = device_of(options)
    inputs, test_inputs = (torch.as_tensor(part).to(device) for part in (data.inputs, data.test_inputs))
    if layout is not None:
        inputs, test_inputs = (part.contiguous(memory_format=layout) for part in (inputs, test_inputs))
    labels, test_labels = (torch.as_tensor(part).to(device) for part in (data.labels, data.test_labels))
    return Problem(lambda: make().to(device), inputs, labels, test_inputs, test_labels, about)


def device_of(options: Options) -> str:
    """What was asked for, or a GPU if there is one."""
    torch = need("torch", "torch")
    if options.device is not None:
        try:
            torch.empty(1, device=options.device)
        except (RuntimeError, AssertionError) as problem:
            raise InputError(f"The device {options.device!r} cannot be used: {problem}.", "Try --device cpu.") from None
        return options.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def require_data(options: Options, name: str, archive: str) -> None:
    """Raise before anything is begun if there is nothing to begin with."""
    device_of(options)
    if options.data is None and options.scale != "quick":
        raise InputError(
            f"{name} needs its data; only --quick makes some up.", f"Download {archive} and name it with --data."
        )

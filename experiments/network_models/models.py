"""Networks: ResNet-20 with filter response normalisation, embedding-convolution-LSTM, TextCNN and a perceptron.

None of them uses batch normalisation or dropout. The output for an input depends only on this input and the weights, as
required of a likelihood.

K. He et al., "Deep residual learning for image recognition", CVPR 2016. S. Singh and S. Krishnan, "Filter response
normalization layer", CVPR 2020. P. Izmailov et al., "What are Bayesian neural network posteriors really like?", ICML
2021, from which the architectures of ResNet-20 and the LSTM are taken. Y. Kim, "Convolutional neural networks for
sentence classification", EMNLP 2014 (TextCNN).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class FilterResponseNorm(nn.Module):
    r"""Filter response normalisation: division by the root mean square of a filter, affine map, threshold.

    .. math:: z = \max(\gamma x / \sqrt{\nu^2 + \epsilon} + \beta, \tau), \qquad \nu^2 = \mathrm{mean}_{hw} x^2

    with one :math:`\gamma, \beta, \tau` per filter. Inputs have shape (n, filters, h, w).
    """

    def __init__(self, filters: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.ones(filters))
        self.shift = nn.Parameter(torch.zeros(filters))
        self.threshold = nn.Parameter(torch.zeros(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise inputs (n, filters, h, w)."""
        scale, shift, threshold = (p[:, None, None] for p in (self.scale, self.shift, self.threshold))
        inverse = torch.rsqrt(x.square().mean(dim=(2, 3), keepdim=True) + self.epsilon)
        # max(y, t) = relu(y - t) + t, whose gradient is much cheaper
        return functional.relu(torch.addcmul(shift - threshold, x, scale * inverse)) + threshold


class _Layer(nn.Module):
    """Convolution and filter response normalisation."""

    def __init__(self, before: int, after: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, size, stride, padding=size // 2)
        self.norm = FilterResponseNorm(after)
        nn.init.kaiming_normal_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images to images."""
        return self.norm(self.convolution(x))


class _Residual(nn.Module):
    """Two layers with a shortcut connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _Layer(before, after, stride=stride), _Layer(after, after)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else _Layer(before, after, size=1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images to images."""
        return functional.silu(self.second(functional.silu(self.first(x))) + self.shortcut(x))


class ResNet20(nn.Module):
    """ResNet-20 for images (n, 3, side, side) with a side divisible by 4: nine residual blocks in three stacks.

    With ``width=16`` it has 0.27 million weights.
    """

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        widths = [width, width, 2 * width, 4 * width]
        blocks: list[Any] = [_Layer(3, width), nn.SiLU()]
        for stack in range(3):
            before, after = widths[stack], widths[stack + 1]
            blocks += [_Residual(before, after, stride=1 if stack == 0 else 2)]
            blocks += [_Residual(after, after, stride=1) for _ in range(2)]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)
        nn.init.kaiming_normal_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes)."""
        return self.head(self.body(x).mean(dim=(2, 3)))


class _WordVectors(nn.Module):
    """Vectors (n, dimensions, length) of word numbers (n, length): constant if given, otherwise 128 trained numbers."""

    def __init__(self, words: int, vectors: Any) -> None:
        super().__init__()
        if vectors is None:
            self.embedding = nn.Embedding(words, 128)
            self.dimensions = 128
        else:
            fixed = torch.as_tensor(vectors, dtype=torch.get_default_dtype())
            self.dimensions = fixed.shape[1]
            self.embedding = None
            self.register_buffer("vectors", fixed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the vectors of word numbers."""
        words = self.embedding(x) if self.embedding is not None else functional.embedding(x, self.vectors)
        return words.transpose(1, 2)


class ConvolutionLSTM(nn.Module):
    """Word vectors, convolution over five words, max pooling over four, LSTM, linear layer on its last output.

    Inputs are word numbers (n, length). If ``vectors`` (words, dimensions) are given, they are constant; otherwise
    ``words`` vectors of 128 dimensions are trained.
    """

    def __init__(
        self, classes: int = 2, *, words: int = 20_000, vectors: Any = None, filters: int = 64, cells: int = 128
    ) -> None:
        super().__init__()
        self.words = _WordVectors(words, vectors)
        self.convolution = nn.Conv1d(self.words.dimensions, filters, 5)
        self.lstm = nn.LSTM(filters, cells, batch_first=True)
        with torch.no_grad():  # a positive forget bias speeds up learning
            self.lstm.bias_ih_l0[cells : 2 * cells] += 1.0
        self.head = nn.Linear(cells, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes)."""
        features = functional.max_pool1d(functional.relu(self.convolution(self.words(x))), 4)
        outputs, _ = self.lstm(features.transpose(1, 2))
        return self.head(outputs[:, -1])


class TextCNN(nn.Module):
    """Word vectors, convolutions over three, four and five words, maximum over the text, linear layer.

    Inputs and word vectors are those of `ConvolutionLSTM`.
    """

    def __init__(self, classes: int = 2, *, words: int = 20_000, vectors: Any = None, filters: int = 100) -> None:
        super().__init__()
        self.words = _WordVectors(words, vectors)
        self.convolutions = nn.ModuleList(nn.Conv1d(self.words.dimensions, filters, size) for size in (3, 4, 5))
        self.head = nn.Linear(3 * filters, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes)."""
        words = self.words(x)
        features = [functional.relu(convolution(words)).amax(dim=2) for convolution in self.convolutions]
        return self.head(torch.cat(features, dim=1))


class MLP(nn.Module):
    """Linear layers of the given widths with tanh between them, for inputs that flatten to (n, widths[0])."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        layers: list[Any] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, widths[-1])."""
        return self.layers(x.flatten(1))

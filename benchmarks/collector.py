"""The collector on a ResNet-20: cost of a call relative to one forward and backward pass.

100 networks of 0.27 million weights are kept. The score is available after the backward pass of the sampler, so a call
only converts weights and score to vectors, compares them with the kept networks and writes files. *rejected*: the
new network is not kept, as in most calls. *replaces*: it is kept and another one is removed, so that a file of 2.2 MB
and the checkpoint are written and a file is deleted. *synced* files are forced to disk. The pass is that of 128 images
of 32 x 32 pixels with filter response normalisation, on one thread and on all threads; ratios are to the faster one.
*scales*: a streaming preconditioner with one scale per weight (the default), which makes the checkpoint larger.
*length*: one length scale.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.race import race
from benchmarks.table import Options, Row, at_most
from steinstream import Preconditioner, Streaming
from steinstream.integrations.torch import Collector

KEPT = 100


class Layer(nn.Module):
    """Convolution and filter response normalisation (Singh and Krishnan, CVPR 2020)."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, size, stride, padding=size // 2)
        self.line = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]).repeat(after, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolution(x)
        scale, shift, least = self.line.T[:, :, None, None]
        return torch.maximum(x * torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-6) * scale + shift, least)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = Layer(before, after, 3, stride), Layer(after, after, 3, 1)
        self.short = nn.Identity() if before == after else Layer(before, after, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.two(functional.silu(self.one(x))) + self.short(x))


def resnet20() -> nn.Module:
    torch.manual_seed(0)
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(Layer(3, 16, 3, 1), *blocks, pool, nn.Linear(64, 10))


def run(options: Options) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            measure(preconditioner, sync, Path(folder) / f"{name}{sync}", name, options.quick)
            for name, preconditioner in (
                ("length", Preconditioner.length_scale(700.0)),
                ("scales", Streaming("scales")),
            )
            for sync in ((True,) if options.quick else (None, False, True))
        ]


def measure(preconditioner: Any, sync: bool | None, folder: Path, name: str, quick: bool) -> Row:
    module = resnet20()
    collector = Collector(
        module, score="minibatch", preconditioner=preconditioner, size=KEPT, validate_scores=False,
        folder=None if sync is None else folder, sync=bool(sync),
    )  # fmt: skip
    threads = torch.get_num_threads()
    calls = Calls(module, collector)
    for _ in range(KEPT + 10):
        calls.next(1.0)()
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))

    def forward_backward(count: int) -> Callable[[], object]:
        torch.set_num_threads(count)
        return lambda: functional.cross_entropy(module(images), labels).backward()

    contenders = {
        "one": partial(forward_backward, 1), "all": partial(forward_backward, threads),
        "rejected": partial(calls.next, 3.0), "replaces": partial(calls.next, 0.3),
    }  # fmt: skip
    best = race(contenders, 2.0 if quick else 20.0, rounds=3)
    torch.set_num_threads(threads)
    collector.close()
    once = min(best["one"], best["all"])
    return {
        "weights": collector.dim,
        "kept": len(collector.thinner),
        "preconditioner": name,
        "files": "none" if sync is None else "synced" if sync else "not synced",
        "pass, ms": best["one"] * 1e3,
        f"pass on {threads}, ms": best["all"] * 1e3,
        "rejected, ms": best["rejected"] * 1e3,
        "replaces, ms": best["replaces"] * 1e3,
        "rejected / pass": best["rejected"] / once,
        "replaces / pass": best["replaces"] / once,
        "with the intended result": f"{calls.as_meant:.0%}",
        "goal": at_most(best["replaces"] / once, 1.0),
    }


class Calls:
    """Draws whose scores are long or short: the former are rejected, the latter replace others."""

    def __init__(self, module: nn.Module, collector: Collector) -> None:
        self.module, self.collector = module, collector
        self.rng = np.random.default_rng(0)
        self.said: list[bool] = []

    @property
    def as_meant(self) -> float:
        return float(np.mean(self.said))

    def next(self, length: float) -> Callable[[], object]:
        noise = self.rng.standard_normal(self.collector.dim, dtype=np.float32)
        with torch.no_grad():
            nn.utils.vector_to_parameters(torch.from_numpy(noise), self.module.parameters())
        score = -length * noise

        def call() -> None:
            step = self.collector(score=score)
            if length != 1.0:
                self.said.append(bool(step.added) == (length < 1.0))

        return call

"""Network models, training, and the mode search of the experiments, against formulas and autograd."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from experiments.network_models.models import MLP, ConvolutionLSTM, FilterResponseNorm, ResNet20
from experiments.network_models.newton import find_mode, negative_hessian
from experiments.network_models.training import TrainingData, on_curve, train_curve, train_network
from experiments.network_models.training_config import TrainingConfig
from experiments.runner import Stopped
from steinstream.errors import InputError
from steinstream.integrations.torch import FlatNetwork, Subspace, SubspacePosterior
from steinstream.targets import Functions
from tests.network_posteriors import assert_batch_size_has_no_effect, assert_score_is_the_gradient

torch.set_num_threads(1)


def numbers(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def test_filter_response_norm_is_its_formula_and_so_is_its_gradient():
    layer = FilterResponseNorm(5, epsilon=1e-3).double()
    x = numbers(4, 5, 6, 7).requires_grad_(True)
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(5, seed=number + 1))
    scale, shift, threshold = (p[None, :, None, None] for p in layer.parameters())
    root = torch.sqrt((x**2).mean(dim=(2, 3), keepdim=True) + 1e-3)
    wanted = torch.maximum(scale * x / root + shift, threshold)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-12, atol=1e-12)
    seeds = numbers(*x.shape, seed=9)
    inputs = [x, *layer.parameters()]
    ours = torch.autograd.grad((layer(x) * seeds).sum(), inputs)
    theirs = torch.autograd.grad((wanted * seeds).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_resnet20_has_the_weights_and_layers_it_is_named_for():
    network = ResNet20()
    layers = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(layers) + 1 == 20  # and the head
    assert 268_000 < sum(p.numel() for p in network.parameters()) < 276_000
    for side in (8, 16, 32):
        assert network(torch.zeros(2, 3, side, side)).shape == (2, 10)


def test_an_output_depends_on_its_input_only():
    """Without batch normalisation, other inputs in the batch have no influence."""
    network, x = ResNet20(10, 4).double(), numbers(6, 3, 8, 8)
    torch.testing.assert_close(network(x)[2:3], network(x[2:3]), rtol=1e-10, atol=1e-12)


def test_given_word_vectors_are_not_trained():
    vectors = np.random.default_rng(0).normal(size=(30, 7))
    fixed, own = ConvolutionLSTM(vectors=vectors, cells=8), ConvolutionLSTM(words=30, cells=8)
    x = torch.randint(0, 30, (3, 20))
    assert fixed(x).shape == own(x).shape == (3, 2)
    extra = own.words.embedding.weight.numel() + 64 * (128 - 7) * 5
    assert FlatNetwork(own).size - FlatNetwork(fixed).size == extra


def resnet_posterior(**settings):
    network = FlatNetwork.from_seed(lambda: ResNet20(10, 4).double(), seed=0)
    space = Subspace.random(network.weights(), 3, seed=1)
    return SubspacePosterior(
        network, space, numbers(24, 3, 8, 8), torch.arange(24) % 10, prior_variance=0.2, temperature=1.5, **settings
    )


def lstm_posterior(**settings):
    network = FlatNetwork.from_seed(lambda: ConvolutionLSTM(words=30, cells=8).double(), seed=0)
    ends = [network.weights() + 0.05 * numbers(network.size, seed=seed) for seed in range(3)]
    words = torch.as_tensor(np.random.default_rng(0).integers(0, 30, (24, 20)))
    return SubspacePosterior(network, Subspace.from_curve(*ends), words, torch.arange(24) % 2, **settings)


@pytest.mark.parametrize("create", [resnet_posterior, lstm_posterior])
def test_the_score_of_the_models_is_the_gradient_of_the_log_density(create):
    assert_score_is_the_gradient(create())


@pytest.mark.parametrize("create", [resnet_posterior, lstm_posterior])
def test_results_do_not_depend_on_the_batch_size(create):
    assert_batch_size_has_no_effect(create)


def test_the_mode_is_found_along_a_curved_valley():
    """Rosenbrock's function, started at the other end of the valley."""
    valley = Functions(
        lambda z: -float((1 - z[0]) ** 2 + 100 * (z[1] - z[0] ** 2) ** 2),
        lambda z: np.array([2 * (1 - z[0]) + 400 * z[0] * (z[1] - z[0] ** 2), -200 * (z[1] - z[0] ** 2)]),
    )
    top = find_mode(valley, np.array([-1.0, 1.0]))
    assert valley.log_density(top) > -0.02
    np.testing.assert_allclose(negative_hessian(valley, np.ones(2)), [[802, -400], [-400, 200]], rtol=1e-4)


# -- training ------------------------------------------------------------------------------------------------------


def blobs(seed=0):
    x = numbers(200, 2, seed=seed)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return x, y


def loss(network, weights, x, y):
    return torch.nn.functional.cross_entropy(network(weights, x), y).item()


def test_training_resumes_from_its_checkpoint_bit_for_bit(tmp_path):
    x, y = blobs()
    config = TrainingConfig(8, 3, rate=0.2, averaged_rate=0.1, batch=32)

    def train(path, progress=lambda fraction: None):
        network = FlatNetwork.from_seed(lambda: MLP([2, 8, 2]).double(), seed=1)
        return train_network(network, TrainingData(x, y, 1.0), config, seed=4, checkpoint=path, progress=progress)

    def stop(fraction):
        if fraction > 0.7:
            raise Stopped

    whole = train(tmp_path / "whole.npz")
    with pytest.raises(Stopped):
        train(tmp_path / "cut.npz", stop)
    with np.load(tmp_path / "cut.npz") as saved:
        assert 0 < int(saved["epochs"]) < 8
    assert torch.equal(train(tmp_path / "cut.npz"), whole)
    assert torch.equal(train(tmp_path / "cut.npz"), whole)  # complete: no further training


def test_the_curve_keeps_its_ends_and_reduces_the_loss_between_them(tmp_path):
    x, y = blobs()
    network = FlatNetwork.from_seed(lambda: MLP([2, 8, 2]).double(), seed=0)
    data, config = TrainingData(x, y, 10.0), TrainingConfig(60, 10, rate=0.3, averaged_rate=0.1, batch=32)
    ends = []
    for seed in (1, 2):
        end = FlatNetwork.from_seed(lambda: MLP([2, 8, 2]).double(), seed=seed)
        ends.append(train_network(end, data, config, seed=seed, checkpoint=tmp_path / f"{seed}.npz"))
    before = [end.clone() for end in ends]
    midpoint = train_curve(network, tuple(ends), data, config, seed=3, checkpoint=tmp_path / "middle.npz")
    assert all(torch.equal(one, other) for one, other in zip(ends, before, strict=True))
    assert torch.equal(on_curve(ends[0], midpoint, ends[1], 0.0), ends[0])
    torch.testing.assert_close(on_curve(ends[0], midpoint, ends[1], 1.0), ends[1])
    torch.testing.assert_close(on_curve(ends[0], midpoint, ends[1], 0.5), midpoint)
    places = np.linspace(0.1, 0.9, 9)
    straight = [loss(network, (1 - t) * ends[0] + t * ends[1], x, y) for t in places]
    curved = [loss(network, on_curve(ends[0], midpoint, ends[1], t), x, y) for t in places]
    assert max(curved) < 0.6 * max(straight)
    assert max(loss(network, end, x, y) for end in ends) < 0.3


def test_divergent_training_is_reported(tmp_path):
    x, y = blobs()
    with pytest.raises(InputError, match="diverged in epoch"):
        train_network(
            FlatNetwork.from_seed(lambda: MLP([2, 8, 2]), seed=1),
            TrainingData(x.float(), y, 1e-3),
            TrainingConfig(50, 1, rate=1e30, max_gradient=1e30),
            seed=0,
            checkpoint=tmp_path / "x.npz",
        )

"""Networks as functions of their weights, and the posterior on a subspace, against formulas and autograd."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

import steinstream as ss
from steinstream.errors import InputError
from steinstream.integrations.torch import FlatNetwork, Subspace, SubspacePosterior
from steinstream.samplers import SGLD
from tests.network_posteriors import assert_batch_size_has_no_effect, assert_score_is_the_gradient

torch.set_num_threads(1)


def numbers(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def mlp(*widths):
    layers = []
    for before, after in pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1]).double()


def convolution():
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 10)
    return torch.nn.Sequential(*layers).double()


def convolution_posterior(**settings):
    network = FlatNetwork.from_seed(convolution, seed=0)
    space = Subspace.random(network.weights(), 3, seed=1)
    settings = {"prior_variance": 0.2, "temperature": 1.5, **settings}
    return SubspacePosterior(network, space, numbers(24, 3, 8, 8), torch.arange(24) % 10, **settings)


def mlp_posterior(**settings):
    network = FlatNetwork.from_seed(lambda: mlp(5, 8, 2), seed=0)
    points = [network.weights() + 0.05 * numbers(network.size, seed=seed) for seed in range(3)]
    return SubspacePosterior(network, Subspace.from_curve(*points), numbers(24, 5), torch.arange(24) % 2, **settings)


class Recurrent(torch.nn.Module):
    """A network with a recurrent layer and dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 4, num_layers=2, dropout=dropout, batch_first=True)
        self.drop, self.head = torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.drop(self.lstm(x)[0][:, -1]))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_recurrent_layers_without_dropout_are_in_training_mode_with_the_outputs_of_evaluation_mode(dropout):
    """cuDNN computes the gradient of a recurrent layer only in training mode."""
    model = Recurrent(dropout).double()
    network = FlatNetwork(model).copy()
    assert network.model.lstm.training == (dropout == 0) and not network.model.drop.training
    x = numbers(5, 6, 3)
    torch.testing.assert_close(network(network.weights(), x), model.eval()(x))


def test_a_flat_network_equals_the_model_and_does_not_change_it():
    network = FlatNetwork.from_seed(convolution, seed=3)
    before, x = network.weights(), numbers(2, 3, 8, 8)
    other = before + 0.1
    changed = network(other, x)
    torch.testing.assert_close(network(before, x), network.model(x))
    assert not torch.allclose(changed, network.model(x))
    assert torch.equal(network.weights(), before)
    assert torch.equal(FlatNetwork.from_seed(convolution, seed=3).weights(), before)
    copy = network.copy()
    copy.model.load_state_dict(network.state_dict(other))
    torch.testing.assert_close(copy.model(x), changed)


def test_initial_weights_do_not_change_the_global_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    FlatNetwork.from_seed(convolution, seed=0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("create", [convolution_posterior, mlp_posterior])
def test_the_score_is_the_gradient_of_the_log_density(create):
    assert_score_is_the_gradient(create())


@pytest.mark.parametrize("create", [convolution_posterior, mlp_posterior])
def test_results_do_not_depend_on_the_batch_size(create):
    assert_batch_size_has_no_effect(create)


def test_minibatch_scores_are_unbiased():
    """The mean of the noisy scores over all pairs of four examples is the score."""
    network = FlatNetwork.from_seed(lambda: mlp(2, 3, 2), seed=0)
    space = Subspace.random(network.weights(), 2, seed=0)
    target = SubspacePosterior(network, space, numbers(4, 2), torch.tensor([0, 1, 1, 0]), prior_variance=0.5)

    class FixedChoice:
        def __init__(self, rows):
            self.rows = rows

        def choice(self, count, size, replace):
            assert (count, size, replace) == (4, 2, False)
            return np.array(self.rows)

    pairs = [(i, j) for i in range(4) for j in range(i)]
    z = np.array([0.3, -0.2])
    noises = []
    for variates in (None, target.control_variates(z), np.arange(8.0).reshape(4, 2)):  # the last are arbitrary
        noisy = [target.minibatch(2, variates)(z, FixedChoice(pair)) for pair in pairs]
        np.testing.assert_allclose(np.mean(noisy, axis=0), target.score(z), rtol=1e-10)
        noises.append(np.std(noisy, axis=0).max())
    assert noises[1] < 1e-6 * noises[0] < noises[2]  # no noise at the position of the control variates


def test_control_variates_are_the_gradients_of_single_terms():
    """For a smooth network; with kinks any control variates are valid."""
    network = FlatNetwork.from_seed(lambda: mlp(2, 5, 3), seed=0)
    space = Subspace.random(network.weights(), 2, seed=0)
    target = SubspacePosterior(network, space, numbers(20, 2), torch.arange(20) % 3, batch=7)
    z = np.array([0.1, -0.4])
    variable = torch.tensor(z, requires_grad=True)
    terms = torch.log_softmax(network(space.weights(variable), target.inputs), 1)[torch.arange(20), target.labels]
    expected = [torch.autograd.grad(term, variable, retain_graph=True)[0].numpy() for term in terms]
    np.testing.assert_allclose(target.control_variates(z), expected, rtol=1e-4, atol=1e-6)


def test_a_chain_in_the_subspace_is_thinned():
    """SGLD with minibatches in a plane, thinned without any adapter."""
    network = FlatNetwork.from_seed(lambda: mlp(2, 2), seed=0)
    x = numbers(60, 2)
    target = SubspacePosterior(network, Subspace.random(network.weights(), 2, seed=0), x, (x[:, 0] > 0).long())
    sampler = SGLD(None, 0.02, target.minibatch(30), record="independent")
    _, block = sampler.sample(sampler.init(np.zeros(2), seed=0), 400)
    kept = ss.thin(block.draws, block.scores)
    assert 20 < len(kept) < 120
    assert target.predict(kept.draws[0], x).sum(axis=1) == pytest.approx(1.0)


def test_inconsistent_input_is_refused():
    network = FlatNetwork(mlp(2, 2))
    space = Subspace.random(network.weights(), 2, seed=0)
    labels = torch.zeros(3, dtype=torch.long)
    with pytest.raises(InputError, match="There are 3 inputs and 2 labels"):
        SubspacePosterior(network, space, torch.zeros(3, 2), labels[:2])
    with pytest.raises(InputError, match="has 9 weights, the subspace 6"):
        SubspacePosterior(FlatNetwork(mlp(2, 3)), space, torch.zeros(3, 2), labels)
    with pytest.raises(InputError, match="temperature is 0"):
        SubspacePosterior(network, space, torch.zeros(3, 2), labels, temperature=0)
    with pytest.raises(InputError, match="minibatch size is 4 for 3 examples"):
        SubspacePosterior(network, space, torch.zeros(3, 2), labels).minibatch(4)

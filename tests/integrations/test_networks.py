"""Networks, subspaces of their weights, the posterior there, and training, against formulas and autograd."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from experiments.network_models import (
    MLP,
    ConvolutionLSTM,
    FilterResponseNorm,
    Recipe,
    ResNet20,
    train_curve,
    train_network,
)
from experiments.network_models.landscape import curvature, mode
from experiments.network_models.training import on_curve
from experiments.paper import Stopped

import steinstream as ss
from steinstream.errors import InputError
from steinstream.integrations.torch.flat import FlatNetwork
from steinstream.integrations.torch.posterior import SubspacePosterior
from steinstream.integrations.torch.subspace import Subspace
from steinstream.samplers import SGLD
from steinstream.targets import Functions

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


def test_an_input_is_judged_alone():
    """No batch normalisation: what else is in the batch does not matter."""
    network, x = ResNet20(10, 4).double(), numbers(6, 3, 8, 8)
    torch.testing.assert_close(network(x)[2:3], network(x[2:3]), rtol=1e-10, atol=1e-12)


def test_given_word_vectors_are_no_weights():
    vectors = np.random.default_rng(0).normal(size=(30, 7))
    fixed, own = ConvolutionLSTM(vectors=vectors, cells=8), ConvolutionLSTM(words=30, cells=8)
    x = torch.randint(0, 30, (3, 20))
    assert fixed(x).shape == own(x).shape == (3, 2)
    extra = own.embedding.weight.numel() + 64 * (128 - 7) * 5
    assert FlatNetwork(own).size - FlatNetwork(fixed).size == extra


def test_a_flat_network_is_the_model_and_leaves_it_alone():
    network = FlatNetwork.made(lambda: ResNet20(10, 4).double(), seed=3)
    before, x = network.weights(), numbers(2, 3, 8, 8)
    other = before + 0.1
    changed = network(other, x)
    torch.testing.assert_close(network(before, x), network.model(x))
    assert not torch.allclose(changed, network.model(x))
    assert torch.equal(network.weights(), before)
    assert torch.equal(FlatNetwork.made(lambda: ResNet20(10, 4).double(), seed=3).weights(), before)
    copy = network.copy()
    copy.model.load_state_dict(network.with_names(other))
    torch.testing.assert_close(copy.model(x), changed)


def test_the_plane_of_a_curve_has_its_networks_where_the_paper_puts_them():
    first, middle, second = (numbers(50, seed=seed) for seed in range(3))
    plane = Subspace.of_curve(first, middle, second)
    for z, weights in (([1, 0], first), ([-1, 0], second), ([0, 1], middle), ([0, 0], (first + second) / 2)):
        torch.testing.assert_close(plane.weights(np.array(z, float)), weights)
        np.testing.assert_allclose(plane.preconditioner(weights), z, atol=1e-12)
    for t in (0.0, 0.3, 0.5, 0.8, 1.0):  # the whole curve lies in the plane
        point = on_curve(first, middle, second, t)
        torch.testing.assert_close(plane.weights(plane.preconditioner(point)), point)


def test_random_directions_are_orthonormal_and_belong_to_their_seed():
    base = numbers(40)
    space = Subspace.random(base, 5, seed=1)
    torch.testing.assert_close(space.directions @ space.directions.T, torch.eye(5, dtype=torch.float64))
    assert torch.equal(space.directions, Subspace.random(base, 5, seed=1).directions)
    assert not torch.equal(space.directions, Subspace.random(base, 5, seed=2).directions)


def test_principal_directions_hold_the_variance_of_the_trajectory():
    axes = Subspace.random(torch.zeros(30, dtype=torch.float64), 3, seed=0).directions
    points = 7.0 + numbers(400, 3) * torch.tensor([5.0, 2.0, 0.01]) @ axes
    space = Subspace.of_trajectory(points, 2)
    torch.testing.assert_close(space.base, points.mean(dim=0))
    z = np.array([space.preconditioner(point) for point in points])
    np.testing.assert_allclose(np.cov(z, rowvar=False), np.eye(2), atol=1e-9)  # one standard deviation long each
    assert (points - torch.stack([space.weights(row) for row in z])).abs().max() < 0.1


def test_directions_that_span_no_space_are_refused():
    one = numbers(10)
    with pytest.raises(InputError, match="do not span"):
        Subspace.of_curve(one, one, one)
    with pytest.raises(InputError, match=r"directions \(k, p\)"):
        Subspace(one, numbers(2, 9))
    with pytest.raises(InputError, match="3 directions from 3 networks"):
        Subspace.of_trajectory([one, 2 * one, 3 * one], 3)


def resnet_posterior(**settings):
    network = FlatNetwork.made(lambda: ResNet20(10, 4).double(), seed=0)
    space = Subspace.random(network.weights(), 3, seed=1)
    return SubspacePosterior(
        network, space, numbers(24, 3, 8, 8), torch.arange(24) % 10, prior_variance=0.2, temperature=1.5, **settings
    )


def lstm_posterior(**settings):
    network = FlatNetwork.made(lambda: ConvolutionLSTM(words=30, cells=8).double(), seed=0)
    ends = [network.weights() + 0.05 * numbers(network.size, seed=seed) for seed in range(3)]
    words = torch.as_tensor(np.random.default_rng(0).integers(0, 30, (24, 20)))
    return SubspacePosterior(network, Subspace.of_curve(*ends), words, torch.arange(24) % 2, **settings)


@pytest.mark.parametrize("made", [resnet_posterior, lstm_posterior])
def test_the_score_is_the_gradient_of_the_log_density(made):
    target = made()
    z = np.random.default_rng(5).normal(size=target.subspace.dim) * 0.3
    variable = torch.tensor(z, requires_grad=True)
    weights = target.subspace.base + variable @ target.subspace.directions
    log_likelihood = torch.log_softmax(target.network(weights, target.inputs), 1)[torch.arange(24), target.labels].sum()
    value = (log_likelihood - weights.square().sum() / (2 * target.prior_variance)) / target.temperature
    (gradient,) = torch.autograd.grad(value, variable)
    assert target.log_density(z) == pytest.approx(value.item(), rel=1e-10)
    np.testing.assert_allclose(target.score(z), gradient.numpy(), rtol=1e-8, atol=1e-8)
    nudge = 1e-5 * np.eye(len(z))
    slopes = [(target.log_density(z + e) - target.log_density(z - e)) / 2e-5 for e in nudge]
    np.testing.assert_allclose(target.score(z), slopes, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("made", [resnet_posterior, lstm_posterior])
def test_batches_change_nothing(made):
    whole, parts, z = made(batch=100), made(batch=7), np.full(made().subspace.dim, 0.2)
    assert parts.log_density(z) == pytest.approx(whole.log_density(z), rel=1e-12)
    np.testing.assert_allclose(parts.score(z), whole.score(z), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(parts.predict(z, whole.inputs), whole.predict(z, whole.inputs), atol=1e-12)
    everything = parts.minibatch(24)(z, np.random.default_rng(0))
    np.testing.assert_allclose(everything, whole.score(z), rtol=1e-9, atol=1e-9)


def test_minibatch_scores_are_unbiased():
    """Over all pairs of a few data the mean of the noisy scores is the score."""
    network = FlatNetwork.made(lambda: MLP([2, 3, 2]).double(), seed=0)
    space = Subspace.random(network.weights(), 2, seed=0)
    target = SubspacePosterior(network, space, numbers(4, 2), torch.tensor([0, 1, 1, 0]), prior_variance=0.5)

    class Chooses:
        def __init__(self, rows):
            self.rows = rows

        def choice(self, count, size, replace):
            assert (count, size, replace) == (4, 2, False)
            return np.array(self.rows)

    pairs = [(i, j) for i in range(4) for j in range(i)]
    z = np.array([0.3, -0.2])
    noises = []
    for controls in (None, target.controls(z), np.arange(8.0).reshape(4, 2)):  # the last are as wrong as can be
        noisy = [target.minibatch(2, controls)(z, Chooses(pair)) for pair in pairs]
        np.testing.assert_allclose(np.mean(noisy, axis=0), target.score(z), rtol=1e-10)
        noises.append(np.std(noisy, axis=0).max())
    assert noises[1] < 1e-6 * noises[0] < noises[2]  # where they were computed no noise is left


def test_controls_are_the_gradients_of_single_terms():
    """On a smooth network; where one has kinks, controls are as good as any."""
    network = FlatNetwork.made(lambda: MLP([2, 5, 3]).double(), seed=0)
    space = Subspace.random(network.weights(), 2, seed=0)
    target = SubspacePosterior(network, space, numbers(20, 2), torch.arange(20) % 3, batch=7)
    z = np.array([0.1, -0.4])
    variable = torch.tensor(z, requires_grad=True)
    terms = torch.log_softmax(network(space.weights(variable), target.inputs), 1)[torch.arange(20), target.labels]
    wanted = [torch.autograd.grad(term, variable, retain_graph=True)[0].numpy() for term in terms]
    np.testing.assert_allclose(target.controls(z), wanted, rtol=1e-4, atol=1e-6)


def test_the_way_up_leads_to_a_mode_along_a_bent_valley():
    """Rosenbrock's banana, from the wrong side."""
    valley = Functions(
        lambda z: -float((1 - z[0]) ** 2 + 100 * (z[1] - z[0] ** 2) ** 2),
        lambda z: np.array([2 * (1 - z[0]) + 400 * z[0] * (z[1] - z[0] ** 2), -200 * (z[1] - z[0] ** 2)]),
    )
    top = mode(valley, np.array([-1.0, 1.0]))
    assert valley.log_density(top) > -0.02
    np.testing.assert_allclose(curvature(valley, np.ones(2)), [[802, -400], [-400, 200]], rtol=1e-4)


def test_a_chain_in_the_subspace_is_thinned():
    """Through the samplers and the thinner, with nothing between: SGLD with minibatches in a plane."""
    network = FlatNetwork.made(lambda: MLP([2, 2]).double(), seed=0)
    x = numbers(60, 2)
    target = SubspacePosterior(network, Subspace.random(network.weights(), 2, seed=0), x, (x[:, 0] > 0).long())
    sampler = SGLD(None, 0.02, target.minibatch(30), record="independent")
    _, block = sampler.sample(sampler.init(np.zeros(2), seed=0), 400)
    kept = ss.thin(block.draws, block.scores)
    assert 20 < len(kept) < 120
    assert target.predict(kept.draws[0], x).sum(axis=1) == pytest.approx(1.0)


def test_what_does_not_fit_is_said():
    network = FlatNetwork(MLP([2, 2]))
    space = Subspace.random(network.weights(), 2, seed=0)
    labels = torch.zeros(3, dtype=torch.long)
    with pytest.raises(InputError, match="3 inputs and 2 labels"):
        SubspacePosterior(network, space, torch.zeros(3, 2), labels[:2])
    with pytest.raises(InputError, match="has 9 weights, the subspace 6"):
        SubspacePosterior(FlatNetwork(MLP([2, 3])), space, torch.zeros(3, 2), labels)
    with pytest.raises(InputError, match="A minibatch of 4 from 3"):
        SubspacePosterior(network, space, torch.zeros(3, 2), labels).minibatch(4)


# -- training ------------------------------------------------------------------------------------------------------


def blobs(seed=0):
    x = numbers(200, 2, seed=seed)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return x, y


def loss(network, weights, x, y):
    return torch.nn.functional.cross_entropy(network(weights, x), y).item()


def test_training_goes_on_from_its_checkpoint_bit_for_bit(tmp_path):
    x, y = blobs()
    recipe = Recipe(8, 3, rate=0.2, averaged_rate=0.1, batch=32)

    def train(path, report=lambda share: None):
        network = FlatNetwork.made(lambda: MLP([2, 8, 2]).double(), seed=1)
        return train_network(network, x, y, recipe, prior_variance=1.0, seed=4, checkpoint=path, report=report)

    def stop(share):
        if share > 0.7:
            raise Stopped

    whole = train(tmp_path / "whole.npz")
    with pytest.raises(Stopped):
        train(tmp_path / "cut.npz", stop)
    with np.load(tmp_path / "cut.npz") as saved:
        assert 0 < int(saved["epochs"]) < 8
    assert torch.equal(train(tmp_path / "cut.npz"), whole)
    assert torch.equal(train(tmp_path / "cut.npz"), whole)  # finished: nothing is done again


def test_the_curve_keeps_its_ends_and_lowers_the_loss_between(tmp_path):
    x, y = blobs()
    network = FlatNetwork.made(lambda: MLP([2, 8, 2]).double(), seed=0)
    ends = []
    for seed in (1, 2):
        made = FlatNetwork.made(lambda: MLP([2, 8, 2]).double(), seed=seed)
        recipe = Recipe(60, 10, rate=0.3, averaged_rate=0.1, batch=32)
        ends.append(
            train_network(made, x, y, recipe, prior_variance=10.0, seed=seed, checkpoint=tmp_path / f"{seed}.npz")
        )
    before = [end.clone() for end in ends]
    middle = train_curve(
        network, *ends, x, y, Recipe(60, 10, rate=0.3, averaged_rate=0.1, batch=32), prior_variance=10.0, seed=3,
        checkpoint=tmp_path / "middle.npz",
    )  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(ends, before, strict=True))
    assert torch.equal(on_curve(ends[0], middle, ends[1], 0.0), ends[0])
    torch.testing.assert_close(on_curve(ends[0], middle, ends[1], 1.0), ends[1])
    torch.testing.assert_close(on_curve(ends[0], middle, ends[1], 0.5), middle)
    places = np.linspace(0.1, 0.9, 9)
    straight = [loss(network, (1 - t) * ends[0] + t * ends[1], x, y) for t in places]
    curved = [loss(network, on_curve(ends[0], middle, ends[1], t), x, y) for t in places]
    assert max(curved) < 0.6 * max(straight)
    assert max(loss(network, end, x, y) for end in ends) < 0.3


def test_training_that_explodes_says_so(tmp_path):
    x, y = blobs()
    with pytest.raises(InputError, match="left for infinity"):
        train_network(
            FlatNetwork.made(lambda: MLP([2, 8, 2]), seed=1), x.float(), y, Recipe(50, 1, rate=1e30, longest=1e30),
            prior_variance=1e-3, seed=0, checkpoint=tmp_path / "x.npz",
        )  # fmt: skip

"""Predictions as features: computed once per draw, without side effects, and the same bits after a resumption."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

import steinstream as ss  # noqa: E402
from steinstream.ensemble import EnsemblePrediction  # noqa: E402
from steinstream.errors import InputError, ScoresWarning  # noqa: E402
from steinstream.integrations.torch import Collector, Posterior  # noqa: E402

torch.set_num_threads(1)

X = torch.linspace(-1.0, 1.0, 30)[:, None]
GRID = torch.linspace(-1.5, 1.5, 41)[:, None]


def regression(dtype=torch.float64):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(1, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).to(dtype)


def classifier(dtype=torch.float32, outputs=3):
    torch.manual_seed(0)
    layers = torch.nn.Linear(1, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.5), torch.nn.Linear(5, outputs)
    return torch.nn.Sequential(*layers).to(dtype)


def loss(module, x, y):
    return 12.5 * ((module(x.to(module[0].weight.dtype)) - y) ** 2).mean()


POSTERIOR = Posterior(lambda module, x: loss(module, x, torch.sin(3.0 * x)), prior=1.0, examples=30)


def jump(module, seed):
    """Draw new weights."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=noise).to(weight))


def collected(module, draws=60, chain=None, **options):
    """Return a collector after some independent draws of the weights; their vectors are appended to ``chain``."""
    collector = Collector(module, **{"size": 8, **options})
    for seed in range(draws):
        jump(module, seed)
        if chain is not None:
            chain.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().double().numpy().copy())
        collector(*([X] if collector.log_posterior else []))
    return collector


def outputs_of(module, draw):
    """Return the outputs of a network on the grid."""
    torch.nn.utils.vector_to_parameters(torch.tensor(draw).to(module[0].weight), module.parameters())
    with torch.no_grad():
        return module(GRID.to(module[0].weight)).double().numpy()


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("candidates", [1, 3])
def test_the_kept_networks_are_those_of_a_thinner_with_the_predictions_as_features(scored, candidates):
    module, chain = regression(), []
    posterior = POSTERIOR if scored else None
    collector = collected(
        module, log_posterior=posterior, chain=chain, predict_on=GRID, candidates=candidates, validate_scores=False
    )
    draws = np.array(chain)
    features = np.array([outputs_of(module, draw) for draw in draws])
    thinner, scores = ss.Thinner(collector.dim, size=8, candidates=candidates, validate_scores=False), None
    if scored:
        scores = ss.integrations.torch.scores(lambda w: log_density(module, w), draws)
    thinner.extend(draws, scores, features=features)
    assert collector.ids == list(thinner.kept_ids)
    assert collector.kept.settings["score"] == ("full" if scored else None)
    kept = features[[draw for _, draw in collector.ids]]
    assert np.allclose(collector.predictions.mean, kept.mean(axis=0), atol=1e-12)
    assert np.allclose(collector.predictions.variance, kept.var(axis=0), atol=1e-10)


def log_density(module, weights):
    parts = torch.split(weights, [weight.numel() for weight in module.parameters()])
    named = {n: part.reshape(w.shape) for part, (n, w) in zip(parts, module.named_parameters(), strict=True)}
    outputs = torch.func.functional_call(module, named, (X.double(),))
    return -30 * 12.5 * ((outputs - torch.sin(3.0 * X)) ** 2).mean() - 0.5 * weights.square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_of_classes_are_compared(dtype):
    module = classifier(dtype).eval()
    collector = collected(module, predict_on=GRID, predictions=EnsemblePrediction("classes"))
    each = [torch.softmax(network(GRID.to(dtype)).double(), 1).detach().numpy() for _, network in collector.networks()]
    assert np.allclose(collector.predictions.mean, np.mean(each, axis=0), atol=1e-7)
    assert collector.predictions.measures(labels=[0] * 41)["networks"] == 8


def test_one_logit_per_input_becomes_two_probabilities():
    module = classifier(outputs=1).eval()
    collector = collected(module, predict_on=GRID, predictions=EnsemblePrediction("classes"))
    each = [torch.sigmoid(network(GRID).double())[:, 0].detach().numpy() for _, network in collector.networks()]
    assert np.allclose(collector.predictions.mean[:, 1], np.mean(each, axis=0), atol=1e-7)


def test_predictions_do_not_change_training_or_random_state():
    module = classifier()
    module[2].eval()  # a part with a mode of its own
    buffers = [buffer.clone() for buffer in module.buffers()]
    state = torch.random.get_rng_state()
    collector = Collector(
        module, size=3, predict=lambda m: m(GRID) + torch.rand(1), stream_on="features", validate_scores=False
    )
    for _ in range(5):
        collector()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [part.training for part in module.modules()] == [True, True, True, False, True]
    assert all(torch.equal(one, other) for one, other in zip(module.buffers(), buffers, strict=True))
    assert all(weight.grad is None for weight in module.parameters())


def test_each_draw_is_predicted_once_in_batches():
    module, sizes = regression(), []
    module.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    collected(module, draws=20, predict_on=torch.linspace(-1, 1, 1200)[:, None], size=4)
    assert sizes == 20 * [512, 512, 176]


def test_inputs_may_be_given_in_batches():
    whole, parts = (
        collected(regression(), predict_on=given, size=6) for given in (GRID, [GRID[:7], GRID[7:30], GRID[30:]])
    )
    assert whole.ids == parts.ids and np.allclose(whole.predictions.mean, parts.predictions.mean, atol=1e-12)


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize("scored", [True, False])
def test_a_resumed_run_gives_the_same_bits(tmp_path, storage, scored):
    def run(name, cuts):
        module = regression()
        options = {"predict_on": GRID, "size": 8, "storage": storage, "folder": tmp_path / name}
        if storage == "float32":
            options["preconditioner"] = ss.Streaming("scales")
        posterior = POSTERIOR if scored else None
        collector = Collector(module, posterior, validate_scores=False, **options)
        for seed in range(150):
            if seed in cuts:
                collector.close()
                collector = Collector(module, posterior, validate_scores=False, resume=True, **options)
            jump(module, seed)
            collector(*([X] if scored else []))
        return collector

    one, other = run("one", ()), run("other", (3, 77, 120))
    assert one.ids == other.ids and one.thinner.objective == other.thinner.objective
    assert np.array_equal(one.predictions.mean, other.predictions.mean)
    assert np.array_equal(one.predictions.variance, other.predictions.variance)


def test_a_run_is_not_resumed_with_other_inputs(tmp_path):
    collected(regression(), draws=5, predict_on=GRID, folder=tmp_path).close()
    with pytest.raises(InputError, match="predict_on"):
        Collector(regression(), predict_on=GRID + 1.0, folder=tmp_path, resume=True, size=8)


def test_regression_by_a_function_needs_no_softmax_and_may_be_in_half_precision():
    for dtype in (torch.float32, torch.bfloat16):
        module = regression(dtype)
        collector = collected(module, predict=lambda m, dtype=dtype: m(GRID.to(dtype)), validate_scores=False)
        each = [network(GRID.to(dtype)).detach().double().numpy() for _, network in collector.networks()]
        assert collector.predictions.kind == "values"
        assert np.allclose(collector.predictions.mean, np.mean(each, axis=0), atol=1e-12)


def test_probabilities_in_half_precision_are_recognised():
    module = classifier(torch.bfloat16).eval()
    collector = collected(module, predict=lambda m: torch.softmax(m(GRID.bfloat16()), 1))
    assert collector.predictions.kind == "classes"


def test_scores_may_be_in_half_precision():
    module = regression(torch.bfloat16)
    collector = Collector(module, POSTERIOR, size=4, validate_scores=False)
    collector(X)
    loss(module, X, X).backward()
    collector(score=torch.cat([weight.grad.reshape(-1) for weight in module.parameters()]))
    assert collector.kept.scores.shape == (2, 19)


def test_in_a_subspace_the_predictions_are_those_of_the_positions():
    class Line:
        dim = 1
        base = torch.nn.utils.parameters_to_vector(regression().parameters()).detach()

        def weights(self, z):
            return self.base + z.to(self.base) * self.base

    module, plain = regression(), regression()
    collector = Collector(module, subspace=Line(), size=5, predict_on=GRID)
    positions = np.random.default_rng(0).normal(size=(40, 1))
    for z in positions:
        collector(position=z)
    each = [outputs_of(plain, Line().weights(torch.tensor(z)).numpy()) for z in collector.kept.draws]
    assert np.allclose(collector.predictions.mean, np.mean(each, axis=0), atol=1e-10)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("Both predict and predict_on", {"predict": lambda m: m(GRID), "predict_on": GRID}),
        ("must be a tensor or a list of tensors, got ndarray", {"predict_on": GRID.numpy()}),
        ("must be a tensor or a list of tensors, got list", {"predict_on": [(GRID, GRID)]}),
        ("needs predictions", {"stream_on": "features"}),
        ("may be logits or values", {"module": classifier(), "predict_on": GRID}),
        ("returns tuple instead of a tensor", {"module": torch.nn.LSTM(1, 2), "predict_on": GRID}),
        ("features have no effect", {"predict_on": GRID, "stream_weight": 0.0, "score": "full"}),
    ],
)
def test_predictions_that_cannot_be_used_are_errors(message, options):
    options = dict(options)
    module = options.pop("module", None) or regression(torch.float32)
    with pytest.raises(InputError, match=message):
        collector = Collector(module, size=3, **options)
        dim = collector.dim
        collector(score=np.ones(dim))


def test_a_call_with_a_batch_needs_a_log_posterior():
    with pytest.raises(InputError, match="without a log posterior"):
        Collector(regression(), size=3)(X)


def test_scores_of_all_draws_or_of_none():
    collector = Collector(regression(), size=3, candidates=2)
    collector(score=np.ones(collector.dim))
    with pytest.raises(InputError, match="Some draws have scores and others have none"):
        collector()


@pytest.mark.parametrize("factor", [-50.0, -1.0])
def test_gradients_of_a_mean_loss_are_reported_for_a_slow_langevin_chain(factor):
    """Without the factor, the number of examples, scores are 50 times too small."""
    torch.manual_seed(0)
    x = torch.linspace(-1.0, 1.0, 50).double()[:, None]
    y = torch.sin(4.0 * x) + 0.2 * torch.randn_like(x)
    module = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()

    def mean_loss():
        prior = 0.5 * sum(weight.square().sum() for weight in module.parameters()) / 50.0
        return 12.5 * ((module(x) - y) ** 2).mean() + prior

    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(500):
        optimiser.zero_grad()
        mean_loss().backward()
        optimiser.step()
    collector, step = Collector(module, size=20), 1e-4
    for _ in range(1000):
        module.zero_grad()
        mean_loss().backward()
        collector(score=collector.gradient(factor))
        with torch.no_grad():
            for weight in module.parameters():
                weight += -25.0 * step * weight.grad + step**0.5 * torch.randn_like(weight)
    if factor == -1.0:
        with pytest.warns(ScoresWarning, match="multiply them by the number of data"):
            collector.kept  # noqa: B018
    else:
        assert collector.kept.diagnose()["slow"].fired  # warnings are errors

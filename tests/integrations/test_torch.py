"""The collector: networks and payloads are those of the kept draws, also after the process was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

import steinstream as ss  # noqa: E402
from steinstream.diagnostics.running_convergence import RunningConvergence  # noqa: E402
from steinstream.ensemble import EnsemblePrediction  # noqa: E402
from steinstream.errors import CheckpointError, InputError, NegatedScoresError  # noqa: E402
from steinstream.integrations.torch import Collector, Posterior  # noqa: E402
from steinstream.validation import consecutive_ids  # noqa: E402

torch.set_num_threads(1)


def mlp(width=8, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 3)).to(dtype)


generator = torch.Generator().manual_seed(1)
inputs = torch.randn(60, 2, generator=generator)
labels = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()
reference = torch.randn(25, 2, generator=generator)


def loss(module, x, y):
    return torch.nn.functional.cross_entropy(module(x.to(module[0].weight.dtype)), y)


posterior = Posterior(loss, prior=1.0, examples=60)
batches = [(inputs[i : i + 16], labels[i : i + 16]) for i in range(0, 60, 16)]  # the last is shorter


def predict(module):
    return torch.softmax(module(reference.to(module[0].weight.dtype)), dim=1)


def langevin(module, collector, steps, seed=0, step=2e-3, call=lambda collector: collector()):
    noise = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(steps):
        gradients = torch.autograd.grad(posterior(module, inputs, labels), list(module.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(module.parameters(), gradients, strict=True):
                weight += 0.5 * step * gradient + step**0.5 * torch.randn(weight.shape, generator=noise)
        made.append(call(collector))
    return made


def flat(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize("on_disk", [True, False])
def test_kept_networks_predictions_and_payloads_are_those_of_the_kept_draws(tmp_path, storage, on_disk):
    module = mlp()
    collector = Collector(
        module,
        posterior,
        data=batches,
        folder=tmp_path / "run" if on_disk else None,
        predict=predict,
        payload=lambda module: {"first": module[0].weight, "norm": np.array([2.5])},
        storage=storage,
        size=10,
    )
    stored = []
    steps = langevin(module, collector, 60, call=lambda c: (stored.append(flat(module)), c())[1])
    kept = collector.kept
    assert len(kept) == 10 and kept.settings["score"] == "full" and kept.settings["seen"] == 60
    assert any(step.dropped for step in steps)
    ids = [tuple(id) for id in kept.ids.tolist()]
    networks = list(collector.networks())
    assert [id for id, _ in networks] == ids == collector.ids
    for id, network in networks:
        assert np.array_equal(flat(network), stored[id[1]])
    assert np.array_equal(kept.draws, np.array([stored[draw] for _, draw in ids]))
    again = np.mean([predict(network).detach().numpy().astype(np.float64) for _, network in networks], axis=0)
    assert collector.predictions.count == 10
    assert np.abs(collector.predictions.mean - again).max() < 1e-6
    for (_, payload), (_, network) in zip(collector.payloads(), networks, strict=True):
        assert torch.equal(payload["first"], network[0].weight) and payload["norm"].item() == 2.5
    if on_disk:
        names = {path.name for path in (tmp_path / "run" / "draws").glob("*.safetensors")}
        assert names == {f"{chain}_{draw}.safetensors" for chain, draw in ids}


def test_stored_weights_can_be_loaded_into_a_module(tmp_path):
    from safetensors.torch import load_file

    module = mlp()
    collector = Collector(module, posterior, data=batches, folder=tmp_path, predict=predict, size=3)
    langevin(module, collector, 10)
    fresh = mlp()
    file = tmp_path / "draws" / "{}_{}.safetensors".format(*collector.ids[-1])
    missing = fresh.load_state_dict(load_file(file), strict=False)
    assert not missing.missing_keys
    assert np.array_equal(flat(fresh), collector.kept.draws[-1].astype(np.float32))


def test_the_result_is_that_of_the_stored_chain():
    module, chain = mlp(dtype=torch.float64), []
    collector = Collector(
        module, posterior, data=batches, preconditioner=ss.Preconditioner.length_scale(5.0), growth="sqrt"
    )
    langevin(module, collector, 40, call=lambda c: (chain.append(torch.tensor(flat(module))), c())[1])
    scores = []
    for weights in chain:  # scores from all data at once
        torch.nn.utils.vector_to_parameters(weights, module.parameters())
        value = -60 * loss(module, inputs, labels) - 0.5 * sum(w.square().sum() for w in module.parameters())
        scores.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(module.parameters()))]).numpy())
    thinner = ss.Thinner(collector.dim, preconditioner=ss.Preconditioner.length_scale(5.0), growth="sqrt")
    thinner.extend(np.array([weights.numpy() for weights in chain]), np.array(scores))
    kept = collector.kept
    assert np.array_equal(kept.ids, thinner.kept.ids)
    assert kept.ksd == pytest.approx(thinner.ksd, rel=1e-10)
    assert np.allclose(kept.scores, thinner.kept.scores, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("candidates", [1, 5])
def test_convergence_of_the_chains_is_recorded(candidates):
    module, chains = mlp(dtype=torch.float64), np.random.default_rng(0).normal(size=(2, 200, 51)) / 10
    chains[1, :, 21] += 1.0
    collector = Collector(module, candidates=candidates, size=10)
    assert collector.dim == 51
    for draw in range(200):
        for chain in range(2):
            weights = torch.tensor(chains[chain, draw])
            torch.nn.utils.vector_to_parameters(weights, module.parameters())
            collector(chain=chain)
    expected = RunningConvergence(51)
    for chain in range(2):
        expected.add(consecutive_ids(chain, 0, 200), chains[chain])
    source = collector.kept.settings["source"]
    assert source == {"tool": "torch", **expected.summary()} and source["rhat_of"] == "x21" and source["rhat"] > 2


def test_each_kind_of_score_is_computed_from_its_batch():
    module = mlp(dtype=torch.float64)

    def by_hand(*batch):
        value = posterior(module, *batch)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(module.parameters()))]).numpy()

    def only(collector, *batch, **given):
        collector(*batch, **given)
        return collector.kept.scores[0]

    full = Collector(module, posterior, data=batches)
    assert np.allclose(only(full), by_hand(inputs, labels), rtol=1e-12)
    assert np.allclose(only(Collector(module, posterior), inputs, labels), by_hand(inputs, labels), rtol=1e-12)
    own = Collector(module, posterior, score="minibatch")
    assert np.allclose(only(own, *batches[1]), by_hand(*batches[1]), rtol=1e-12)
    assert own.kept.settings["score"] == "minibatch"
    other = Collector(module, posterior, score="independent", data=batches, growth="none", validate_scores=False)
    for _ in range(6):
        other()
    expected = [by_hand(*batches[i % 4]) for i in range(6)]
    assert np.allclose(other.kept.scores, expected, rtol=1e-12)
    whole = Collector(module, lambda module: posterior(module, inputs, labels))
    assert np.allclose(only(whole), by_hand(inputs, labels), rtol=1e-12)
    loss(module, *batches[0]).backward()
    given = Collector(module, score="minibatch")
    expected = by_hand(*batches[0]) + flat(module)  # without the prior
    assert np.allclose(only(given, score=given.gradient(-60.0)), expected, rtol=1e-9, atol=1e-12)


def test_the_module_and_its_gradients_do_not_change():
    module = mlp()
    loss(module, inputs, labels).backward()
    before, gradients = flat(module).copy(), [w.grad.clone() for w in module.parameters()]
    module.eval()
    collector = Collector(module, posterior, data=batches, predict=predict, candidates=2, size=2)
    with torch.no_grad():
        for _ in range(6):
            collector()
    list(collector.networks())
    assert np.array_equal(flat(module), before) and not module.training
    assert all(torch.equal(w.grad, g) for w, g in zip(module.parameters(), gradients, strict=True))


@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_the_best_candidate_is_stored_with_the_weights_it_had(tmp_path, storage):
    module, chain = mlp(), []
    options = {"preconditioner": ss.Preconditioner.length_scale(5.0), "growth": "linear", "storage": storage}
    options["stream_weight"] = 0.0  # every step adds a draw
    collector = Collector(module, posterior, data=batches, candidates=4, folder=tmp_path, predict=predict, **options)
    steps = langevin(module, collector, 43, call=lambda c: (chain.append(flat(module)), c())[1])
    assert [i for i, step in enumerate(steps) if step.added] == list(range(3, 43, 4))
    assert collector.thinner.steps == 10 and collector.kept.settings["candidates"] == 4
    assert len({draw % 4 for _, draw in collector.ids}) > 1
    networks = list(collector.networks())
    for id, network in networks:
        assert np.array_equal(flat(network), chain[id[1]])
    again = np.mean([predict(network).detach().numpy() for _, network in networks], axis=0)
    assert np.abs(collector.predictions.mean - again).max() < 1e-6


class Plane:
    """w = base + z directions."""

    def __init__(self, module, dim=2):
        self.dim = dim
        self.base = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
        self.directions = torch.randn(dim, len(self.base), generator=torch.Generator().manual_seed(3)) / 5
        self.directions = self.directions.to(self.base)

    def weights(self, z):
        return self.base + z.to(self.base) @ self.directions

    def coordinates(self, weights):
        return torch.linalg.lstsq(self.directions.T, (weights - self.base)[:, None]).solution[:, 0]


@pytest.mark.parametrize("given", [True, False])
def test_in_a_subspace_draws_are_positions_and_scores_their_gradients(tmp_path, given):
    module = mlp(dtype=torch.float64)
    plane = Plane(module)
    options = {"data": batches, "subspace": plane, "predict": predict, "folder": tmp_path, "size": 5}
    collector = Collector(module, posterior, **options)
    rng = np.random.default_rng(0)
    positions = rng.normal(size=(20, 2))
    for z in positions:
        if given:
            collector(position=z)
        else:
            torch.nn.utils.vector_to_parameters(plane.weights(torch.tensor(z)), module.parameters())
            collector()
    kept = collector.kept
    assert kept.draws.shape == (5, 2)
    assert np.allclose(kept.draws, positions[kept.ids[:, 1]], atol=1e-12)
    names = [name for name, _ in module.named_parameters()]
    for (_, network), z, score in zip(collector.networks(), kept.draws, kept.scores, strict=True):
        place = torch.tensor(z, requires_grad=True)
        parts = torch.split(plane.weights(place), [w.numel() for w in module.parameters()])
        shapes = [w.shape for w in module.parameters()]
        weights = {n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        value = torch.func.functional_call(module, weights, (inputs.double(),))
        log = -60 * torch.nn.functional.cross_entropy(value, labels)
        log = log - 0.5 * sum(p.square().sum() for p in weights.values())
        (slope,) = torch.autograd.grad(log, place)
        assert np.allclose(score, slope.numpy(), rtol=1e-8)
        assert np.allclose(flat(network), plane.weights(torch.tensor(z)).numpy(), atol=1e-12)
    networks = [predict(network).detach().numpy() for _, network in collector.networks()]
    assert np.abs(collector.predictions.mean - np.mean(networks, axis=0)).max() < 1e-9
    ids = collector.ids
    collector.close()
    again = Collector(module, posterior, resume=True, **options)
    assert again.ids == ids and np.array_equal(again.kept.draws, kept.draws)
    assert np.array_equal(again.predictions.mean, collector.predictions.mean)


@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_a_resumed_run_gives_the_same_bits(tmp_path, storage):
    def run(folder, cut):
        module = mlp()
        options = {"data": batches, "predict": predict, "size": 8, "storage": storage, "folder": tmp_path / folder}
        collector = Collector(module, posterior, preconditioner=ss.Streaming("scales", first=20), **options)
        for seed in range(4):
            if cut and seed:
                collector.save()
                collector.close()
                collector = Collector(
                    module, posterior, preconditioner=ss.Streaming("scales", first=20), resume=True, **options
                )
            langevin(module, collector, 12, seed=seed)
        return collector

    one, other = run("one", False), run("other", True)
    assert one.ids == other.ids and one.thinner.ksd == other.thinner.ksd and one.thinner.seen == other.thinner.seen
    assert np.array_equal(one.kept.scores, other.kept.scores)
    assert np.array_equal(one.predictions.mean, other.predictions.mean)
    assert one.kept.settings["source"] == other.kept.settings["source"]
    for id in one.ids:
        name = f"draws/{id[0]}_{id[1]}.safetensors"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_float32_draws_are_not_stored_in_the_checkpoint_again(tmp_path):
    module = torch.nn.Linear(2000, 10)
    options = {"preconditioner": ss.Preconditioner.length_scale(9.0), "stream_weight": 0.0}
    collector = Collector(module, score="minibatch", folder=tmp_path, size=4, **options)
    assert collector.thinner.config.storage == "float32" and collector.dim == 20_010
    for _ in range(6):
        with torch.no_grad():
            module.weight += 0.1 * torch.randn(10, 2000)
        collector(score=-flat(module))
    assert (tmp_path / "thinner.npz").stat().st_size < 3 * 8 * collector.dim
    collector.close()
    again = Collector(
        module,
        score="minibatch",
        folder=tmp_path,
        size=4,
        resume=True,
        **options,
    )
    assert np.array_equal(again.kept.draws, collector.kept.draws) and again.thinner.ksd == collector.thinner.ksd


def test_regression_predictions_have_a_variance():
    module = torch.nn.Linear(1, 1)
    x = torch.linspace(-1, 1, 7)[:, None]
    options = {"predict": lambda m: m(x)[:, 0], "predictions": EnsemblePrediction("values"), "validate_scores": False}
    collector = Collector(module, score="minibatch", size=5, **options)
    for _ in range(12):
        torch.nn.init.normal_(module.weight)
        collector(score=-flat(module))
    each = [network(x)[:, 0].detach().numpy() for _, network in collector.networks()]
    assert np.allclose(collector.predictions.mean, np.mean(each, axis=0), atol=1e-6)
    assert np.allclose(collector.predictions.variance, np.var(each, axis=0), atol=1e-6)


def test_buffers_and_shared_weights_are_restored():
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Linear(3, 3)
            self.two = torch.nn.Linear(3, 3)
            self.two.weight = self.one.weight
            self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
            self.register_buffer("seen", torch.zeros(1))

    module = Shared()
    collector = Collector(module, score="minibatch", size=2, validate_scores=False)
    assert collector.dim == 9 + 3 + 3
    for number in range(4):
        torch.nn.init.normal_(module.one.weight)
        module.seen += 1
        collector(score=-torch.cat([w.reshape(-1) for w in module.parameters() if w.requires_grad]))
        assert module.seen == number + 1
    for id, network in collector.networks():
        assert network.seen == id[1] + 1 and network.two.weight is network.one.weight


def test_draws_of_several_chains_have_separate_ids():
    module = mlp()
    collector = Collector(module, posterior, data=batches, growth="none", candidates=2)
    for _ in range(4):
        collector(chain=0)
        collector(chain=7)
    assert len(collector.ids) == 4 and {chain for chain, _ in collector.ids} == {0, 7}


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("score must be 'full' or 'minibatch' or 'independent'", {"score": "noisy"}),
        ("hold draws back", {"thinner": ss.Thinner(51, candidates=2)}),
        ("hold draws back", {"preconditioner": ss.Warmup()}),
        ("candidates must be", {"candidates": 0}),
        ("Unknown setting 'sise'", {"sise": 3}),
        ("for 50 dimensions, the draws have 51", {"thinner": ss.Thinner(50)}),
        ("Both a thinner and settings", {"thinner": ss.Thinner(51), "size": 3}),
        ("already has draws", {"thinner": ss.Thinner(51, initial=(np.ones((1, 51)), np.ones((1, 51))))}),
    ],
)
def test_wrong_settings_are_errors(message, options):
    with pytest.raises(InputError, match=message):
        Collector(mlp(), posterior, **options)


def test_wrong_calls_are_errors():
    module = mlp()
    with pytest.raises(InputError, match="minibatch of the step is not known"):
        Collector(module, posterior, score="minibatch")()
    with pytest.raises(InputError, match="position was given without a subspace"):
        Collector(module, posterior)(position=[1.0])
    with pytest.raises(InputError, match="must be a scalar, got shape"):
        Collector(module, lambda m, x, y: m(x))(inputs, labels)
    with pytest.raises(InputError, match="has no gradient"):
        Collector(module).gradient(-1.0)
    with pytest.raises(InputError, match="No data are given to compute"):
        Collector(module, posterior, data=[])()
    with pytest.raises(InputError, match="not a distribution"):
        logits = {"predict": lambda m: m(reference), "predictions": EnsemblePrediction("classes")}
        Collector(module, posterior, data=batches, **logits)()
    with pytest.raises(InputError, match="No weight of the module requires a gradient"):
        Collector(torch.nn.Tanh())
    with pytest.raises(InputError, match="is nan in coordinate 0"):
        Collector(module)(score=np.full(51, np.nan))


def test_after_a_failed_write_the_collector_stops_and_the_folder_is_consistent(tmp_path):
    module, bad = mlp(), [False]

    def fails(module):
        if bad[0]:
            raise RuntimeError("out of memory")
        return predict(module)

    options = {"data": batches, "folder": tmp_path, "size": 3, "predict": fails}
    collector = Collector(module, posterior, **options)
    langevin(module, collector, 5)
    bad[0] = True
    with pytest.raises(RuntimeError, match="out of memory"):
        langevin(module, collector, 100)
    with pytest.raises(InputError, match="could not be stored"):
        collector()
    collector.close()
    bad[0] = False
    again = Collector(module, posterior, resume=True, **options)
    assert again.predictions.count == len(again.ids) == 3
    assert {path.stem for path in tmp_path.glob("draws/*.safetensors")} == {f"{c}_{d}" for c, d in again.ids}
    assert again.thinner.seen < collector.thinner.seen
    langevin(module, again, 5)


def test_negated_scores_are_an_error():
    module = mlp()
    collector = Collector(module, size=3)
    with pytest.raises(NegatedScoresError):
        for _ in range(110):
            torch.nn.init.normal_(module[0].weight)
            torch.nn.init.normal_(module[2].weight)
            collector(score=2.0 * flat(module))


def test_a_run_in_the_folder_is_not_overwritten_or_continued_with_other_settings(tmp_path):
    module = mlp()
    collector = Collector(module, posterior, data=batches, folder=tmp_path, size=3)
    collector()
    collector.close()
    same = Collector(module, posterior, data=batches, folder=tmp_path, resume=True, config=ss.ThinConfig(size=3))
    assert same.ids == collector.ids
    same.close()
    with pytest.raises(InputError, match="already holds a run"):
        Collector(module, posterior, data=batches, folder=tmp_path, size=3)
    for message, options in (
        ("size = 3, but now size = 4", {"size": 4}),
        ("collector", {"size": 3, "score": "independent"}),
        ("preconditioner", {"size": 3, "preconditioner": ss.Preconditioner.length_scale(2.0)}),
        ("history", {"size": 3, "history": "all"}),
        ("preconditioner", {"size": 3, "storage": "float32", "preconditioner": ss.Streaming()}),
        ("predict", {"size": 3, "predict": predict}),
    ):
        with pytest.raises(InputError, match=message):
            Collector(module, posterior, **{"data": batches, "folder": tmp_path, "resume": True, **options})
    (tmp_path / "draws" / "0_0.safetensors").unlink()
    with pytest.raises(CheckpointError, match="have no file in"):
        Collector(module, posterior, data=batches, folder=tmp_path, resume=True, size=3)


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np, torch
import steinstream as ss
from steinstream.integrations.torch import Collector
from steinstream.ensemble import EnsemblePrediction
torch.set_num_threads(1)

folder, kills, storage = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
module, x = torch.nn.Linear(20, 3), torch.eye(20)


def predict(module):
    return torch.softmax(module(x), dim=1)


def opened():
    return Collector(
        module, score="minibatch", folder=folder, resume=True, size=8, storage=storage, predict=predict,
        predictions=EnsemblePrediction(), validate_scores=False, preconditioner=ss.Preconditioner.length_scale(8.0),
    )


def weights(number):
    return torch.randn(63, generator=torch.Generator().manual_seed(number))


def run():
    collector = opened()
    while True:
        torch.nn.utils.vector_to_parameters(weights(collector.thinner.seen), module.parameters())
        collector(score=-weights(collector.thinner.seen))


def require_consistent():
    collector = opened()
    files = {path.name for path in (folder / "draws").rglob("*")}
    assert files == {".lock", ".new", *(f"{chain}_{draw}.safetensors" for chain, draw in collector.ids)}, files
    assert {path.name for path in folder.iterdir()} <= {"draws", "thinner.npz"}
    for id, network in collector.networks():
        assert torch.equal(torch.nn.utils.parameters_to_vector(network.parameters()), weights(id[1]))
    assert collector.predictions.count == len(collector.ids) == len(collector.thinner)
    if collector.ids:
        each = [predict(network).detach().double().numpy() for _, network in collector.networks()]
        assert np.abs(np.mean(each, axis=0) - collector.predictions.mean).max() < 1e-6
        kept = collector.kept
        assert abs(kept.ksd / ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner) - 1) < 1e-9
    collector.close()
    return collector.thinner.seen


warm = Collector(module, score="minibatch", size=2, storage=storage, predict=predict)
for number in range(4):  # compile everything before the first fork
    warm(score=-weights(number))
require_consistent()
random.seed(0)
seen = 0
saved = folder / "thinner.npz"
for number in range(kills):
    before = saved.stat().st_mtime_ns if saved.exists() else 0
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    while number % 2 and (saved.stat().st_mtime_ns if saved.exists() else 0) == before:
        time.sleep(0.001)  # every second child makes progress, however busy the machine is
    time.sleep(random.uniform(0.0, 0.3))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    now = require_consistent()
    assert now >= seen + number % 2
    seen = now
print(json.dumps({"seen": seen}))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs fork and kill")
@pytest.mark.parametrize(("storage", "kills"), [("float32", 50), ("float64", 10)])
def test_draws_and_payloads_agree_after_a_kill_at_any_moment(tmp_path, storage, kills):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(kills), storage]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["seen"] >= kills // 2

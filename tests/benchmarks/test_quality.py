"""The quality suite: metrics, targets, and resumption of a run."""

import json
import shutil
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

import steinstream as ss

pytest.importorskip("benchmarks.quality", reason="the benchmarks are not here")

from benchmarks.quality import cache, methods, metrics, predictions, run, scoring, tables
from benchmarks.quality.metrics import METRICS, OFFSETS, ChainMetrics, Reference, stride
from benchmarks.quality.sampling import Chain, Problem
from benchmarks.quality.targets import CHOOSE, CONFIRM, FRESH, TARGETS, Target

COVARIANCE = np.array([[1.0, 0.6], [0.6, 4.0]])
FACTOR = np.linalg.cholesky(COVARIANCE)


def gaussian(seed, count):
    draws = np.random.default_rng(seed).normal(size=(count, 2)) @ FACTOR.T
    return draws, -draws @ np.linalg.inv(COVARIANCE)


@pytest.fixture(scope="module")
def reference():
    return Reference.of(gaussian(1, 4000)[0])


@pytest.fixture(scope="module")
def chain(reference):
    return ChainMetrics(*gaussian(0, 2000), reference)


def even_set(count):
    """A lattice in the square, transformed to the Gaussian: it represents the target better than random draws do."""
    i = np.arange(count)
    square = np.stack([(i + 0.5) / count, (0.5 + i * 0.6180339887498949) % 1], axis=1)
    normal = np.vectorize(NormalDist().inv_cdf)(square)
    return normal @ FACTOR.T


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_rms_ratio_of_stride_thinning_to_itself_is_one(chain):
    errors = chain.stride_errors(50)
    assert errors.shape == (OFFSETS, len(METRICS))
    ratios = errors / metrics.rms_over_offsets(errors)
    np.testing.assert_allclose(np.sqrt((ratios**2).mean(0)), 1.0)


def test_offsets_of_stride_thinning_are_different_sets():
    kept = [set(stride(2000, 50, offset)) for offset in metrics.offsets(2000, 50)]
    assert len(kept) == OFFSETS
    assert all(not a & b for i, a in enumerate(kept) for b in kept[:i])
    assert len(metrics.offsets(2000, 1000)) == 2


def test_an_even_set_scores_below_stride_thinning_in_every_metric(reference):
    draws, scores = gaussian(0, 2000)
    even = even_set(100)
    found = ChainMetrics(
        np.concatenate([draws, even]), np.concatenate([scores, -even @ np.linalg.inv(COVARIANCE)]), reference
    )
    ratios = found.errors(np.arange(2000, 2100)) / metrics.rms_over_offsets(found.stride_errors(100))
    assert ratios.max() < 0.8
    assert metrics.composite(ratios) < 0.5


def test_spread_has_the_sign_of_the_error_of_the_sds(chain):
    radius = np.linalg.norm(chain.z, axis=1)
    order = np.argsort(radius)
    assert chain.spread(order[:200]).mean < -0.3
    assert chain.spread(order[-200:]).mean > 0.3
    assert chain.spread(order[-200:], scales=(1,)).scales == pytest.approx([chain.z[order[-200:], 1].std()])


def test_repeated_draws_count_as_weights(chain):
    kept = np.arange(0, 2000, 40)
    weights = np.ones(50)
    weights[3] = 3
    repeated = np.concatenate([kept, kept[[3, 3]]])
    weighted, listed = chain.errors(kept, weights), chain.errors(repeated)
    exact = [k for k, name in enumerate(METRICS) if name != "quantiles"]  # which interpolate between steps
    np.testing.assert_allclose(weighted[exact], listed[exact], rtol=1e-9)
    np.testing.assert_allclose(chain.errors(kept, np.full(50, 7.0)), chain.errors(kept))


def test_metrics_agree_with_their_definitions(chain, reference):
    kept = np.arange(0, 2000, 50)
    found = dict(zip(METRICS, chain.errors(kept), strict=True))
    z, target = chain.z[kept], reference.paired
    apart, within, among = (np.linalg.norm(a[:, None] - b, axis=2) for a, b in ((z, target), (z, z), (target, target)))
    assert found["energy"] == pytest.approx(np.sqrt(2 * apart.mean() - within.mean() - among.mean()))
    imq = [(1 / np.sqrt(1 + (each / reference.length) ** 2)).mean() for each in (within, apart, among)]
    assert found["mmd2"] == pytest.approx(imq[0] - 2 * imq[1] + imq[2])
    assert found["means"] == pytest.approx(np.sqrt((z.mean(0) ** 2).mean()))
    assert found["sds"] == pytest.approx(np.sqrt(((z.std(0) - 1) ** 2).mean()))
    assert found["correlations"] == pytest.approx(abs(np.corrcoef(z.T)[0, 1] - reference.correlations[0, 1]))
    tails = np.quantile(z, [0.05, 0.95], axis=0, method="hazen") - reference.tails
    assert found["quantiles"] == pytest.approx(np.sqrt((tails**2).mean()))


def test_ksd_is_that_of_the_package(chain, reference):
    draws, scores = gaussian(0, 2000)
    kept = np.arange(0, 2000, 50)
    preconditioner = ss.Preconditioner.covariance(reference.whitener @ reference.whitener.T)
    expected = ss.ksd(draws[kept], scores[kept], preconditioner=preconditioner)
    assert chain.errors(kept)[METRICS.index("ksd")] == pytest.approx(expected, rel=1e-9)


def test_sliced_wasserstein_of_a_shifted_set_is_the_mean_shift(reference):
    draws = reference.paired * reference.sd + reference.mean
    shifted = ChainMetrics(draws + reference.sd * (1, 0), np.zeros_like(draws), reference)
    expected = np.abs(reference.directions[0]).mean()
    assert shifted.errors(np.arange(len(draws)))[METRICS.index("sliced")] == pytest.approx(expected, rel=0.01)


def test_worth_is_monotone_and_exact_at_the_sizes_of_stride_thinning():
    sizes, errors = np.array([25, 50, 100, 200]), np.array([0.4, 0.31, 0.33, 0.1])
    assert metrics.worth(sizes, errors, 0.4) == pytest.approx(25)
    assert metrics.worth(sizes, errors, 0.1) == pytest.approx(200)
    assert metrics.worth(sizes, errors, 0.01) == pytest.approx(200)
    values = [metrics.worth(sizes, errors, error) for error in np.geomspace(1, 0.01, 50)]
    assert (np.diff(values) >= 0).all()


# -- targets -----------------------------------------------------------------------------------------------------------


def test_halves_are_balanced():
    tuned = [target for target in TARGETS.values() if target.half != FRESH]
    halves = [target.half for target in tuned]
    assert abs(halves.count(CHOOSE) - halves.count(CONFIRM)) <= 1
    kinds = {}
    for target in tuned:
        kinds.setdefault(target.kind, []).append(target.half)
    assert all({*found} == {CHOOSE, CONFIRM} for found in kinds.values() if len(found) > 1)
    assert len(TARGETS) >= 15
    assert {target.dim for target in TARGETS.values()} >= {2, 100}


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.stream == "independent"])
def test_independent_draws_have_the_scores_of_their_density(name):
    problem = TARGETS[name].build(None)
    draws, scores, log_densities = (values[0] for values in problem.chain(0))
    assert draws.shape[1] == TARGETS[name].dim
    direction = np.random.default_rng(0).normal(size=TARGETS[name].dim) * draws.std(0)
    some, step = draws[:20], 1e-5
    slopes = (problem.log_density(some + step * direction) - problem.log_density(some - step * direction)) / (2 * step)
    np.testing.assert_allclose(slopes, scores[:20] @ direction, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(problem.log_density(some), log_densities[:20])
    identity = (draws * scores).mean(0)  # -1 by partial integration
    noise = (draws * scores).std(0) / np.sqrt(len(draws))
    assert (np.abs(identity + 1) < 5 * noise).all()


@pytest.mark.parametrize("name", ["burn-in-ring", "bad-mixing-log-gamma"])
def test_random_walks_have_the_scores_of_their_density_and_an_independent_reference(name):
    problem = TARGETS[name].build(None)
    draws = problem.reference(0)[:5000]
    direction = np.random.default_rng(0).normal(size=TARGETS[name].dim) * draws.std(0)
    step = 1e-5 * direction
    slopes = (problem.log_density(draws + step) - problem.log_density(draws - step)) / 2e-5
    scores = problem.score(draws)
    np.testing.assert_allclose(slopes[:20], scores[:20] @ direction, rtol=1e-4, atol=1e-4)
    noise = (draws * scores).std(0) / np.sqrt(len(draws))
    assert (np.abs((draws * scores).mean(0) + 1) < 5 * noise).all()


# -- predictions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", predictions.PREDICT)
def test_distribution_of_new_data_has_its_mean(name):
    """The continuous distribution function at integers is that of the counts: its sums of tails are the mean."""
    pytest.importorskip("scipy")
    draws = 0.3 * np.random.default_rng(0).normal(size=(3, TARGETS[name].dim))
    means, values, below = predictions.PREDICT[name](draws)
    assert below.shape == (*means.shape, len(values))
    assert (np.diff(below, axis=2) >= 0).all()
    integers = np.arange(0, 150) if name == "fit-count" else np.arange(0, 20)
    at_integers = [[np.interp(integers, values, each) for each in rows] for rows in below]
    np.testing.assert_allclose((1 - np.array(at_integers)).sum(2), means, rtol=0.03)


def test_predictions_of_the_whole_reference_have_no_error(folder, monkeypatch):
    pytest.importorskip("scipy")

    def build(_):
        draws = 0.3 * np.random.default_rng(0).normal(size=(2000, 7))
        return Problem(lambda seed: Chain(draws[None], -draws[None]), lambda _: draws)

    monkeypatch.setitem(TARGETS, "fit-count", Target("fit-count", "finished fit", CHOOSE, 7, "independent", build))
    found = predictions.predictor("fit-count", 0)
    np.testing.assert_allclose(found.errors(np.arange(2000)), 0.0, atol=1e-9)
    narrow = np.full(100, 5)
    assert (found.errors(narrow) > 2 * found.errors(stride(2000, 100, 3))).all()
    predictions.predictor.cache_clear()


# -- methods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [True, False])
def test_online_thins_as_a_running_thinner_does(scores):
    draws = np.stack([gaussian(seed, 1000)[0] for seed in (0, 1)])
    gradient = -draws @ np.linalg.inv(COVARIANCE)
    work = methods.Work("two chains", 0, Chain(draws, gradient))
    kept = methods.METHODS["online" if scores else "online-no-scores"].select(work, 30).indices
    thinner = ss.Thinner(2, size=30)
    for i in range(0, 1000, 100):
        for chain in range(2):
            for j in range(i, i + 100):
                thinner.push(draws[chain, j], gradient[chain, j] if scores else None, id=(chain, j))
    assert sorted(kept) == sorted(thinner.kept.ids @ [1000, 1])


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An output folder, a cache, and one small target."""

    def build(_):
        draws = gaussian(2, 3000)[0]
        return Problem(lambda seed: Chain(*(values[None] for values in gaussian(seed, 1000))), lambda _: draws)

    small = Target("small", "Gaussian", CHOOSE, 2, "independent", build, sizes=(50, 100), scales=(1,))
    for name in [*TARGETS]:
        monkeypatch.delitem(TARGETS, name)
    monkeypatch.setitem(TARGETS, "small", small)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    for cached in (cache.problem, scoring.reference, scoring.scorer):
        cached.cache_clear()
    yield tmp_path
    for cached in (cache.problem, scoring.reference, scoring.scorer):
        cached.cache_clear()


@pytest.fixture
def calls(monkeypatch):
    """Methods that record what they were asked for."""
    seen = []

    def recorded(name):
        def select(work, size):
            seen.append((name, work.seed, size))
            return scoring.Selection(stride(len(work.draws), size, 0))

        return methods.Method(name, select)

    for name in ("stride", "random", "kt"):
        monkeypatch.setitem(methods.METHODS, name, recorded(name))
    return seen


def plan(folder: Path, **changes):
    return run.Plan(folder, ("small",), ("stride", "random"), (50, 100), (0, 1))._replace(**changes)


def test_a_second_run_computes_nothing(folder, calls, capsys):
    run.run(plan(folder))
    assert len(calls) == 8
    run.run(plan(folder))
    assert len(calls) == 8
    assert "small: 0 new results" in capsys.readouterr().out


def test_an_interrupted_run_continues(folder, calls, monkeypatch):
    select = methods.METHODS["random"].select

    def interrupted(work, size):
        if work.seed == 1:
            raise KeyboardInterrupt
        return select(work, size)

    monkeypatch.setitem(methods.METHODS, "random", methods.Method("random", interrupted))
    with pytest.raises(KeyboardInterrupt):
        run.run(plan(folder))
    before = [*calls]
    assert ("random", 0, 100) in before
    monkeypatch.setitem(methods.METHODS, "random", methods.Method("random", select))
    run.run(plan(folder))
    assert calls[len(before) :] == [("random", 1, 50), ("random", 1, 100)]


def test_only_missing_sizes_are_computed(folder, calls):
    run.run(plan(folder, sizes=(50,), methods=("stride",)))
    run.run(plan(folder, methods=("stride",)))
    assert calls == [("stride", 0, 50), ("stride", 1, 50), ("stride", 0, 100), ("stride", 1, 100)]


def test_changed_settings_are_computed_again(folder, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "default", methods.METHODS["stride"]._replace(name="default"))
    run.run(plan(folder, methods=("default",)))
    before = run.result_path(folder, "small", 0, "default").read_text()
    monkeypatch.setitem(methods.SETTINGS, "default", methods.Setting({"candidates": 2}))
    run.run(plan(folder, methods=("default",)))
    assert run.result_path(folder, "small", 0, "default").read_text() != before


def test_missing_packages_and_data_are_named(folder, monkeypatch, capsys):
    absent = methods.METHODS["stride"]._replace(name="kt", needs="package_that_does_not_exist")
    monkeypatch.setitem(methods.METHODS, "kt", absent)
    monkeypatch.setitem(TARGETS, "stored", TARGETS["small"]._replace(name="stored", data="no/such/file.npz"))
    run.run(plan(folder, targets=("small", "stored"), methods=("kt",)))
    output = capsys.readouterr().out
    assert "package_that_does_not_exist is missing" in output
    assert "no/such/file.npz" in output


def test_tables_are_made_again_from_the_committed_numbers(folder, calls):
    run.run(plan(folder, seeds=(0, 1, 2)))
    tables.write(folder)
    page = (folder / "results.md").read_text()
    shutil.rmtree(folder / run.RESULTS)
    tables.write(folder)
    assert (folder / "results.md").read_text() == page


def test_a_method_is_added_to_committed_results_unless_the_chains_changed(folder, calls, capsys):
    run.run(plan(folder, seeds=(0, 1, 2)))
    tables.write(folder)
    shutil.rmtree(folder / run.RESULTS)
    run.run(plan(folder, seeds=(0, 1, 2), methods=("stride", "kt")))
    assert tables.Results(folder).methods == ["stride", "random", "kt"]
    committed = folder / "results.json"
    content = json.loads(committed.read_text())
    content["results"]["small"]["stride"]["50"]["ratios"][0] *= 1.1
    committed.write_text(json.dumps(content))
    assert tables.Results(folder).methods == ["stride", "kt"]
    assert "small: the chains changed" in capsys.readouterr().out


def paired(ratios):
    """Compare two methods with these ratios (methods, cells, chains, metrics) on a target."""
    results = object.__new__(tables.Results)
    results.targets = ["small"]
    results.scores = {
        ("small", method, size): tables.Scores(each[i].mean(0), each[i], 0.0, each[0, 0, :0], 50.0)
        for method, each in zip(("passes-auto", "default"), ratios, strict=True)
        for i, size in enumerate((50, 100, 200, 500))
    }
    return tables.paired_cells(results, "passes-auto", "default")


def test_paired_comparison_finds_what_all_chains_have_in_common():
    rng = np.random.default_rng(0)
    chains = np.exp(rng.normal(size=(4, 3, len(METRICS))))  # the chains differ much more than the methods
    noise = np.exp(0.05 * rng.normal(size=(2, 4, 3, len(METRICS))))
    same = paired(chains * noise)
    assert sum(abs(cell.difference) > 2 * cell.standard_error for cell in same) <= 2
    noise[0, 1] *= 1.5
    worse = [cell for cell in paired(chains * noise) if cell.difference > 2 * cell.standard_error]
    assert {cell.metric for cell in worse if cell.size == 100} == {*METRICS[: metrics.COMPOSITE]}
    assert sum(cell.size != 100 for cell in worse) <= 2


def test_goals_are_judged_for_the_methods_that_they_name(folder, calls, monkeypatch):
    for name in ("default", "no-scores", "kt"):
        monkeypatch.setitem(methods.METHODS, name, methods.METHODS["random"]._replace(name=name))
    run.run(plan(folder, methods=("stride", "default", "no-scores", "kt")))
    found = {row[""]: row for row in tables.goals(tables.Results(folder))}
    row = found["composite, all targets"]
    assert row["default"].endswith(" MISSED") and row["no-scores"].endswith(" MISSED")
    assert row["kt"] == row["default"].removesuffix(" MISSED")
    assert found["sd of scale parameters, small, m = 200"]["default"] == ""
    alone = found["composite relative to kernel thinning"]
    assert (alone["default"], alone["no-scores"]) == ("1.00 MISSED", "1.00")


def test_tables_report_methods_and_methods_that_do_not_apply(folder, calls, monkeypatch):
    def select(work, size):
        raise methods.NotApplicableError("no log densities")

    monkeypatch.setitem(methods.METHODS, "kernax", methods.Method("kernax", select))
    run.run(plan(folder, methods=("stride", "random", "kernax")))
    results = tables.Results(folder)
    assert results.methods == ["stride", "random"]
    assert 0.3 < results.composite("stride") < 2
    assert results.scores["small", "stride", 50].worth < results.scores["small", "stride", 100].worth
    tables.write(folder)
    assert "| stride |" in (folder / "results.md").read_text()

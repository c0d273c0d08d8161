"""Thinning many chains gives the same result in this process and on a cluster, for every kind of input."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError, NegatedScoresError
from steinstream.parallel.sources import SliceSource
from steinstream.parallel.worker import Worker, without_history
from steinstream.validation import consecutive_ids
from tests.unit.parallel.chains import normal, same, write

pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")
import dask.array as da
from dask import delayed

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


# -- the result does not depend on where it is computed ---------------------------------------------------------------


def test_files_give_the_same_result_here_on_a_cluster_and_with_merge(tmp_path, client):
    paths = write(tmp_path, 9)
    here = ss.parallel.thin(paths, size=20, fan_in=4, workers=0)
    there = ss.parallel.thin(paths, size=20, fan_in=4, client=client)
    again = ss.parallel.thin(paths, size=20, fan_in=4, client=client)
    leaves = [ss.thin(*normal(number), size=40) for number in range(9)]
    by_hand = ss.merge(leaves, size=20, fan_in=4, spare=2)
    assert same(here, there) and same(here, again) and same(here, by_hand)
    assert len(there) == 20 and there.settings["seen"] == 5400 and there.ksd <= there.settings["merged"]["bound"]
    for (chain, draw), point in zip(there.ids, there.draws, strict=True):
        assert np.array_equal(normal(chain)[0][draw], point)
    assert [leaf["title"] for leaf in there.settings["leaves"]] == [path.name for path in paths]


def test_convergence_is_that_of_all_chains(tmp_path):
    chains = [normal(number) for number in range(5)]
    chains = [(x + (number == 4) * np.array([0.0, 5.0]), s) for number, (x, s) in enumerate(chains)]
    expected = RunningConvergence(2)
    for number, (x, _) in enumerate(chains):
        expected.add(consecutive_ids(number, 0, len(x)), x)
    expected = {"tool": "parallel", **expected.summary()}
    assert expected["rhat"] > 1.5 and expected["rhat_of"] == "x1" and expected["draws"] == [600] * 5
    options = {"size": 20, "workers": 0, "validate_scores": False}
    assert ss.parallel.thin(chains, **options).settings["source"] == expected
    for _ in range(2):  # the second time from the finished leaves
        kept = ss.parallel.thin(chains, folder=tmp_path / "work", **options)
        assert kept.settings["source"] == expected
    halves = [
        half for x, s in chains for half in (da.from_array(x, chunks=(300, 2)), da.from_array(s, chunks=(300, 2)))
    ]
    pieces = ss.parallel.thin(list(zip(halves[::2], halves[1::2], strict=True)), **options).settings["source"]
    assert pieces["draws"] == expected["draws"] and abs(pieces["rhat"] - expected["rhat"]) < 0.05


def test_settings_can_be_given_as_a_config():
    chains = [normal(number) for number in range(3)]
    config = ss.ThinConfig(size=15, kernel="rbf:h=2", passes=2)
    by_config = ss.parallel.thin(chains, config=config, workers=0)
    assert len(by_config) == 15
    assert same(by_config, ss.parallel.thin(chains, size=15, kernel=ss.RBF(h=2.0), passes=2, workers=0))
    assert len(ss.parallel.thin(chains, config=config, size=10, workers=0)) == 10


def test_each_chain_of_a_store_is_a_leaf(tmp_path, client):
    chains = [normal(number) for number in range(5)]
    np.savez(tmp_path / "all.npz", draws=[x for x, _ in chains], scores=[s for _, s in chains])
    store = ss.parallel.thin(tmp_path / "all.npz", size=15, client=client)
    files = ss.parallel.thin(write(tmp_path, 5), size=15, workers=0)
    assert same(store, files)
    assert [leaf["title"] for leaf in store.settings["leaves"]] == [f"all.npz[{i}]" for i in range(5)]


def test_chains_are_numbered_across_files(tmp_path):
    x, s = normal(0)
    np.savez(tmp_path / "two.npz", draws=[x[:300], x[300:]], scores=[s[:300], s[300:]])
    np.savez(tmp_path / "one.npz", draws=x[:200], scores=s[:200])
    kept = ss.parallel.thin([tmp_path / "two.npz", tmp_path / "one.npz"], size=100, spare=1, workers=0)
    assert set(kept.ids[:, 0]) == {0, 1, 2}
    ids = np.array([[7, 0], [7, 1], [9, 0], [9, 1]])
    np.savez(tmp_path / "named.npz", draws=x[:4], scores=s[:4], ids=ids)
    named = ss.parallel.thin(
        [tmp_path / "named.npz", tmp_path / "one.npz"], size=200, spare=1, workers=0, validate_scores=False
    )
    assert set(named.ids[:, 0]) <= {7, 9, 10}  # numbers in a file are kept, the next file continues after them


def test_dask_arrays_are_thinned_chunk_by_chunk(client):
    draws = np.stack([normal(number, 1000)[0] for number in range(3)])
    scores = np.stack([normal(number, 1000)[1] for number in range(3)])
    lazy = [da.from_array(part, chunks=(2, 400, 1)) for part in (draws, scores)]
    kept = ss.parallel.thin(tuple(lazy), size=25, client=client)
    pieces = [
        ss.thin(draws[c, a : a + 400], scores[c, a : a + 400], size=50) for c in range(3) for a in range(0, 1000, 400)
    ]
    assert kept.ksd == ss.merge(pieces, size=25, fan_in=16, spare=2).ksd
    assert len(kept.settings["leaves"]) == 9
    for (chain, draw), point in zip(kept.ids, kept.draws, strict=True):
        assert np.array_equal(draws[chain, draw], point)
    assert same(kept, ss.parallel.thin(tuple(lazy), size=25, workers=0))


def test_delayed_pairs_functions_and_arrays_are_accepted(client):
    pairs = [delayed(normal)(number) for number in range(3)]
    here = [normal(number) for number in range(3)]
    assert same(ss.parallel.thin(pairs, size=15, client=client), ss.parallel.thin(here, size=15, workers=0))
    draws, scores = np.stack([x for x, _ in here]), np.stack([s for _, s in here])
    assert same(ss.parallel.thin((draws, scores), size=15, client=client), ss.parallel.thin(here, size=15, workers=0))
    samplers = [lambda number=number: iter([normal(number)] * 2) for number in range(3)]
    live = ss.parallel.thin(samplers, size=15, client=client)
    assert live.settings["seen"] == 3600
    thinner = ss.Thinner(2, size=30, preconditioner=ss.Streaming())
    for _ in range(2):
        thinner.extend(*normal(0), chain=0)
    alone = ss.parallel.thin(samplers[0], size=30, spare=1, workers=0)
    assert np.array_equal(alone.ids, thinner.kept.ids) and alone.ksd == thinner.ksd


def test_labelled_dask_arrays_are_thinned_chunk_by_chunk(client):
    xr = pytest.importorskip("xarray")
    draws = np.stack([normal(number)[0] for number in range(2)])
    scores = np.stack([normal(number)[1] for number in range(2)])
    x, s = (xr.DataArray(one, dims=("chain", "draw", "p")).chunk({"draw": 200}) for one in (draws, scores))
    kept = ss.parallel.thin((x.transpose("p", "draw", "chain"), s), size=15, client=client)
    assert len(kept.settings["leaves"]) == 6
    lazy = tuple(da.from_array(one, chunks=(1, 200, 2)) for one in (draws, scores))
    assert same(kept, ss.parallel.thin(lazy, size=15, workers=0))


@pytest.mark.parametrize("kind", ["identity", "scale", "scales", "covariance", "streaming"])
def test_samplers_accept_every_kind_of_preconditioner(kind):
    kept = ss.parallel.thin([lambda: [normal(0)], lambda: [normal(1)]], size=15, workers=0, preconditioner=kind)
    assert len(kept) == 15 and kept.preconditioner.is_identity == (kind == "identity")


def test_scores_can_be_in_a_second_file(tmp_path, monkeypatch):
    x, s = normal(0)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "s.npy", -s)
    monkeypatch.chdir(tmp_path)
    kept = ss.parallel.thin("x.npy", size=15, spare=1, workers=0, read={"scores": "s.npy", "negate": True})
    assert np.array_equal(kept.ids, ss.thin(x, s, size=15).ids)


@pytest.mark.parametrize("given", [ss.Preconditioner.scales([3.0, 1.0]), np.array([3.0, 1.0])])
def test_a_given_preconditioner_is_used_by_leaves_and_tree(client, given):
    chains = [normal(number) for number in range(3)]
    kept = ss.parallel.thin(chains, size=15, client=client, preconditioner=given)
    assert np.array_equal(kept.preconditioner.factor, [3.0, 1.0])
    parts = [ss.thin(*chain, size=30, preconditioner=given) for chain in chains]
    assert same(kept, ss.merge(parts, size=15))


def test_zarr_arrays_are_read_by_the_workers(tmp_path, client):
    zarr = pytest.importorskip("zarr")
    chains = [normal(number) for number in range(3)]
    arrays = []
    for name, place in (("draws", 0), ("scores", 1)):
        array = zarr.create_array(
            str(tmp_path / f"{name}.zarr"), shape=(3, 600, 2), chunks=(1, 100, 2), dtype="float64"
        )
        array[:] = np.stack([chain[place] for chain in chains])
        arrays.append(array)
    kept = ss.parallel.thin(tuple(arrays), size=15, client=client)
    assert same(kept, ss.parallel.thin(chains, size=15, workers=0))


def test_variables_of_a_zarr_store_are_read_for_the_kept_draws(tmp_path, client):
    xr, _ = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    u = np.random.default_rng(0).normal(size=(3, 400, 2))
    coords = {"chain": np.arange(3), "draw": np.arange(400)}
    both = ("chain", "draw", "unconstrained_parameter")
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"sigma": (("chain", "draw"), np.exp(u[..., 0]))}, coords),
            "sample_stats": xr.Dataset({"gradient": (both, -u), "unconstrained_draw": (both, u)}, coords),
        }
    )
    tree.to_zarr(tmp_path / "run.zarr", zarr_format=2)
    kept = ss.parallel.thin(tmp_path / "run.zarr", size=15, client=client)
    assert same(kept, ss.parallel.thin((u, -u), size=15, workers=0))
    assert [leaf["title"] for leaf in kept.settings["leaves"]] == [f"run.zarr[{i}]" for i in range(3)]
    assert np.array_equal(kept.variables["sigma"].values, np.exp(kept.draws[:, 0]))


def test_without_a_size_the_tree_stays_within_its_budget():
    chains = [normal(number) for number in range(4)]
    kept = ss.parallel.thin(chains, workers=0, merge_budget=[1e-4, 0.0], fan_in=2, stream_weight=0.0)
    merged = kept.settings["merged"]
    assert merged["bound_by_budget"] == pytest.approx(np.sqrt(merged["leaves"] + 1e-4))
    assert kept.ksd <= merged["bound_by_budget"]
    assert len(ss.parallel.thin(chains, workers=0, stream_weight=0.0)) > len(kept)
    both = ss.parallel.thin(chains, workers=0, merge_budget=[1e-4, 0.0], fan_in=2)
    assert both.ksd <= both.settings["merged"]["bound"] and both.mmd <= both.settings["merged"]["mmd"]["bound"]


def test_draws_without_scores_in_every_form(tmp_path, client):
    draws = np.stack([normal(number)[0] for number in range(3)])
    kept = ss.parallel.thin(draws, size=20, workers=0)
    assert kept.scores is None and np.isnan(kept.ksd) and kept.mmd <= kept.settings["merged"]["mmd"]["bound"]
    assert kept.settings["leaves"][0]["ksd"] is None and kept.settings["leaves"][0]["mmd"] > 0
    for form in (
        list(draws),
        [(chain, None) for chain in draws],
        [delayed(chain) for chain in draws],
        [delayed((chain, None)) for chain in draws],
    ):
        other = ss.parallel.thin(form, size=20, client=client)
        assert np.array_equal(other.ids, kept.ids) and other.mmd == kept.mmd
    samplers = [lambda chain=chain: iter([chain[:100], chain[100:]]) for chain in draws]
    assert ss.parallel.thin(samplers, size=20, client=client).scores is None
    folder = tmp_path / "work"
    first = ss.parallel.thin(draws, size=20, workers=0, folder=folder)
    again = ss.parallel.thin(draws, size=20, workers=0, folder=folder)
    assert np.array_equal(first.ids, again.ids) and first.mmd == again.mmd == kept.mmd
    with pytest.raises(InputError, match="Part 1 has no scores, part 0 has scores"):
        ss.parallel.thin([normal(0), normal(1)[0]], size=10, workers=0)


def test_the_checks_of_one_process_run_on_the_result_of_workers(tmp_path, client):
    chains = [normal(number) for number in range(3)]
    kept = ss.parallel.thin(chains, size=30, client=client)
    names = [
        finding.name for finding in ss.thin(*map(np.stack, zip(*chains, strict=True)), size=30).diagnose().findings
    ]
    assert [finding.name for finding in kept.diagnose().findings] == names
    assert len(kept.stream.draws) == 3 * 600
    ss.parallel.thin(chains, size=30, workers=0, folder=tmp_path)
    resumed = ss.parallel.thin(chains, size=30, workers=0, folder=tmp_path)
    assert np.array_equal(resumed.stream.draws, kept.stream.draws)
    shifted = [(x + 3.0 * number, s) for number, (x, s) in enumerate(chains)]
    assert ss.parallel.thin(shifted, size=30, workers=0).diagnose()["chains"].fired


def test_workers_with_wrong_scores_cause_one_warning_here(client):
    chains = [(x, 3.0 * s) for x, s in (normal(number, 2000) for number in range(3))]
    chains[0] = normal(0, 2000)
    with pytest.warns(ss.ScoresWarning) as caught:
        ss.parallel.thin(chains, size=30, client=client)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("chain 1 and 1 more: The scores do not match the draws")


# -- what is sent between processes ------------------------------------------------------------------------------------


def test_history_is_not_sent_but_variables_and_a_part_of_the_subsample_are():
    kept = ss.thin(*normal(0), size=30)
    assert len(without_history(kept).history.step) == 0
    source = SliceSource("one", 0, *normal(0, 5000))
    leaf = Worker(ss.ThinConfig(size=30), stream_draws=100).thin(0, source)
    assert 50 <= len(leaf.stream.draws) <= 100 and leaf.stream.draws.base is None
    variables = {"a": ss.Variable(np.arange(30))}
    back = pickle.loads(pickle.dumps(without_history(replace(kept, variables=variables))))
    assert np.array_equal(back.variables["a"].values, np.arange(30))
    assert np.array_equal(back.draws, kept.draws) and back.ksd == kept.ksd and back.kernel == kept.kernel


def bytes_written(dask_worker):
    """Number of bytes that this process has written to any connection since the first call."""
    from distributed.comm import tcp

    if not hasattr(tcp, "counted"):
        plain, tcp.counted = tcp.TCP.write, 0

        async def write(self, *arguments, **options):
            number = await plain(self, *arguments, **options)
            tcp.counted += number or 0
            return number

        tcp.TCP.write = write
    return tcp.counted


def test_kept_sets_are_sent_and_draws_are_not(tmp_path, client):
    paths = write(tmp_path, 6, draws=20_000, dim=5)  # 1.6 MB each
    before = sum(client.run(bytes_written).values())
    ss.parallel.thin(paths, size=50, client=client)
    moved = sum(client.run(bytes_written).values()) - before
    worker = Worker(ss.ThinConfig(size=100), stream_draws=4096 // 6)
    each = len(pickle.dumps(worker.thin(0, SliceSource("one", 0, *normal(0, 20_000, 5)))))
    assert each < 200_000  # 1600 draws of the summary and 680 draws for the checks
    assert 3 * each < moved < 6 * each + 500_000  # kept sets and messages, whose number grows with the time


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_corrupt_file_is_an_error_or_left_out(tmp_path, client):
    paths = write(tmp_path, 17)
    paths[4].write_bytes(paths[4].read_bytes()[:2000])
    with pytest.raises(InputError, match=r"chain-04.npz") as error:
        ss.parallel.thin(paths, size=20, client=client)
    assert "--on-corrupt skip" in error.value.remedy
    with pytest.warns(UserWarning, match="1 of 17 chains were left out.*chain-04.npz"):
        kept = ss.parallel.thin(paths, size=20, client=client, on_corrupt="skip")
    assert len(kept) == 20 and kept.settings["seen"] == 16 * 600 and 4 not in kept.ids[:, 0]
    assert [one["title"] for one in kept.settings["corrupt"]] == ["chain-04.npz"]
    for (chain, draw), point in zip(kept.ids, kept.draws, strict=True):
        assert np.array_equal(normal(chain)[0][draw], point)


def test_an_invalid_draw_in_one_file(tmp_path):
    paths = write(tmp_path, 3)
    x, s = normal(1)
    x[500, 1] = np.nan
    np.savez(paths[1], draws=x, scores=s)
    with pytest.raises(InputError, match="chain 1, draw 500 is nan"):
        ss.parallel.thin(paths, size=20, workers=0)
    with pytest.warns(UserWarning, match="1 of 3 chains were left out"):
        ss.parallel.thin(paths, size=20, workers=0, on_corrupt="skip")
    kept = ss.parallel.thin(paths, size=20, workers=0, on_bad="skip")
    assert kept.settings["skipped"] == 1
    with pytest.raises(InputError, match="None of the 1 chains can be used"):
        ss.parallel.thin(paths[1:2], size=20, workers=0, on_corrupt="skip")


def test_negated_scores_are_never_skipped(client):
    chains = [(x, s) if number else (x, -s) for number, (x, s) in enumerate(map(normal, range(3)))]
    with pytest.raises(NegatedScoresError):
        ss.parallel.thin(chains, size=20, client=client, on_corrupt="skip")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": 10, "spare": 0.5}, "spare must be"),
        ({"size": 10, "fan_in": 1}, "fan_in must be"),
        ({"size": 10, "merge_budget": -1.0}, "budget must be"),
        ({"size": 10, "preconditioner": "round"}, "Unknown preconditioner"),
        ({"size": 10, "on_corrupt": "ignore"}, "on_corrupt must be"),
        ({"size": 10, "rule": "none"}, "rule must be"),
        ({"size": 10, "workers": -1}, "workers must be"),
        ({"sise": 10}, "Unknown setting 'sise'. Did you mean size"),
    ],
)
def test_wrong_settings_are_errors_before_any_work(wrong, message):
    def unread():
        raise AssertionError("a chain was read")

    with pytest.raises(InputError, match=message):
        ss.parallel.thin([unread], **{"workers": 0, **wrong})


def test_wrong_chains_are_errors(tmp_path):
    with pytest.raises(InputError, match="No chains are given"):
        ss.parallel.thin([], size=10, workers=0)
    with pytest.raises(InputError, match="A chain is a int"):
        ss.parallel.thin([3], size=10, workers=0)
    one, other = write(tmp_path, 1)[0], tmp_path / "wide.npz"
    np.savez(other, draws=np.ones((9, 3)), scores=np.ones((9, 3)))
    with pytest.raises(InputError, match=r"wide.npz has the parameters x0, x1, x2, .*chain-00.npz has x0, x1"):
        ss.parallel.thin([one, other], size=10, workers=0)


def test_errors_of_a_sampler_are_raised_here(client):
    def broken():
        yield normal(0)
        raise ZeroDivisionError("an error of the sampler")

    with pytest.raises(ZeroDivisionError, match="an error of the sampler"):
        ss.parallel.thin([broken], size=10, client=client)
    with pytest.raises(InputError, match=r"sampler 0 returned a int.*a pair \(draws, scores\)"):
        ss.parallel.thin([delayed(3)], size=10, client=client)

"""Many chains: the same result here and on a real cluster of processes, and what happens when parts of it fail."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import ClassVar

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import CheckpointError, InputError, NegatedScoresError
from steinstream.parallel.sources import ArraySource
from steinstream.parallel.worker import Leaf, light

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")
import dask.array as da  # noqa: E402
from dask import delayed  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is going down
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


def normal(seed, draws=600, dim=2):
    x = np.random.default_rng(seed).normal(size=(draws, dim)) @ np.triu(np.ones((dim, dim)))
    precision = np.linalg.inv(np.triu(np.ones((dim, dim))).T @ np.triu(np.ones((dim, dim))))
    return x, -x @ precision


def write(folder, count, draws=600, dim=2):
    paths = []
    for number in range(count):
        x, s = normal(number, draws, dim)
        path = folder / f"chain-{number:02d}.npz"
        np.savez(path, draws=x, scores=s)
        paths.append(path)
    return paths


def same(one, other):
    return (
        np.array_equal(one.ids, other.ids)
        and np.array_equal(one.draws, other.draws)
        and one.ksd == other.ksd
        and np.array_equal(one.preconditioner.factor, other.preconditioner.factor)
        and one.settings["merged"] == other.settings["merged"]
    )


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit="1GiB", dashboard_address=None, processes=True
    )
    client = distributed.Client(cluster, set_as_default=False)
    yield client
    client.close()
    cluster.close()


# -- the same everywhere -----------------------------------------------------------------------------------------------


def test_files_here_on_a_cluster_and_by_hand_are_the_same(tmp_path, client):
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


def test_a_store_of_several_chains_is_a_leaf_for_each(tmp_path, client):
    chains = [normal(number) for number in range(5)]
    np.savez(tmp_path / "all.npz", draws=[x for x, _ in chains], scores=[s for _, s in chains])
    store = ss.parallel.thin(tmp_path / "all.npz", size=15, client=client)
    files = ss.parallel.thin(write(tmp_path, 5), size=15, workers=0)
    assert same(store, files)
    assert [leaf["title"] for leaf in store.settings["leaves"]] == [f"all.npz[{i}]" for i in range(5)]


def test_files_with_several_chains_are_numbered_on(tmp_path):
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
    assert set(named.ids[:, 0]) <= {7, 9, 10}  # as the file names them; the next file's come after


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


def test_delayed_pairs_functions_and_arrays(client):
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


@pytest.mark.parametrize("kind", ["identity", "scale", "scales", "covariance", "streaming"])
def test_samplers_take_coordinates_of_every_kind(kind):
    kept = ss.parallel.thin([lambda: [normal(0)], lambda: [normal(1)]], size=15, workers=0, preconditioner=kind)
    assert len(kept) == 15 and kept.preconditioner.is_identity == (kind == "identity")


def test_scores_in_a_file_of_their_own(tmp_path, monkeypatch):
    x, s = normal(0)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "s.npy", -s)
    monkeypatch.chdir(tmp_path)
    kept = ss.parallel.thin("x.npy", size=15, spare=1, workers=0, read={"scores": "s.npy", "negate": True})
    assert np.array_equal(kept.ids, ss.thin(x, s, size=15).ids)


def test_coordinates_that_are_given_stay(client):
    chains = [normal(number) for number in range(3)]
    wide = ss.Preconditioner.scales([3.0, 1.0])
    kept = ss.parallel.thin(chains, size=15, client=client, preconditioner=wide)
    assert np.array_equal(kept.preconditioner.factor, wide.factor)
    parts = [ss.thin(*chain, size=30, preconditioner=wide) for chain in chains]
    assert same(kept, ss.merge(parts, size=15))


def test_zarr_arrays_are_read_where_they_lie(tmp_path, client):
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


def test_a_zarr_store_is_a_leaf_for_each_chain_and_brings_its_variables(tmp_path, client):
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


def test_what_else_files_know_travels_with_the_kept_set(tmp_path):
    kept = ss.thin(*normal(0), size=30)
    parted = light(kept)
    assert parted.stream is None and len(parted.history.step) == 0
    variables = {"a": ss.Variable(np.arange(30))}
    back = pickle.loads(pickle.dumps(light(replace(kept, variables=variables))))
    assert np.array_equal(back.variables["a"].values, np.arange(30)) and same_bits(back, kept)


def same_bits(one, other):
    return np.array_equal(one.draws, other.draws) and one.ksd == other.ksd and one.kernel == other.kernel


def bytes_written(dask_worker):
    """What this process has written to any connection since the first call."""
    from distributed.comm import tcp

    if not hasattr(tcp, "counted"):
        plain, tcp.counted = tcp.TCP.write, 0

        async def write(self, *arguments, **options):
            number = await plain(self, *arguments, **options)
            tcp.counted += number or 0
            return number

        tcp.TCP.write = write
    return tcp.counted


def test_only_kept_sets_travel(tmp_path, client):
    paths = write(tmp_path, 6, draws=20_000, dim=5)  # 1.6 MB each
    before = sum(client.run(bytes_written).values())
    ss.parallel.thin(paths, size=50, client=client)
    moved = sum(client.run(bytes_written).values()) - before
    one = light(ss.thin(*normal(0, 20_000, 5), size=100))
    each = len(pickle.dumps(one))
    assert each < 13_000 and one.draws.nbytes + one.scores.nbytes < sys.getsizeof(one) < each
    assert 3 * each < moved < 6 * each + 50_000  # those of one worker, the root, and messages


# -- what can go wrong -------------------------------------------------------------------------------------------------


def test_a_corrupt_file_among_good_ones(tmp_path, client):
    paths = write(tmp_path, 17)
    paths[4].write_bytes(paths[4].read_bytes()[:2000])
    with pytest.raises(InputError, match=r"chain-04.npz") as refused:
        ss.parallel.thin(paths, size=20, client=client)
    assert "--skip-corrupt" in refused.value.remedy
    with pytest.warns(UserWarning, match="1 of 17 chains were left out.*chain-04.npz"):
        kept = ss.parallel.thin(paths, size=20, client=client, on_corrupt="skip")
    assert len(kept) == 20 and kept.settings["seen"] == 16 * 600 and 4 not in kept.ids[:, 0]
    assert [one["title"] for one in kept.settings["corrupt"]] == ["chain-04.npz"]
    for (chain, draw), point in zip(kept.ids, kept.draws, strict=True):
        assert np.array_equal(normal(chain)[0][draw], point)


def test_a_file_that_goes_bad_in_the_middle(tmp_path):
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


def test_wrong_settings_are_refused_before_any_work(tmp_path):
    chains = [normal(0)]
    for wrong, message in (
        ({"size": 0}, "size must be"),
        ({"size": 10, "spare": 0.5}, "spare must be"),
        ({"size": 10, "fan_in": 1}, "fan_in must be"),
        ({"size": 10, "merge_budget": -1.0}, "budget must be"),
        ({"size": 10, "preconditioner": "round"}, "Unknown coordinates"),
        ({"size": 10, "on_corrupt": "ignore"}, "on_corrupt must be"),
        ({"size": 10, "rule": "none"}, "rule must be"),
        ({"size": 10, "workers": -1}, "workers must be"),
    ):
        with pytest.raises(InputError, match=message):
            ss.parallel.thin(chains, **{"workers": 0, **wrong})
    with pytest.raises(InputError, match="no chains to thin"):
        ss.parallel.thin([], size=10, workers=0)
    with pytest.raises(InputError, match="A chain is a int"):
        ss.parallel.thin([3], size=10, workers=0)
    one, other = write(tmp_path, 1)[0], tmp_path / "wide.npz"
    np.savez(other, draws=np.ones((9, 3)), scores=np.ones((9, 3)))
    with pytest.raises(InputError, match=r"wide.npz has 3 dimensions, .*chain-00.npz has 2"):
        ss.parallel.thin([one, other], size=10, workers=0)


def test_without_a_size_the_tree_keeps_to_its_budget():
    chains = [normal(number) for number in range(4)]
    kept = ss.parallel.thin(chains, workers=0, merge_budget=[1e-4, 0.0], fan_in=2)
    ledger = kept.settings["merged"]
    assert ledger["promised"] == pytest.approx(np.sqrt(ledger["leaves"] + 1e-4)) and kept.ksd <= ledger["promised"]
    assert len(ss.parallel.thin(chains, workers=0)) > len(kept)


def test_an_address_with_no_scheduler(monkeypatch):
    monkeypatch.setattr("steinstream.parallel.backends.KNOCK", 1.0)
    with pytest.raises(ss.parallel.ClusterError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        ss.parallel.thin([normal(0)], size=10, client="tcp://127.0.0.1:9")


def test_a_cluster_without_workers_is_no_hang(monkeypatch):
    monkeypatch.setattr("steinstream.parallel.backends.PATIENCE", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        with pytest.raises(ss.parallel.ClusterError, match="has no worker"):
            ss.parallel.thin([normal(0)], size=10, client=client)
        monkeypatch.setattr("steinstream.parallel.backends._with_workers", lambda client, tell: client)  # lost later
        with pytest.raises(ss.parallel.ClusterError, match="has had no worker for 1 s"):
            ss.parallel.thin([normal(0)], size=10, client=client)


def test_a_leaf_that_kills_every_worker_is_given_up(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(ss.parallel.ClusterError, match="Workers died again and again"):
        ss.parallel.thin([lambda: os._exit(1)], size=10, client=client)


def test_what_a_sampler_raises_comes_back(client):
    def broken():
        yield normal(0)
        raise ZeroDivisionError("the sampler's own")

    with pytest.raises(ZeroDivisionError, match="the sampler's own"):
        ss.parallel.thin([broken], size=10, client=client)
    with pytest.raises(InputError, match=r"sampler 0 gave a int.*pair of arrays"):
        ss.parallel.thin([delayed(3)], size=10, client=client)


CLUSTER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(60)
"""


def test_a_cluster_at_an_address_and_its_end(tmp_path):
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    far = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        address = far.stdout.readline().strip()
        chains = [normal(number) for number in range(3)]
        kept = ss.parallel.thin(chains, size=15, client=address)
        assert same(kept, ss.parallel.thin(chains, size=15, workers=0))
        problems = []

        def run():
            try:
                ss.parallel.thin([Stuck()], size=15, client=address)
            except ss.parallel.ClusterError as problem:
                problems.append(problem)

        waiting = Thread(target=run)
        waiting.start()
        time.sleep(1.0)
        os.killpg(far.pid, signal.SIGKILL)
        waiting.join(40)
        assert not waiting.is_alive() and "The cluster is gone" in problems[0].problem
    finally:
        far.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(far.pid, signal.SIGKILL)
        far.wait()


class Stuck:
    def __call__(self):
        time.sleep(60)
        yield normal(0)


# -- checkpoints -------------------------------------------------------------------------------------------------------


class Slow:
    """A sampler that says where it is, and takes its time until a file appears."""

    def __init__(self, number, folder):
        self.number, self.folder = number, folder

    def __call__(self, skip=0):
        x, s = normal(self.number, 2000)
        with (self.folder / f"pids-{self.number}").open("a") as file:
            file.write(f"{os.getpid()} {skip}\n")
        for begin in range(skip, 2000, 100):
            if self.number == 1 and begin >= 1000:
                while not (self.folder / "go").exists():
                    time.sleep(0.02)
            yield x[begin : begin + 100], s[begin : begin + 100]


def starts(folder, number):
    path = folder / f"pids-{number}"
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_killed_worker_costs_one_leaf_since_its_checkpoint(tmp_path, client):
    """One worker dies in the middle of leaf 1, by a signal that it cannot catch."""
    samplers = [Slow(number, tmp_path) for number in range(4)]
    work = tmp_path / "work"
    results = []
    run = Thread(
        target=lambda: results.append(ss.parallel.thin(samplers, size=20, client=client, folder=work, every=0.0))
    )
    run.start()
    until(lambda: _came(work / "leaf-00001.checkpoint") == 1000)
    os.kill(starts(tmp_path, 1)[-1][0], signal.SIGKILL)
    (tmp_path / "go").touch()
    run.join(60)
    assert not run.is_alive() and results
    assert same(results[0], ss.parallel.thin(samplers, size=20, workers=0))
    skips = [skip for _, skip in starts(work.parent, 1)]
    assert skips[-1] == 0 and 1000 in skips  # the last one is the run here; the one before went on from 1000


def _came(path):
    try:
        return ss.Thinner.load(path).current_pass.came
    except CheckpointError:
        return None


CRASH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import steinstream as ss
from test_distributed import Slow
if __name__ == "__main__":
    here = Path(sys.argv[1])
    kept = ss.parallel.thin([Slow(number, here) for number in range(3)], size=20, workers=1, folder=here / "work",
                               every=0.0)
    print(kept.ksd.hex())
"""


def test_a_killed_client_goes_on_when_started_again(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(CRASH))
    command = [sys.executable, str(script), str(tmp_path), str(Path(__file__).parent)]
    work = tmp_path / "work"
    first = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: _came(work / "leaf-00001.checkpoint") == 1000)
    os.killpg(first.pid, signal.SIGKILL)  # with all its workers
    first.wait()
    assert (work / "leaf-00000.npz").exists() and not (work / "leaf-00001.npz").exists()
    (tmp_path / "go").touch()
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 0, second.stderr
    assert [skip for _, skip in starts(tmp_path, 0)] == [0, 0]  # to learn its dimension, to thin; not the second time
    assert 1000 in [skip for _, skip in starts(tmp_path, 1)]
    whole = ss.parallel.thin([Slow(number, tmp_path) for number in range(3)], size=20, workers=0)
    assert float.fromhex(second.stdout.strip()) == whole.ksd


def test_a_folder_of_other_work_or_with_damage_is_refused(tmp_path, client):
    paths, work = write(tmp_path, 2), tmp_path / "work"
    kept = ss.parallel.thin(paths, size=20, workers=0, folder=work)
    assert sorted(path.name for path in work.iterdir()) == ["leaf-00000.npz", "leaf-00001.npz"]
    assert same(kept, ss.parallel.thin(paths, size=20, client=client, folder=work))
    with pytest.raises(CheckpointError, match=r"leaf-0000\d.npz was made .* \(settings differ\)"):
        ss.parallel.thin(paths, size=30, client=client, folder=work, on_corrupt="skip")
    with pytest.raises(CheckpointError, match="file, bytes, changed differ"):
        ss.parallel.thin([write(work, 1, draws=500)[0], paths[1]], size=20, workers=0, folder=work)
    assert len(ss.parallel.thin(paths, size=30, workers=0, folder=work, resume=False)) == 30
    done = work / "leaf-00001.npz"
    done.write_bytes(done.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"leaf-00001.npz cannot be read"):
        ss.parallel.thin(paths, size=30, workers=0, folder=work, on_corrupt="skip")


def test_a_leaf_goes_on_from_any_checkpoint_to_the_same_end(tmp_path):
    x, s = normal(3, 40_000)
    source = ArraySource("one", 0, x, s)
    whole = Leaf("auto", {"size": 20}).thin(0, source)
    leaf = Leaf("auto", {"size": 20}, passes=2, folder=tmp_path, every=0.0)
    twice = Leaf("auto", {"size": 20}, passes=2).thin(0, source)

    class Cut(Exception):
        pass

    for stop in (-3, 3, 8):  # in the look, in the first pass, in the second

        class Breaking(ArraySource):
            left: ClassVar = [10 + stop]  # there are five blocks, read for the mark and then for the look

            def blocks(self, skip=0):
                for block in super().blocks(skip):
                    self.left[0] -= 1
                    if self.left[0] < 0:
                        raise Cut
                    yield block

        with pytest.raises(Cut):
            leaf.thin(0, Breaking("one", 0, x, s))
        kept = leaf.thin(0, source)
        assert np.array_equal(kept.ids, twice.ids) and kept.ksd == twice.ksd
        (tmp_path / "leaf-00000.npz").unlink()
    assert whole.ksd > twice.ksd
    assert json.dumps(twice.settings)

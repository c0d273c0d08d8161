"""A leaf continues from any checkpoint to the same result, after any crash."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from threading import Thread
from typing import ClassVar

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import CheckpointError
from steinstream.parallel.sources import SliceSource
from steinstream.parallel.worker import Worker
from tests.unit.parallel.chains import PATIENCE, PausingSampler, normal, received, same, starts, wait_until, write

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


def test_a_killed_worker_loses_what_came_after_its_checkpoint(tmp_path, client):
    samplers = [PausingSampler(number, tmp_path) for number in range(4)]
    work = tmp_path / "work"
    results = []
    run = Thread(
        target=lambda: results.append(ss.parallel.thin(samplers, size=20, client=client, folder=work, every=0.0))
    )
    run.start()
    wait_until(lambda: received(work / "leaf-00001.checkpoint") == 1000)
    os.kill(starts(tmp_path, 1)[-1][0], signal.SIGKILL)
    (tmp_path / "go").touch()
    run.join(PATIENCE)
    assert not run.is_alive() and results
    assert same(results[0], ss.parallel.thin(samplers, size=20, workers=0))
    skips = [skip for _, skip in starts(work.parent, 1)]
    assert skips[-1] == 0 and 1000 in skips  # the last call is from the run in this process


CRASH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import steinstream as ss
from tests.unit.parallel.chains import PausingSampler
if __name__ == "__main__":
    here = Path(sys.argv[1])
    samplers = [PausingSampler(number, here) for number in range(3)]
    kept = ss.parallel.thin(samplers, size=20, workers=1, folder=here / "work", every=0.0)
    print(kept.ksd.hex())
"""


def test_the_same_call_continues_after_the_client_was_killed(tmp_path):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(CRASH))
    command = [sys.executable, str(script), str(tmp_path), str(Path(__file__).parents[3])]
    work = tmp_path / "work"
    first = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: received(work / "leaf-00001.checkpoint") == 1000)
    os.killpg(first.pid, signal.SIGKILL)  # with all of its workers
    first.wait()
    assert (work / "leaf-00000.npz").exists() and not (work / "leaf-00001.npz").exists()
    (tmp_path / "go").touch()
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode == 0, second.stderr
    assert [skip for _, skip in starts(tmp_path, 0)] == [0, 0]  # for the dimension and to thin; not in the second run
    assert 1000 in [skip for _, skip in starts(tmp_path, 1)]
    whole = ss.parallel.thin([PausingSampler(number, tmp_path) for number in range(3)], size=20, workers=0)
    assert float.fromhex(second.stdout.strip()) == whole.ksd


def test_files_of_other_chains_or_settings_and_damaged_ones_are_rejected(tmp_path, client):
    paths, work = write(tmp_path, 2), tmp_path / "work"
    kept = ss.parallel.thin(paths, size=20, workers=0, folder=work)
    files = sorted(path.name for path in work.iterdir())
    assert files == ["leaf-00000-stream.npz", "leaf-00000.npz", "leaf-00001-stream.npz", "leaf-00001.npz"]
    assert same(kept, ss.parallel.thin(paths, size=20, client=client, folder=work))
    for changed in ({"size": 30}, {"size": 20, "kernel": "rbf"}, {"size": 20, "preconditioner": [1.0, 2.0]}):
        with pytest.raises(CheckpointError, match=r"leaf-0000\d.npz was written .* \(settings differ\)"):
            ss.parallel.thin(paths, client=client, folder=work, on_corrupt="skip", **changed)
    with pytest.raises(CheckpointError, match="file, bytes, changed differ"):
        ss.parallel.thin([write(work, 1, draws=500)[0], paths[1]], size=20, workers=0, folder=work)
    assert len(ss.parallel.thin(paths, size=30, workers=0, folder=work, resume=False)) == 30
    done = work / "leaf-00001.npz"
    done.write_bytes(done.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"leaf-00001.npz cannot be read"):
        ss.parallel.thin(paths, size=30, workers=0, folder=work, on_corrupt="skip")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"draws": np.zeros(3)}, "draws has shape"),
        ({"scores": np.zeros((3, 2))}, "scores has shape"),
        ({"ids": np.zeros((1, 2))}, "ids has shape"),
        ({"ids": None}, "ids"),
        (None, "cannot be read"),
    ],
)
def test_a_forged_stream_of_a_finished_chain_is_rejected(tmp_path, changed, message):
    paths, work = write(tmp_path, 2), tmp_path / "work"
    ss.parallel.thin(paths, size=20, workers=0, folder=work)
    stream = work / "leaf-00001-stream.npz"
    with np.load(stream) as arrays:
        forged = {**arrays, **(changed or {})}
    if changed is None:
        stream.write_bytes(b"?")
    else:
        np.savez(stream, **{name: array for name, array in forged.items() if array is not None})
    with pytest.raises(CheckpointError, match=f"leaf-00001-stream.npz.*({message})"):
        ss.parallel.thin(paths, size=20, workers=0, folder=work)
    stream.unlink()
    assert len(ss.parallel.thin(paths, size=20, workers=0, folder=work)) == 20


@pytest.mark.parametrize("budget", [0.0, lambda t: 1e-6])
def test_a_leaf_continues_from_any_checkpoint_to_the_same_result(tmp_path, budget):
    x, s = normal(3, 40_000)
    source = SliceSource("one", 0, x, s)
    config = ss.ThinConfig(size=20, passes=2, budget=budget)
    once = Worker(config.replace(passes=1)).thin(0, source)
    twice = Worker(config).thin(0, source)
    worker = Worker(config, folder=tmp_path, every=0.0)

    class Interrupted(Exception):
        pass

    for stop in (-3, 3, 8):  # while fitting the preconditioner, in the first pass, in the second

        class Breaking(SliceSource):
            left: ClassVar = [10 + stop]  # five blocks are read for the digest, and five to fit the preconditioner

            def blocks(self, skip=0, **order):
                for block in super().blocks(skip, **order):
                    self.left[0] -= 1
                    if self.left[0] < 0:
                        raise Interrupted
                    yield block

        with pytest.raises(Interrupted):
            worker.thin(0, Breaking("one", 0, x, s))
        assert (tmp_path / "leaf-00000.checkpoint").exists() == (stop > 0)
        kept = worker.thin(0, source)
        assert np.array_equal(kept.ids, twice.ids) and kept.ksd == twice.ksd
        assert kept.settings["leaf"]["convergence"] == twice.settings["leaf"]["convergence"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["leaf-00000-stream.npz", "leaf-00000.npz"]
        (tmp_path / "leaf-00000.npz").unlink()
    assert once.ids.tolist() != twice.ids.tolist()
    assert json.dumps(twice.settings)

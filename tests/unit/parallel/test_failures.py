"""Whatever fails on a cluster, the result is the same as without the failure, or there is one clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import OutputError
from steinstream.parallel import backends
from tests.unit.parallel.chains import (
    PATIENCE,
    PausingSampler,
    normal,
    received,
    same,
    separate_cluster,
    starts,
    wait_for_workers,
    wait_until,
    write,
)

pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


@pytest.mark.parametrize("with_folder", [False, True])
@pytest.mark.parametrize("phase", ["opening", "thinning", "merging"])
def test_a_worker_that_is_killed_in_any_phase_changes_nothing(tmp_path, client, phase, with_folder):
    paths, killed = write(tmp_path, 6), []
    wait_for_workers(client)
    processes = client.run(os.getpid)

    def holding():
        return [worker for worker, results in client.has_what().items() if results]

    def kill(stage, done, total):
        if stage == phase and not killed:
            wait_until(holding)
            worker = holding()[0]  # it holds results of finished tasks, which are lost with it
            killed.append(worker)
            os.kill(processes[worker], signal.SIGKILL)
            wait_until(lambda: worker not in client.nthreads())

    folder = tmp_path / "work" if with_folder else None
    kept = ss.parallel.thin(paths, size=15, fan_in=2, client=client, folder=folder, progress=kill)
    assert killed and same(kept, ss.parallel.thin(paths, size=15, fan_in=2, workers=0))


def test_a_run_whose_scheduler_is_lost_is_an_error_and_can_continue(tmp_path):
    samplers, work, errors = [PausingSampler(number, tmp_path) for number in range(3)], tmp_path / "work", []
    with separate_cluster(tmp_path) as (scheduler, address):

        def run():
            try:
                ss.parallel.thin(samplers, size=15, client=address, folder=work, every=0.0)
            except ss.parallel.ClusterError as error:
                errors.append(error)

        waiting = Thread(target=run)
        waiting.start()
        wait_until(lambda: received(work / "leaf-00001.checkpoint") == 1000 or not waiting.is_alive())
        assert waiting.is_alive()
        scheduler.kill()  # the worker is not killed; it ends by itself
        waiting.join(PATIENCE)
        assert not waiting.is_alive() and "were lost" in errors[0].problem
        (tmp_path / "go").touch()
        kept = ss.parallel.thin(samplers, size=15, workers=0, folder=work)
    assert 1000 in [skip for _, skip in starts(tmp_path, 1)]  # it continued
    assert same(kept, ss.parallel.thin(samplers, size=15, workers=0))


class WaitingSampler:
    """Yields its draws when a file exists."""

    def __init__(self, number, path):
        self.number, self.path = number, path

    def __call__(self):
        wait_until(self.path.exists)
        yield normal(self.number)


def test_a_slow_leaf_is_waited_for(client, tmp_path, monkeypatch):
    looks, require = [], backends.DaskBackend._require_workers

    def look(backend, since):
        looks.append(since)
        if len(looks) == 3:  # with this limit, a second look without workers is an error
            (tmp_path / "go").touch()
        return require(backend, since)

    monkeypatch.setattr(backends, "WORKER_TIMEOUT", 0.0)
    monkeypatch.setattr(backends.DaskBackend, "_require_workers", look)
    monkeypatch.setattr(backends, "_with_workers", lambda client, tell: client)
    kept = ss.parallel.thin([normal(0), WaitingSampler(1, tmp_path / "go")], size=15, client=client)
    assert len(looks) >= 3 and same(kept, ss.parallel.thin([normal(0), lambda: iter([normal(1)])], size=15, workers=0))


class FailingSampler:
    """Raises an error after its first draws."""

    def __call__(self):
        yield normal(0)
        raise RuntimeError("the simulator has diverged")


def test_a_leaf_that_always_fails_is_one_error(client):
    with pytest.raises(RuntimeError, match="the simulator has diverged"):
        ss.parallel.thin([normal(1), FailingSampler()], size=15, client=client)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount a file system")
def test_a_shared_folder_that_fills_up_is_an_error_and_the_run_can_continue(tmp_path, client):
    paths, disk = write(tmp_path, 4), tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode:
        pytest.skip("this process cannot mount a file system")
    try:
        with pytest.raises(OutputError, match="no space left"):
            ss.parallel.thin(paths, size=15, client=client, folder=disk)
        assert not any(path.suffix == ".npz" and path.stat().st_size == 0 for path in disk.iterdir())
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        kept = ss.parallel.thin(paths, size=15, client=client, folder=disk)
        assert same(kept, ss.parallel.thin(paths, size=15, workers=0)) and np.isfinite(kept.ksd)
    finally:
        subprocess.run(["umount", disk], check=True)

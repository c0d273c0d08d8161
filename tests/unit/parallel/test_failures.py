"""Whatever fails on a cluster, the result is the same as without the failure, or there is one clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import OutputError
from steinstream.parallel import backends
from tests.unit.parallel.chains import PATIENCE, normal, same, write

pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


@pytest.mark.parametrize("with_folder", [False, True])
@pytest.mark.parametrize("phase", ["opening", "thinning", "merging"])
def test_a_worker_that_is_killed_in_any_phase_changes_nothing(tmp_path, client, phase, with_folder):
    paths, killed = write(tmp_path, 6), []
    client.wait_for_workers(2, timeout=PATIENCE)  # one may have been killed by another test
    process = next(iter(client.run(os.getpid).values()))

    def kill(stage, done, total):
        if stage == phase and not killed:
            killed.append(process)
            os.kill(process, signal.SIGKILL)

    folder = tmp_path / "work" if with_folder else None
    kept = ss.parallel.thin(paths, size=15, fan_in=2, client=client, folder=folder, progress=kill)
    assert killed and same(kept, ss.parallel.thin(paths, size=15, fan_in=2, workers=0))


class SlowSampler:
    """Yields its draws after three seconds, several times the limit for a cluster without workers."""

    def __init__(self, number):
        self.number = number

    def __call__(self):
        time.sleep(3.0)
        yield normal(self.number)


def test_a_slow_leaf_is_waited_for(client, monkeypatch):
    monkeypatch.setattr(backends, "WORKER_TIMEOUT", 0.5)
    kept = ss.parallel.thin([normal(0), SlowSampler(1)], size=15, client=client)
    assert same(kept, ss.parallel.thin([normal(0), lambda: iter([normal(1)])], size=15, workers=0))


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

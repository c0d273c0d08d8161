"""A cluster that cannot be reached, or that is lost, is an error and not an endless wait."""

import os
import signal
import subprocess
import sys
import time
from threading import Thread

import pytest

import steinstream as ss
from tests.unit.parallel.chains import PATIENCE, normal, same, separate_cluster, wait_until

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


def test_an_address_without_a_scheduler_is_an_error(monkeypatch):
    monkeypatch.setattr("steinstream.parallel.backends.CONNECT_TIMEOUT", 1.0)
    with pytest.raises(ss.parallel.ClusterError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        ss.parallel.thin([normal(0)], size=10, client="tcp://127.0.0.1:9")


def test_a_cluster_without_workers_is_an_error(monkeypatch):
    monkeypatch.setattr("steinstream.parallel.backends.WORKER_TIMEOUT", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        with pytest.raises(ss.parallel.ClusterError, match="has no workers after 1 s"):
            ss.parallel.thin([normal(0)], size=10, client=client)
        # as if the workers were lost after the start
        monkeypatch.setattr("steinstream.parallel.backends._with_workers", lambda client, tell: client)
        with pytest.raises(ss.parallel.ClusterError, match="has had no workers for 1 s"):
            ss.parallel.thin([normal(0)], size=10, client=client)


def test_a_task_that_kills_its_workers_is_an_error(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(ss.parallel.ClusterError, match="Several workers died"):
        ss.parallel.thin([lambda: os._exit(1)], size=10, client=client)


@pytest.mark.parametrize("call", ["run()", "if True:\n    run()", "x = run()"])
def test_a_script_without_a_main_guard_gets_one_clear_error(tmp_path, call):
    script = tmp_path / "script.py"
    text = (
        "import numpy as np, steinstream as ss\ndef run():\n    x = np.random.default_rng(0).normal(size=(2, 100, 1))\n"
    )
    text += "    return ss.parallel.thin(x, size=5, workers=1)\n"
    script.write_text(text + call + "\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "outside of if __name__" in last and "workers=0" in last


def test_a_script_with_a_main_guard_starts_workers(tmp_path):
    script = tmp_path / "script.py"
    text = (
        "import numpy as np, steinstream as ss\ndef run():\n    x = np.random.default_rng(0).normal(size=(2, 100, 1))\n"
    )
    text += "    print(len(ss.parallel.thin(x, size=5, workers=1)))\nif __name__ == '__main__':\n    run()\n"
    script.write_text(text)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.strip() == "5", done.stderr


class EndlessSampler:
    """Creates a file when it is called, and never yields."""

    def __init__(self, started):
        self.started = started

    def __call__(self):
        self.started.touch()
        time.sleep(3600)
        yield normal(0)


def test_a_cluster_at_an_address_is_used_and_its_loss_is_an_error(tmp_path):
    with separate_cluster(tmp_path) as (process, address):
        chains = [normal(number) for number in range(3)]
        kept = ss.parallel.thin(chains, size=15, client=address)
        assert same(kept, ss.parallel.thin(chains, size=15, workers=0))
        errors, started = [], tmp_path / "started"

        def run():
            try:
                ss.parallel.thin([EndlessSampler(started)], size=15, client=address)
            except ss.parallel.ClusterError as error:
                errors.append(error)

        waiting = Thread(target=run)
        waiting.start()
        wait_until(lambda: started.exists() or not waiting.is_alive())
        assert started.exists()
        os.killpg(process.pid, signal.SIGKILL)
        waiting.join(PATIENCE)
        assert not waiting.is_alive() and "were lost" in errors[0].problem

"""The path of a Dask user: chains in files, a running cluster, an answer that agrees with all draws."""

import numpy as np
import pytest

import steinstream as ss
from tests.unit.parallel.chains import normal, write

pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),  # sockets of a cluster that is being closed
    pytest.mark.filterwarnings("ignore:Port .* is already in use:UserWarning"),
]


def test_chains_on_a_cluster_give_the_answer_of_all_draws(tmp_path, client, steinstream):
    files = write(tmp_path, 6, draws=1000)
    address = client.scheduler_info()["address"]
    ran = steinstream("thin", "chain-*.npz", "-o", "kept.npz", "--size", 100, "--client", address)
    assert ran.returncode == 0, ran.stderr
    assert "kept 100 of 6 000 draws in 6 chains" in ran.stdout and "checks fired" in ran.stdout
    kept = ss.Kept.load(tmp_path / "kept.npz")
    again = ss.parallel.thin(files, size=100, client=client)
    assert np.array_equal(kept.ids, again.ids) and kept.ksd == again.ksd
    draws = np.concatenate([normal(number, 1000)[0] for number in range(6)])
    sds = draws.std(axis=0)
    assert np.all(np.abs(kept.mean() - draws.mean(axis=0)) < 0.1 * sds)
    assert np.all(np.abs(np.sqrt(np.diag(kept.cov())) / sds - 1) < 0.1)
    for share in (0.05, 0.5, 0.95):
        assert np.all(np.abs(kept.quantile(share) - np.quantile(draws, share, axis=0)) < 0.25 * sds)

"""A Dask cluster of two processes."""

import pytest


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'steinstream[dask]'")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit="1GiB", dashboard_address=None, processes=True
    )
    client = distributed.Client(cluster, set_as_default=False)
    yield client
    client.close()
    cluster.close()

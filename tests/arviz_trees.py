"""Trees in the layout of ArviZ, in memory and in files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from steinstream.validation import concatenate

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
zarr = pytest.importorskip("zarr", reason="zarr is not installed")

CHAINS, DRAWS = 3, 500
NAMES = ["mu", "sigma_log__", "p_simplex___0", "p_simplex___1"]


def model(rng=0, draws=DRAWS):
    """A standard normal in unconstrained space, and what nutpie stores of a positive and a simplex parameter."""
    u = np.random.default_rng(rng).normal(size=(CHAINS, draws, 4))
    w = np.exp(np.concatenate([u[..., 2:], -u[..., 2:].sum(-1, keepdims=True)], -1))
    coords = {"chain": np.arange(CHAINS), "draw": np.arange(draws)}
    posterior = xr.Dataset(
        {
            "mu": (("chain", "draw"), u[..., 0]),
            "sigma": (("chain", "draw"), np.exp(u[..., 1])),
            "p": (("chain", "draw", "k"), w / w.sum(-1, keepdims=True)),
        },
        {**coords, "k": np.array(["a", "b", "c"], object)},
    )
    stats = xr.Dataset(
        {
            "gradient": (("chain", "draw", "unconstrained_parameter"), -u),
            "unconstrained_draw": (("chain", "draw", "unconstrained_parameter"), u),
            "diverging": (("chain", "draw"), np.zeros((CHAINS, draws), bool)),
        },
        {**coords, "unconstrained_parameter": np.array(NAMES, object)},
    )
    transformed = xr.Dataset(
        {
            "sigma_log__": (("chain", "draw"), u[..., 1]),
            "p_simplex__": (("chain", "draw", "p_simplex___dim_0"), u[..., 2:]),
        },
        coords,
    )
    return u, xr.DataTree.from_dict(
        {"posterior": posterior, "sample_stats": stats, "unconstrained_posterior": transformed}
    )


def store(tree, path, kind):
    """Write a tree as other tools do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about strings in zarr 3
        if kind == "nc":
            tree.to_netcdf(path, engine="h5netcdf")
        elif kind == "nc, chunked":
            packed = {"zlib": True, "chunksizes": (2, 64, 4)}
            tree.to_netcdf(path, engine="h5netcdf", encoding={"/sample_stats": {"gradient": packed}})
        elif kind == "zip":
            with zarr.storage.ZipStore(path, mode="w") as archive:
                tree.to_zarr(archive, consolidated=False)
        else:
            chunks = {"chunks": (1, 70, 4)}
            tree.to_zarr(
                path,
                zarr_format=int(kind[-1]),
                consolidated=kind != "zarr 3",
                encoding={"/sample_stats": {"gradient": chunks, "unconstrained_draw": {"chunks": (3, 64, 3)}}},
            )
    return path


KINDS = {"nc": "c.nc", "nc, chunked": "c.nc", "zarr 2": "c.zarr", "zarr 3": "c.zarr", "zip": "c.zarr.zip"}


def whole(chain, **how):
    """All draws, scores and ids of a chain."""
    return concatenate(list(chain.blocks(**how)))[:3]

"""Layouts of the output: csv for R, NetCDF and Zarr for ArviZ with all groups of the input at the kept draws."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import open_chain, read_kept
from steinstream.io.registry import LAYOUTS
from steinstream.result import Variable

DRAWS = np.random.default_rng(0).normal(size=(2, 300, 3))
NAMES = ("mu", "w.1", "w.2")


def kept_set(**attributes):
    kept = ss.thin(DRAWS, -DRAWS, size=20)
    return ss.Kept(**{**{name: getattr(kept, name) for name in kept.__dataclass_fields__}, **attributes})


def rows_of(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header, *rows = csv.reader(text.decode().splitlines())
    return header, np.array(rows, dtype=np.float64)


def ids_of(path):
    return np.concatenate([block.ids for block in open_chain(path).blocks()])


@pytest.mark.parametrize("name", ["kept.csv", "kept.csv.gz"])
@pytest.mark.parametrize("names", [NAMES, ("mu", "w[0]", "w[1]")])
def test_csv_for_r_counts_from_one_and_is_read_to_the_same_ids(name, names, tmp_path):
    kept = kept_set(names=names)
    kept.save(tmp_path / name, layout="r")
    header, rows = rows_of(tmp_path / name)
    assert header == [".chain", ".iteration", ".draw", "mu", "w[1]", "w[2]"]
    np.testing.assert_array_equal(rows[:, :2], kept.ids + 1)
    np.testing.assert_array_equal(rows[:, 2], np.arange(1, 21))
    np.testing.assert_array_equal(rows[:, 3:], kept.draws)
    np.testing.assert_array_equal(ids_of(tmp_path / name), kept.ids)
    assert open_chain(tmp_path / name).names == ("mu", "w[1]", "w[2]")


def test_csv_for_r_has_the_variables_of_the_model_and_log_weights(tmp_path):
    values = np.random.default_rng(1).normal(size=(20, 2, 2))
    variables = {"sigma": Variable(values[:, 0, 0]), "m": Variable(values, ("a", "b"))}
    kept = kept_set(names=NAMES, variables=variables).weighted()
    kept.save(tmp_path / "kept.csv", layout="r")
    header, rows = rows_of(tmp_path / "kept.csv")
    assert header[3:] == [".log_weight", "sigma", "m[1,1]", "m[1,2]", "m[2,1]", "m[2,2]"]
    np.testing.assert_array_equal(np.exp(rows[:, 3]).round(12), kept.weights.round(12))
    np.testing.assert_array_equal(rows[:, 5:], values.reshape(20, 4))
    np.testing.assert_array_equal(ids_of(tmp_path / "kept.csv"), kept.ids)
    assert open_chain(tmp_path / "kept.csv").taken.left_out[".log_weight"] == "weight, not used"


def test_the_command_writes_csv_for_r(steinstream, tmp_path):
    np.savez(tmp_path / "chain.npz", draws=DRAWS[0], scores=-DRAWS[0], names=NAMES)
    assert steinstream("thin", "chain.npz", "-o", "kept.csv", "--size", 20, "--layout", "r").returncode == 0
    assert steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 20).returncode == 0
    np.testing.assert_array_equal(ids_of(tmp_path / "kept.csv"), read_kept(tmp_path / "kept.npz").ids)
    assert rows_of(tmp_path / "kept.csv")[0][:3] == [".chain", ".iteration", ".draw"]


@pytest.mark.parametrize(
    ("output", "layout", "remedy"),
    [
        ("kept.npz", "r", "Write .csv, .csv.gz"),
        ("kept.csv", "chain-draw", "Write .zarr, .nc"),
        ("-", "chain-draw", ".nc"),
    ],
)
def test_a_layout_that_the_format_does_not_have_is_an_error_before_the_run(output, layout, remedy, steinstream):
    ran = steinstream("thin", "missing.npz", "-o", output, "--layout", layout)
    assert ran.returncode == 2 and f"has no layout '{layout}'" in ran.stderr and remedy in ran.stderr


def test_an_unknown_layout_is_an_error(tmp_path):
    with pytest.raises(InputError, match=f"no layout 'wide'.*Known: {LAYOUTS[0]}, {LAYOUTS[1]}"):
        kept_set().save(tmp_path / "kept.csv", layout="wide")


def test_the_file_for_r_exists(steinstream):
    path = steinstream("r-file").stdout.strip()
    text = Path(path).read_text(encoding="utf-8")
    assert "thin_draws <- function(fit, size = NULL" in text and "draws_and_scores <- function(fit" in text


# -- groups of ArviZ ---------------------------------------------------------------------------------------------------

LIKELIHOOD = np.random.default_rng(2).normal(size=(2, 300, 8))


def write_tree(path, **options):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    dims, coords = ("chain", "draw"), {"chain": [0, 1], "draw": np.arange(300)}
    groups = {
        "posterior": {"mu": (dims, DRAWS[..., 0]), "sigma": (dims, np.exp(DRAWS[..., 1]))},
        "sample_stats": {
            "unconstrained_draw": ((*dims, "unconstrained_parameter"), DRAWS),
            "gradient": ((*dims, "unconstrained_parameter"), -DRAWS),
            "diverging": (dims, DRAWS[..., 0] > 1),
            "lp": (dims, -0.5 * (DRAWS**2).sum(axis=-1)),
        },
        "log_likelihood": {"y": ((*dims, "school"), LIKELIHOOD)},
        "posterior_predictive": {"y": ((*dims, "school"), LIKELIHOOD + 1)},
        "prior": {"mu": (dims, DRAWS[..., 2])},
        "observed_data": {"y": ("school", np.arange(8.0))},
        "constant_data": {"name": ("school", list("abcdefgh"))},
    }
    data = {"observed_data", "constant_data"}
    schools = {"school": [f"school {i}" for i in range(8)]}
    sets = {
        name: xr.Dataset(group, {**({} if name in data else coords), **(schools if "y" in group else {})})
        for name, group in groups.items()
    }
    xr.DataTree.from_dict(sets).to_netcdf(path, engine="h5netcdf", **options)
    return xr


def require_groups(tree, stacked):
    rows = {mu: at for at, mu in np.ndenumerate(DRAWS[..., 0])}  # merging numbers the chains again
    chain, draw = np.transpose([rows[mu] for mu in np.ravel(tree["posterior"]["mu"]).tolist()])
    dims = ("sample",) if stacked else ("chain", "draw")
    for group, name, whole in (
        ("log_likelihood", "y", LIKELIHOOD),
        ("posterior_predictive", "y", LIKELIHOOD + 1),
        ("sample_stats", "diverging", DRAWS[..., 0] > 1),
        ("posterior", "mu", DRAWS[..., 0]),
    ):
        array = tree[group][name]
        assert array.dims[: len(dims)] == dims
        np.testing.assert_array_equal(array.values.reshape(len(draw), *whole.shape[2:]), whole[chain, draw])
    assert tree["log_likelihood"]["school"].values.tolist() == [f"school {i}" for i in range(8)]
    assert tree["observed_data"]["y"].values.tolist() == [*range(8)]
    assert tree["constant_data"]["name"].values.tolist() == list("abcdefgh")
    assert "prior" not in tree.children


@pytest.mark.parametrize(
    "options",
    [[], ["--layout", "chain-draw"], ["--method", "stride"], ["--burn-in", "50", "--order"], ["--workers", "1"]],
)
def test_the_command_keeps_the_groups_of_a_file(options, steinstream, tmp_path):
    xr = write_tree(tmp_path / "fit.nc")
    if "--workers" in options:
        pytest.importorskip("distributed")
    ran = steinstream("thin", "fit.nc", "-o", "kept.nc", "--size", 20, *options)
    assert ran.returncode == 0, ran.stderr
    with xr.open_datatree(tmp_path / "kept.nc", engine="h5netcdf") as tree:
        require_groups(tree, stacked="--layout" not in options)
    assert set(read_kept(tmp_path / "kept.nc").groups) == {
        "observed_data", "constant_data", "log_likelihood", "posterior_predictive", "sample_stats",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["kept.nc", "kept.zarr"])
def test_groups_survive_further_commands(name, steinstream, tmp_path):
    xr = write_tree(tmp_path / "fit.nc")
    steps = (
        ("thin", "fit.nc", "-o", "a.nc", "--size", 30, "--burn-in", "150"),
        ("thin", "fit.nc", "-o", "b.nc", "--size", 30),
        ("merge", "a.nc", "b.nc", "-o", "c.nc", "--size", 20),
        ("refine", "c.nc", "-o", name, "--order", "--layout", "chain-draw"),
    )
    for step in steps:
        ran = steinstream(*step)
        assert ran.returncode == 0, ran.stderr
    options = {"engine": "zarr", "consolidated": False} if name.endswith("zarr") else {"engine": "h5netcdf"}
    with xr.open_datatree(tmp_path / name, **options) as tree:
        require_groups(tree, stacked=False)
    prefix = read_kept(tmp_path / name).prefix(5)
    assert prefix.groups["log_likelihood"]["y"].values.shape == (5, 8)
    assert prefix.groups["observed_data"]["y"].values.shape == (8,)


def test_predictions_for_other_draws_are_left_out(steinstream, tmp_path):
    xr = write_tree(tmp_path / "fit.nc")
    with xr.open_datatree(tmp_path / "fit.nc", engine="h5netcdf") as opened:
        tree = opened.load()
    tree["posterior_predictive"] = xr.DataTree(tree["posterior_predictive"].to_dataset().isel(draw=slice(0, 300, 10)))
    tree.to_netcdf(tmp_path / "some.nc", engine="h5netcdf")
    assert steinstream("thin", "some.nc", "-o", "kept.nc", "--size", 20).returncode == 0
    groups = read_kept(tmp_path / "kept.nc").groups
    assert "posterior_predictive" not in groups and "log_likelihood" in groups

"""Chains in the layout of ArviZ, in NetCDF, Zarr and memory: found, streamed and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ChainSource, thin_source
from steinstream.errors import InputError, NegatedScoresError
from steinstream.io import chain_of_datatree, open_chain, open_chains
from steinstream.thinner.config import ThinConfig
from steinstream.validation import concatenate
from tests.arviz_trees import CHAINS, DRAWS, KINDS, NAMES, model, store, whole, xr


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_streamed_chain_after_chain(kind, tmp_path):
    u, tree = model()
    chain = open_chain(store(tree, tmp_path / KINDS[kind], kind))
    assert (chain.length, chain.chains, chain.names) == (CHAINS * DRAWS, CHAINS, tuple(NAMES))
    assert chain.scores_from == "sample_stats/gradient"
    flat = u.reshape(-1, 4)
    for rows, skip in ((97, 0), (64, 613), (5000, 1499), (10, 1500)):
        blocks = list(chain.blocks(rows, skip))
        assert all(len(block.draws) <= rows and len(set(block.ids[:, 0])) == 1 for block in blocks)
        if blocks:
            draws, scores, ids = concatenate(blocks)[:3]
            assert np.array_equal(draws, flat[skip:]) and np.array_equal(scores, -flat[skip:])
            assert np.array_equal(ids, np.indices((CHAINS, DRAWS)).reshape(2, -1).T[skip:])
        else:
            assert skip == CHAINS * DRAWS


@pytest.mark.parametrize("kind", KINDS)
def test_ids_lead_back_to_the_constrained_draws(kind, tmp_path):
    _, tree = model()
    chain = open_chain(store(tree, tmp_path / KINDS[kind], kind))
    ids = np.array([[2, 499], [0, 0], [1, 70], [1, 69], [0, 0]])
    found = chain.variables(ids)
    assert list(found) == ["mu", "sigma", "p"] or sorted(found) == ["mu", "p", "sigma"]
    for name, variable in found.items():
        assert np.array_equal(variable.values, tree["posterior"][name].values[ids[:, 0], ids[:, 1]])
    assert found["p"].dims == ("k",) and list(found["p"].coords["k"]) == ["a", "b", "c"]
    with pytest.raises(InputError, match="no chain 3, draw 0"):
        chain.variables(np.array([[3, 0]]))


def test_the_labels_of_chains_and_draws_are_the_ids(tmp_path):
    _, tree = model(draws=20)
    tree = tree.map_over_datasets(
        lambda group: group.assign_coords(chain=[7, 1, 4], draw=np.arange(1000, 1100, 5)) if group.sizes else group
    )
    chain = open_chain(store(tree, tmp_path / "c.nc", "nc"))
    ids = whole(chain, rows=6)[2]
    assert ids[:3].tolist() == [[7, 1000], [7, 1005], [7, 1010]] and ids[-1].tolist() == [4, 1095]
    assert chain.variables(ids[[25]])["mu"].values == tree["posterior"]["mu"].values[1, 5]


def test_unconstrained_draws_are_put_together_in_the_gradients_order(tmp_path):
    """PyMC stores transformed parameters in a group of their own, in any order, and the others with the posterior."""
    u, tree = model()
    tree["sample_stats"] = tree["sample_stats"].to_dataset().drop_vars("unconstrained_draw")
    for chain in (chain_of_datatree(tree), open_chain(store(tree, tmp_path / "c.nc", "nc"))):
        assert chain.draws_from == (
            "posterior/mu, unconstrained_posterior/sigma_log__, unconstrained_posterior/p_simplex__"
        )
        draws, scores, _ = whole(chain)
        assert np.array_equal(draws, u.reshape(-1, 4)) and np.array_equal(scores, -draws)
    named = chain_of_datatree(tree, draws_name="unconstrained_posterior", scores_name="sample_stats/gradient")
    assert named.draws_from == chain.draws_from


def test_two_groups_go_together_by_name():
    u, tree = model()
    scores = {"b": (("chain", "draw"), -u[..., 1]), "a": (("chain", "draw", "z"), -u[..., 2:])}
    draws = {"a": (("chain", "draw", "z"), u[..., 2:]), "b": (("chain", "draw"), u[..., 1])}
    tree = xr.DataTree.from_dict({"u": xr.Dataset(draws), "g": xr.Dataset(scores)})
    chain = chain_of_datatree(tree, draws_name="u", scores_name="g")
    assert chain.names == ("a[0]", "a[1]", "b")
    draws, scores, _ = whole(chain)
    assert np.array_equal(draws, -scores)


def test_an_old_inference_data_file_is_read(tmp_path):
    """arviz 0.x wrote its groups with netCDF4, chunked and compressed, one after another."""
    u, tree = model()
    for name, mode in (("posterior", "w"), ("sample_stats", "a")):
        data = tree[name].to_dataset()
        data.to_netcdf(tmp_path / "old.nc", mode=mode, group=name, engine="h5netcdf",
                       encoding={v: {"zlib": True} for v in data if data[v].dtype.kind == "f"})  # fmt: skip
    assert np.array_equal(whole(open_chain(tmp_path / "old.nc"))[0], u.reshape(-1, 4))


def test_a_classic_file_has_no_groups_and_is_read_by_names(tmp_path):
    pytest.importorskip("scipy")
    x = np.random.default_rng(0).normal(size=(200, 2))
    data = xr.Dataset({"theta": (("draw", "d"), x), "grad": (("draw", "d"), -x)})
    data.to_netcdf(tmp_path / "c.nc", engine="scipy")
    draws, scores, ids = whole(open_chain(tmp_path / "c.nc", draws_name="theta", scores_name="grad"), rows=64)
    assert np.array_equal(draws, x) and np.array_equal(scores, -x) and ids[-1].tolist() == [0, 199]


# What is refused


@pytest.mark.parametrize("kind", ["nc", "zarr 2", "zarr 3"])
def test_a_gradient_that_was_not_stored_counts_as_no_scores(kind, tmp_path):
    u, tree = model()
    tree["sample_stats"]["gradient"][:] = np.nan
    path = store(tree, tmp_path / KINDS[kind], kind)
    chain = open_chain(path)
    assert not chain.has_scores and chain.names == tuple(NAMES)
    assert np.array_equal(whole(chain)[0], u.reshape(-1, len(NAMES)))
    assert "NaN throughout" in dict(chain.notes())["scores"]
    with pytest.raises(InputError, match="gradient is NaN throughout: no gradient was stored") as caught:
        open_chain(path, scores_name="sample_stats/gradient")
    assert "store_gradient=True" in caught.value.remedy


def test_scores_that_are_nan_throughout_are_refused_in_any_file(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 2))
    np.savez(tmp_path / "c.npz", draws=x, scores=np.full_like(x, np.nan))
    with pytest.raises(InputError, match="array scores is NaN throughout"):
        next(open_chain(tmp_path / "c.npz").blocks())
    (tmp_path / "c.csv").write_text("a,score_a\n" + "1.5,nan\n" * 200)
    with pytest.raises(InputError, match="score_a is NaN throughout"):
        next(open_chain(tmp_path / "c.csv").blocks())


def test_a_negated_gradient_is_refused(tmp_path):
    _, tree = model()
    tree["sample_stats"]["gradient"] = -tree["sample_stats"]["gradient"]
    block = next(open_chain(store(tree, tmp_path / "c.nc", "nc")).blocks())
    with pytest.raises(NegatedScoresError):
        ss.thin(block.draws, block.scores, size=10)
    block = next(open_chain(tmp_path / "c.nc", negate=True).blocks())
    assert len(ss.thin(block.draws, block.scores, size=10)) == 10


def test_what_is_missing_is_named(tmp_path):
    _, tree = model(draws=10)
    stats = tree["sample_stats"].to_dataset()

    def refused(match, tree, **how):
        with pytest.raises(InputError, match=match) as caught:
            chain_of_datatree(tree, path="run.nc", **how)
        return caught.value.remedy

    none = xr.DataTree.from_dict({"sample_stats": stats.drop_vars("unconstrained_draw"), "posterior": xr.Dataset()})
    assert "--parameters" in refused("run.nc has no draws: no variable of real numbers", none)
    only = xr.DataTree.from_dict({"sample_stats": stats.drop_vars("unconstrained_draw")})
    named = refused("scores but no unconstrained draws", only, scores_name="sample_stats/gradient")
    assert "store_unconstrained=True" in named
    assert "Did you mean" in refused(
        "no variable or group sample_stats/gradien", tree, scores_name="sample_stats/gradien"
    )
    assert "a simplex of 3 has 2 parameters" in refused("a draw has 5 numbers .* but a score has 4", tree,
                                                draws_name="posterior/mu,posterior/sigma,posterior/p")  # fmt: skip
    problem = "no variable of posterior corresponds to the parameter sigma_log__"
    assert "in the order of the gradient" in refused(problem, tree, draws_name="posterior")
    nameless = tree.copy()
    nameless["sample_stats"] = stats.drop_vars("unconstrained_parameter")
    problem = "the order in which sample_stats/gradient refers to posterior/mu, posterior/sigma, posterior/p is unknown"
    assert "in the order of the gradient" in refused(problem, nameless, draws_name="posterior")
    refused("unconstrained_draw has dimensions", tree.map_over_datasets(
        lambda group: group.rename(draw="step") if "draw" in group.dims else group))  # fmt: skip
    short = xr.DataTree.from_dict({"sample_stats": stats, "u": xr.Dataset({"x": stats["unconstrained_draw"][:, :9]})})
    assert "its own score" in refused("u/x has shape|gradient has shape chain 3 x draw 10", short, draws_name="u/x")


@pytest.mark.parametrize("name", ["c.nc", "c.h5"])
def test_a_damaged_file_is_called_damaged(name, tmp_path):
    _, tree = model(draws=10)
    store(tree, tmp_path / "good.nc", "nc")
    (tmp_path / name).write_bytes((tmp_path / "good.nc").read_bytes()[:3000])
    with pytest.raises(InputError, match=f"{name} cannot be read as NetCDF"):
        open_chain(tmp_path / name)


def test_a_chunk_that_is_damaged_is_named(tmp_path):
    _, tree = model()
    store(tree, tmp_path / "c.zarr", "zarr 2")
    (tmp_path / "c.zarr" / "sample_stats" / "gradient" / "1.3.0").write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"c\.zarr cannot be read as Zarr"):
        list(open_chain(tmp_path / "c.zarr").blocks())


@pytest.mark.parametrize(("kind", "output"), [("nc", "kept.nc"), ("zarr 3", "kept.zarr")])
def test_a_thinned_file_has_the_draws_and_variables_of_the_chain(kind, output, tmp_path):
    u, tree = model()
    chain = open_chain(store(tree, tmp_path / KINDS[kind], kind))
    assert [line for line in chain.notes() if line[0] == "variables"] == [("variables", f"posterior: {listed(chain)}")]
    thinned = thin_source(ChainSource(chain), ThinConfig.of(size=20)).kept
    replace(thinned, names=chain.names, variables=chain.variables(thinned.ids)).save(tmp_path / output)
    kept = ss.Kept.load(tmp_path / output)
    assert np.array_equal(kept.ids, ss.thin(u, -u, size=20).ids)
    assert np.array_equal(kept.draws, u[kept.ids[:, 0], kept.ids[:, 1]])
    assert np.allclose(kept.variables["sigma"].values, np.exp(kept.draws[:, 1]))
    assert kept.settings["config"]["size"] == 20 and kept.settings == thinned.settings


def listed(chain):
    """The variables with their shapes, in the order of the file."""
    return ", ".join("p (3)" if name == "p" else name for name in chain.variables(np.zeros((1, 2), int)))


@pytest.mark.parametrize("kind", KINDS)
def test_divergent_transitions_are_counted_without_the_burn_in(kind, tmp_path):
    _, tree = model()
    flags = np.random.default_rng(3).random((CHAINS, DRAWS)) < 0.1
    tree["sample_stats"]["diverging"] = xr.DataArray(flags, dims=("chain", "draw"))
    path = store(tree, tmp_path / KINDS[kind], kind)
    chain = open_chain(path)
    ids, found = (np.concatenate(part) for part in zip(*chain.diverging(), strict=True))
    assert np.array_equal(ids, whole(chain)[2]) and np.array_equal(found, flags.ravel())
    assert chain.divergences() == flags.sum()
    assert open_chains([path], burn_in=100).divergences() == flags[:, 100:].sum()
    both = open_chains([path, path])
    assert both.divergences() == 2 * flags.sum()
    assert {int(chain) for ids, _ in both.diverging() for chain in ids[:, 0]} == set(range(2 * CHAINS))


def test_divergences_are_unknown_if_one_of_the_files_does_not_have_them(tmp_path):
    _, tree = model()
    with_flags = store(tree, tmp_path / "a.nc", "nc")
    del tree["sample_stats"]["diverging"]
    without = store(tree, tmp_path / "b.nc", "nc")
    assert open_chain(with_flags).divergences() == 0
    assert open_chain(without).divergences() is None
    assert open_chains([with_flags, without]).divergences() is None
    assert open_chains([without], burn_in=10).divergences() is None

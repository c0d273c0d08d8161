"""Draws without scores are read from every format, and kept sets without scores are written and read back."""

import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ChainSource, thin_source
from steinstream.errors import InputError
from steinstream.io import open_chain, open_chains, write_kept
from steinstream.io.csv_follow import FollowedFiles
from steinstream.result import History, Kept, Variable
from steinstream.thinner.config import ThinConfig

RANDOM = np.random.default_rng(0)
CHAINS, LENGTH = 2, 30
DRAWS = RANDOM.normal(size=(CHAINS, LENGTH, 2))
IDS = np.array([(c, i) for c in range(CHAINS) for i in range(LENGTH)])
FLAT = DRAWS.reshape(-1, 2)


def table(header, *columns):
    rows = np.column_stack(columns).tolist()
    return header + "\n" + "".join(",".join(f"{value:.17g}" for value in row) + "\n" for row in rows)


def whole(chain, **how):
    blocks = list(chain.blocks(**how))
    return [np.concatenate([getattr(block, part) for block in blocks]) for part in ("draws", "scores", "ids")]


def check(chain, draws=FLAT, ids=IDS):
    found, scores, found_ids = whole(chain, rows=7)
    assert not chain.has_scores and chain.scores_from == ""
    assert scores.shape == (len(draws), 0)
    assert np.array_equal(found, draws) and np.array_equal(found_ids, ids)
    assert any(label == "scores" and text.startswith("none") for label, text in chain.notes())


# -- every format ------------------------------------------------------------------------------------------------------


def npz(folder):
    np.savez(folder / "chain.npz", draws=DRAWS)
    return folder / "chain.npz"


def npy(folder):
    np.save(folder / "chain.npy", DRAWS)
    return folder / "chain.npy"


def csv(folder):
    (folder / "chain.csv").write_text(table("chain,draw,a,b", IDS, FLAT))
    return folder / "chain.csv"


def csv_gz(folder):
    (folder / "chain.csv.gz").write_bytes(gzip.compress(table("chain,draw,a,b", IDS, FLAT).encode()))
    return folder / "chain.csv.gz"


def parquet(folder):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    columns = {"chain": IDS[:, 0], "draw": IDS[:, 1], "a": FLAT[:, 0], "b": FLAT[:, 1], "word": ["x"] * len(IDS)}
    arrow.parquet.write_table(arrow.table(columns), folder / "chain.parquet")
    return folder / "chain.parquet"


def parquet_lists(folder):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    columns = {"chain": IDS[:, 0], "draw": IDS[:, 1], "draws": FLAT.tolist()}
    arrow.parquet.write_table(arrow.table(columns), folder / "chain.parquet")
    return folder / "chain.parquet"


def tree():
    xr = pytest.importorskip("xarray")
    dims = ("chain", "draw")
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"a": (dims, DRAWS[..., 0]), "b": (dims, DRAWS[..., 1])})})


def netcdf(folder):
    pytest.importorskip("h5netcdf")
    tree().to_netcdf(folder / "chain.nc", engine="h5netcdf")
    return folder / "chain.nc"


def zarr(folder):
    pytest.importorskip("zarr")
    tree().to_zarr(folder / "chain.zarr", zarr_format=2)
    return folder / "chain.zarr"


def emcee(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "chain.h5", "w") as file:
        group = file.create_group("mcmc")
        group.attrs.update({"nwalkers": CHAINS, "ndim": 2, "iteration": LENGTH})
        group["chain"] = DRAWS.transpose(1, 0, 2)
        group["log_prob"] = np.zeros((LENGTH, CHAINS))
    return folder / "chain.h5"


@pytest.mark.parametrize(
    "write", [npz, npy, csv, csv_gz, parquet, parquet_lists, netcdf, zarr, emcee], ids=lambda write: write.__name__
)
def test_a_file_of_draws_alone_is_read_without_scores(write, tmp_path):
    chain = open_chain(write(tmp_path))
    check(chain)
    thinner = thin_source(ChainSource(chain), ThinConfig(size=8))
    assert len(thinner.kept) == 8 and thinner.kept.scores is None and math.isfinite(thinner.kept.mmd)


@pytest.mark.parametrize("write", [npz, csv, parquet, netcdf, zarr, emcee], ids=lambda write: write.__name__)
def test_scores_that_are_named_and_missing_are_an_error(write, tmp_path):
    with pytest.raises(InputError, match="gradient"):
        open_chain(write(tmp_path), scores_name="gradient")


@pytest.mark.parametrize(
    "write", [npz, npy, csv, parquet, parquet_lists, netcdf, zarr, emcee], ids=lambda write: write.__name__
)
def test_parameters_are_chosen_by_name(write, tmp_path):
    path = write(tmp_path)
    last = open_chain(path).names[1]
    chain = open_chain(path, parameters=[last])
    check(chain, FLAT[:, 1:])
    assert chain.names == (last,) and chain.dim == 1
    with pytest.raises(InputError, match=r"has no (parameter|column) .*Did you mean") as failure:
        open_chain(path, parameters=[f"{last}{last}"])
    assert last in str(failure.value)


def test_parameters_are_chosen_together_with_their_scores(tmp_path):
    np.savez(tmp_path / "chain.npz", draws=FLAT, scores=-FLAT, names=["mu", "tau"])
    (tmp_path / "chain.csv").write_text(table("mu,tau,score_tau,score_mu", FLAT, -FLAT[:, ::-1]))
    for name in ("chain.npz", "chain.csv"):
        chain = open_chain(tmp_path / name, parameters=("tau",))
        draws, scores, _ = whole(chain)
        assert chain.has_scores and chain.names == ("tau",)
        assert np.array_equal(draws, FLAT[:, 1:]) and np.array_equal(scores, -FLAT[:, 1:])
        assert chain.taken.left_out["mu"]


# -- which columns are parameters --------------------------------------------------------------------------------------

R_IDS = np.column_stack([IDS + 1, np.arange(len(IDS)) + 1])


def test_columns_of_r_are_ids_and_not_parameters(tmp_path):
    for header, scores in ((".chain,.iteration,.draw,lp__,mu,tau", ()), (None, -FLAT)):
        path = tmp_path / "draws.csv"
        if header:
            path.write_text(table(header, R_IDS, FLAT[:, :1], FLAT))
        else:
            path.write_text(table("mu,tau,score_mu,score_tau,.chain,.iteration,.draw", FLAT, scores, R_IDS))
        chain = open_chain(path)
        draws, _, ids = whole(chain)
        assert chain.names == ("mu", "tau") and chain.has_scores == (header is None)
        assert np.array_equal(draws, FLAT) and np.array_equal(ids, IDS)
        assert chain.chains is None  # four chains are not one
        assert chain.taken.ids == (".chain", ".iteration") and chain.taken.left_out[".draw"] == "id"


def test_a_column_with_another_meaning_is_not_a_parameter(tmp_path):
    for title in [
        ".draw",
        "iteration",
        "draw",
        "lp__",
        "accept_stat__",
        "log_prob",
        "logp",
        "lp",
        "log_density",
        "lprior",
        "log_lik[3]",
        "loglik",
        "log_likelihood",
        "log.posterior",
        "Unnamed: 0",
        "",
        "index",
        "weight",
        "weights",
        "log_weight",
        "lnprob",
        "minuslogpost",
    ]:
        (tmp_path / "chain.csv").write_text(table(f'"{title}",a,b', np.arange(len(FLAT)), FLAT))
        chain = open_chain(tmp_path / "chain.csv")
        assert chain.names == ("a", "b")
        assert np.array_equal(whole(chain)[0], FLAT)
        assert title in (*chain.taken.left_out, *chain.taken.ids)
        asked = open_chain(tmp_path / "chain.csv", parameters=[title, "b"])
        assert asked.names == (title, "b")


def test_a_column_with_a_similar_name_is_a_parameter(tmp_path):
    for title in ["alpha", "lpa", "weight_kg", "log_sigma", "drawing", "indexed", "loglog", "p"]:
        (tmp_path / "chain.csv").write_text(table(f"{title},b", FLAT))
        assert open_chain(tmp_path / "chain.csv").names == (title, "b")


def test_columns_of_text_are_left_out(tmp_path):
    (tmp_path / "chain.csv").write_text("a,kind,b\n1,x,2\n3,y,4\n")
    chain = open_chain(tmp_path / "chain.csv")
    assert chain.names == ("a", "b") and chain.taken.left_out == {"kind": "not numbers"}
    assert ("left out", "kind (not numbers)") in chain.notes()


def test_a_table_without_titles_has_parameters_only(tmp_path):
    (tmp_path / "chain.csv").write_text(table("# no titles", FLAT))
    check(open_chain(tmp_path / "chain.csv"), ids=np.column_stack([np.zeros(len(FLAT), int), np.arange(len(FLAT))]))
    assert open_chain(tmp_path / "chain.csv").names == ("x0", "x1")


def test_some_parameters_with_scores_and_some_without_are_refused_if_named(tmp_path):
    (tmp_path / "chain.csv").write_text(table("a,b,score_a", FLAT, -FLAT[:, :1]))
    assert open_chain(tmp_path / "chain.csv").names == ("a",)
    with pytest.raises(InputError, match="b has no column score_b"):
        open_chain(tmp_path / "chain.csv", parameters=("a", "b"))


def test_a_score_of_a_column_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "chain.csv").write_text(table("mu,score_muu", FLAT))
    with pytest.raises(InputError, match=r"muu, which does not exist.*Did you mean mu"):
        open_chain(tmp_path / "chain.csv")


def test_a_file_with_scores_and_one_without_are_not_chains_of_one_run(tmp_path):
    np.savez(tmp_path / "a.npz", draws=FLAT)
    np.savez(tmp_path / "b.npz", draws=FLAT, scores=-FLAT)
    with pytest.raises(InputError, match=r"b\.npz has scores, but .*a\.npz has none"):
        open_chains([tmp_path / "a.npz", tmp_path / "b.npz"])
    several = open_chains([tmp_path / "a.npz"] * 2)
    assert not several.has_scores and len(whole(several)[0]) == 2 * len(FLAT)


def test_an_array_that_may_be_the_scores_is_named(tmp_path):
    np.savez(tmp_path / "chain.npz", draws=FLAT, grads=-FLAT, other=np.array(["text"]))
    notes = dict(open_chain(tmp_path / "chain.npz").notes())
    assert "grads" in notes["scores"] and "--scores-name" in notes["scores"] and "other" not in notes["scores"]


# -- trees of arrays ---------------------------------------------------------------------------------------------------


def posterior(**variables):
    xr = pytest.importorskip("xarray")
    dims = ("chain", "draw", "i", "j")
    return xr.Dataset({name: (dims[: np.ndim(values)], values) for name, values in variables.items()})


def test_transformed_variables_replace_the_constrained_ones():
    xr = pytest.importorskip("xarray")
    mu, sigma = DRAWS[..., 0], np.exp(DRAWS[..., 1])
    groups = {
        "posterior": posterior(mu=mu, sigma=sigma, lp=mu, label=mu.astype(str).astype(object), constant=mu[:, 0]),
        "unconstrained_posterior": posterior(sigma_log__=np.log(sigma)),
    }
    chain = ss.io.chain_of_datatree(xr.DataTree.from_dict(groups))
    assert chain.names == ("sigma_log__", "mu")
    assert chain.taken.left_out == {
        "posterior/sigma": "unconstrained_posterior/sigma_log__ is read instead",
        "posterior/lp": "log density",
        "posterior/label": "not numbers",
        "posterior/constant": "not one value per draw",
    }
    assert chain.draws_from == "unconstrained_posterior/sigma_log__, posterior/mu"
    merged = {"posterior": posterior(mu=mu, sigma=sigma, sigma_log__=np.log(sigma))}
    assert ss.io.chain_of_datatree(xr.DataTree.from_dict(merged)).names == ("mu", "sigma_log__")


def test_discrete_and_constrained_variables_are_draws():
    xr = pytest.importorskip("xarray")
    k, on = RANDOM.integers(0, 5, (CHAINS, LENGTH, 3)), DRAWS[..., 0] > 0
    chain = ss.io.chain_of_datatree(xr.DataTree.from_dict({"posterior": posterior(k=k, on=on)}))
    assert chain.names == ("k[0]", "k[1]", "k[2]", "on")
    assert np.array_equal(whole(chain)[0], np.dstack([k, on]).reshape(-1, 4))
    assert ss.io.chain_of_datatree(
        xr.DataTree.from_dict({"posterior": posterior(k=k, on=on)}), parameters=["k"]
    ).names == ("k[0]", "k[1]", "k[2]")


def test_a_gradient_that_was_never_filled_counts_as_no_scores():
    xr = pytest.importorskip("xarray")
    dims = ("chain", "draw", "unconstrained_parameter")
    labels = {"unconstrained_parameter": np.array(["mu", "sigma_log__"], object)}
    empty = np.full_like(DRAWS, np.nan)
    stats = xr.Dataset({"gradient": (dims, empty), "unconstrained_draw": (dims, DRAWS)}, labels)
    source = xr.DataTree.from_dict({"sample_stats": stats, "posterior": posterior(mu=DRAWS[..., 0])})
    chain = ss.io.chain_of_datatree(source)
    check(chain)
    assert chain.names == ("mu", "sigma_log__")
    assert "NaN throughout" in dict(chain.notes())["scores"]
    with pytest.raises(InputError, match="NaN throughout"):
        ss.io.chain_of_datatree(source, scores_name="sample_stats/gradient")


def test_a_gradient_without_unconstrained_draws_is_not_used():
    xr = pytest.importorskip("xarray")
    stats = xr.Dataset({"gradient": (("chain", "draw", "unconstrained_parameter"), DRAWS)})
    source = xr.DataTree.from_dict({"sample_stats": stats, "posterior": posterior(a=DRAWS[..., 0], b=DRAWS[..., 1])})
    chain = ss.io.chain_of_datatree(source)
    check(chain)
    assert "unconstrained draws are missing" in dict(chain.notes())["scores"]
    assert "integrations.pymc.scores(model, idata)" in dict(chain.notes())["scores"]


# -- CmdStan and growing files -----------------------------------------------------------------------------------------

STAN = "# model = m\n# num_samples = 30\nlp__,accept_stat__,mu,w.1,w.2,log_lik.1\n"


def stan_output(path):
    body = table("", np.zeros((LENGTH, 2)), RANDOM.normal(size=(LENGTH, 4))).lstrip("\n")
    path.write_text(STAN + body + "# Elapsed Time: 1 seconds\n")
    return np.loadtxt(path, delimiter=",", skiprows=3)


def test_the_output_file_of_cmdstan_is_read_without_scores(tmp_path):
    values = stan_output(tmp_path / "m-1.csv")
    chain = open_chain(tmp_path / "m-1.csv")
    check(chain, values[:, 2:5], IDS[:LENGTH])
    assert chain.names == ("mu", "w.1", "w.2")
    assert chain.taken.left_out == {
        "lp__": "log density", "accept_stat__": "column of the sampler", "log_lik.1": "log density"
    }  # fmt: skip
    assert "diagnostic_file" in dict(chain.notes())["scores"]
    assert np.array_equal(chain.variables(IDS[[3]])["w"].values, values[[3], 3:5])
    assert open_chain(tmp_path / "m-1.csv", parameters=["w"]).names == ("w.1", "w.2")


def test_growing_files_without_scores_are_followed(tmp_path):
    for chain in range(CHAINS):
        (tmp_path / f"{chain}.csv").write_text(table("a,b,lp", DRAWS[chain], DRAWS[chain, :, :1]))
    files = FollowedFiles([tmp_path / "0.csv", tmp_path / "1.csv"])
    files.read()
    blocks = list(files.blocks(last=True))
    assert files.names == ("a", "b") and not any(block.has_scores for block in blocks)
    assert np.array_equal(np.concatenate([block.draws for block in blocks]), DRAWS.transpose(1, 0, 2).reshape(-1, 2))
    assert all(block.scores.shape == (len(block.draws), 0) for block in blocks)
    chosen = FollowedFiles([tmp_path / "0.csv"], parameters=["b"])
    chosen.read()
    assert chosen.names == ("b",)


# -- kept sets ---------------------------------------------------------------------------------------------------------

SUFFIXES = [".npz", ".csv", ".csv.gz", ".parquet", ".nc", ".zarr"]
LIBRARY = {".parquet": "pyarrow", ".nc": "h5netcdf", ".zarr": "zarr"}


def kept_set(names=("a", "b"), **variables):
    history = History(np.arange(3), np.arange(3) + 1, np.full(3, np.nan), np.array([0.5, 0.25, 1 / 3]))
    variables = {name: Variable(np.asarray(values)) for name, values in variables.items()}
    return Kept(FLAT[:3], None, IDS[[1, 5, 40]], math.nan, history, names=names, mmd=0.125, variables=variables)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "names",
    [
        ("a", "b"), ("chain", "draw"), ("weight", "order"), ("lp__", "log_prob"), ("", "index"), (" a ", "score_a"),
        ("variable_a", "parameter_a"), ("parameter_weight", "parameter_parameter_weight"), ("draws", "scores"),
        ("a", "a"), ("beta[1,2]", "w.1"),
    ],
)  # fmt: skip
def test_a_kept_set_without_scores_is_written_and_read_back(suffix, names, tmp_path):
    pytest.importorskip(LIBRARY.get(suffix, "json"))
    kept = replace(kept_set(names, s=[1.0, 2.0, 3.0]), weights=np.array([0.5, 0.25, 0.25]))
    path = tmp_path / f"kept{suffix}"
    write_kept(kept, path)
    chain = open_chain(path)
    check(chain, kept.draws, kept.ids)
    assert chain.names == names
    if suffix != ".npz":
        assert chain.variables(kept.ids)["s"].values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("suffix", [".npz", ".nc", ".zarr"])
def test_every_field_of_a_kept_set_without_scores_is_read_again(suffix, tmp_path):
    pytest.importorskip(LIBRARY.get(suffix, "json"))
    kept = ss.thin(FLAT, size=8, names=["a", "b"])
    assert kept.scores is None and math.isnan(kept.ksd) and math.isfinite(kept.mmd)
    kept.save(tmp_path / f"kept{suffix}")
    found = Kept.load(tmp_path / f"kept{suffix}")
    assert found.scores is None and math.isnan(found.ksd) and found.mmd == kept.mmd
    assert np.array_equal(found.draws, kept.draws) and np.array_equal(found.ids, kept.ids)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found.history, kept.history, strict=True))
    assert np.array_equal(found.preconditioner.factor, kept.preconditioner.factor)
    assert found.settings == json.loads(json.dumps(kept.settings)) and found.names == kept.names


def test_a_table_has_no_second_column_for_a_variable_that_is_a_parameter(tmp_path):
    kept = kept_set(("w[0]", "w[1]"), w=FLAT[:3], v=FLAT[:3, 0])
    write_kept(kept, tmp_path / "kept.csv")
    assert (tmp_path / "kept.csv").read_text().splitlines()[0] == "chain,draw,w[0],w[1],variable_v"


def test_a_parquet_file_has_no_nan_in_its_metadata(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_kept(kept_set(), tmp_path / "kept.parquet")
    about = json.loads(parquet.read_schema(tmp_path / "kept.parquet").metadata[b"steinstream"])
    assert about["ksd"] is None and about["mmd"] == 0.125

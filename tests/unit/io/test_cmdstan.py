"""CmdStan's files: minus the gradient, the same names for other things, two files for one run."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.api import ChainSource, thin_source
from steinstream.errors import InputError, NegatedScoresError
from steinstream.io import open_chain, open_chains
from steinstream.thinner.config import ThinConfig
from tests.stan_runs import DATA, constrain, gradient, log_density, sample, whole

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the CmdStan files are not in {DATA}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two chains of 1000 draws."""
    folder = tmp_path_factory.mktemp("stan")
    return [sample(folder, chain) for chain in (1, 2)]


@pytest.fixture
def run(made, tmp_path):
    """The same, to be spoilt."""
    for path in made:
        shutil.copy(path, tmp_path)
        shutil.copy(path.with_name(path.name.replace("-diagnostic", "")), tmp_path)
    return [tmp_path / path.name for path in made]


def rows(path):
    """The text before the first row, and the rows."""
    lines = path.read_text().splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if not line.startswith("#")) + 1
    return "".join(lines[:first]), [line for line in lines[first:] if not line.startswith("#")]


def test_the_score_is_minus_the_gradient_in_the_file(run):
    chain = open_chain(run[0])
    draws, scores, ids = whole(chain)
    header, lines = rows(run[0])
    table = np.array([line.split(",") for line in lines], dtype=float)
    titles = header.splitlines()[-1].split(",")
    assert np.array_equal(draws, table[:, titles.index("mu") : titles.index("mu") + 4])
    assert np.array_equal(scores, -table[:, titles.index("g_mu") :])
    assert ids.tolist() == [[0, draw] for draw in range(1000)]


def test_scores_agree_with_differentiation(run):
    draws, scores, _ = whole(open_chain(run[0]))
    exact = gradient(log_density, draws)
    assert np.abs(scores - exact).max() < 1e-8 * np.abs(exact).max()


@needs_data
@pytest.mark.parametrize("chain", [1, 2])
def test_scores_of_a_real_run_agree_with_differentiation(chain):
    real = open_chain(DATA / f"normal_simplex-diagnostic-{chain}.csv.gz")
    x, scores, ids = whole(real)
    # Of the 50 observations the density knows the sum and the sum of squares: one draw's gradient gives them.
    mu, variance = x[0, 0], np.exp(2 * x[0, 1])
    total = (scores[0, 0] + mu / 25) * variance + 50 * mu
    squares = (scores[0, 1] + 50 + x[0, 1]) * variance + 2 * mu * total - 50 * mu**2

    def density(x):
        mu, sigma, w, jacobian = constrain(x)
        likelihood = -50 * np.log(sigma) - (squares - 2 * mu * total + 50 * mu**2) / (2 * sigma**2)
        prior = -(mu**2) / 50 - np.log(sigma) - np.log(sigma) ** 2 / 2 + np.log(w[:, 1]) + 2 * np.log(w[:, 2])
        return likelihood + prior + jacobian

    exact = gradient(density, x)
    assert len(x) == 2000
    assert np.abs(scores - exact).max() < 1e-8 * np.abs(exact).max()
    found = real.variables(ids)
    for name, value in zip(["mu", "sigma", "w"], constrain(x), strict=False):
        assert np.abs(found[name].values - value).max() < 1e-14 * np.abs(value).max()


@needs_data
def test_variables_are_those_that_cmdstanpy_reads(tmp_path):
    cmdstanpy = pytest.importorskip("cmdstanpy")
    for name in ("normal_simplex-1.csv", "normal_simplex-diagnostic-1.csv"):
        (tmp_path / name).write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    fit = cmdstanpy.from_csv(str(tmp_path / "normal_simplex-1.csv"))
    ids = np.array([[0, 1999], [0, 3], [0, 3], [0, 0]])
    found = open_chain(tmp_path / "normal_simplex-diagnostic-1.csv").variables(ids)
    assert list(found) == ["mu", "sigma", "w"]
    for name, values in fit.stan_variables().items():
        assert np.array_equal(found[name].values, values[ids[:, 1]])


def test_unconstrained_parameters_do_not_bear_the_names_of_constrained_ones(run):
    chain = open_chain(run[0])
    assert chain.names == ("mu_unc", "sigma_unc", "w_unc.1", "w_unc.2")
    kept = chain.variables(np.array([[0, 7]]))
    assert {name: (value.values.shape, value.dims) for name, value in kept.items()} == {
        "mu": ((1,), ()), "sigma": ((1,), ()), "w": ((1, 3), ("w_dim_0",))
    }  # fmt: skip


def test_ids_lead_to_the_constrained_draws(run):
    chain = open_chains(run)
    kept = ss.thin(*[np.stack(np.split(part, 2)) for part in whole(chain)[:2]], size=40)
    found = chain.variables(kept.ids)
    for name, value in zip(["mu", "sigma", "w"], constrain(kept.draws), strict=False):
        assert np.allclose(found[name].values, value, rtol=1e-13)
    assert {chain for chain, _ in kept.ids.tolist()} == {0, 1}


def test_matrices_are_in_the_order_of_columns(tmp_path):
    head = "# model = m\nlp__,{}\n"
    diagnostic, output = tmp_path / "o-diagnostic.csv", tmp_path / "o.csv"
    diagnostic.write_text(head.format("x,p_x,g_x") + "0.5,1,2,3\n")
    output.write_text(
        head.format("x,a.1.1,a.2.1,a.3.1,a.1.2,a.2.2,a.3.2,t.1,t.3,z.real") + "0.5,1,11,21,31,12,22,32,7,8,9\n"
    )
    found = open_chain(diagnostic).variables(np.array([[0, 0]]))
    assert found["a"].values.tolist() == [[[11, 12], [21, 22], [31, 32]]] and found["a"].dims == ("a_dim_0", "a_dim_1")
    assert {name: found[name].values.tolist() for name in ("t.1", "t.3", "z.real")} == {
        "t.1": [7], "t.3": [8], "z.real": [9]
    }  # fmt: skip


def test_a_parameter_may_be_called_like_a_gradient(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("lp__,accept_stat__,a,g_a,p_a,p_g_a,g_a,g_g_a\n0,1,2,3,4,5,6,7\n")
    chain = open_chain(path)
    draws, scores, _ = whole(chain)
    assert (chain.names, draws.tolist(), scores.tolist()) == (("a_unc", "g_a_unc"), [[2, 3]], [[-6, -7]])


@pytest.mark.parametrize("name", ["anything.csv", "anything.CSV.GZ"])
def test_it_is_known_by_its_content(name, run, tmp_path):
    text = run[0].read_bytes()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("GZ") else text)
    assert np.array_equal(whole(open_chain(path))[1], whole(open_chain(run[0]))[1])
    stripped = tmp_path / "stripped.csv"
    stripped.write_text("".join(line for line in text.decode().splitlines(keepends=True) if not line.startswith("#")))
    assert np.array_equal(whole(open_chain(stripped))[1], whole(open_chain(run[0]))[1])


def test_a_csv_of_ours_is_no_stan_file(tmp_path):
    path = tmp_path / "out-diagnostic-1.csv"
    path.write_text("# a comment\na,score_a\n1,2\n")
    assert whole(open_chain(path))[1].tolist() == [[2]]


@pytest.mark.parametrize(("thin", "saved"), [(1, 50), (3, 17)])
def test_a_saved_warmup_is_left_out_and_not_counted(thin, saved, tmp_path):
    arguments = ["num_warmup=50", "save_warmup=true", f"thin={thin}"]
    path = sample(tmp_path, samples=100, arguments=arguments)
    _, lines = rows(path)
    draws, _, ids = whole(open_chain(path))
    assert len(lines) == saved + len(draws) and len(draws) == -(-100 // thin)
    assert ids[0].tolist() == [0, 0] and draws[0, 0] == float(lines[saved].split(",")[7])
    found = open_chain(path).variables(ids[::7])
    assert np.allclose(found["sigma"].values, np.exp(draws[::7, 1]), rtol=1e-13)


def test_gzipped_files_are_known_without_their_suffix(tmp_path):
    path = sample(tmp_path, samples=100, arguments=["num_warmup=50", "save_warmup=true"])
    expected, ids = whole(open_chain(path)), np.array([[0, 7], [0, 99]])
    sigma = open_chain(path).variables(ids)["sigma"].values
    for file in (path, path.with_name(path.name.replace("-diagnostic", ""))):
        file.write_bytes(gzip.compress(file.read_bytes()))
    chain = open_chain(path)
    assert all(map(np.array_equal, whole(chain), expected))
    assert np.array_equal(chain.variables(ids)["sigma"].values, sigma)
    assert "fake" in dict(chain.notes())["from"]


def test_comments_may_stand_anywhere(run):
    header, lines = rows(run[0])
    expected = whole(open_chain(run[0]))
    run[0].write_text(
        header + "".join(lines[:500]) + "# Adaptation terminated\n#\n\n" + "".join(lines[500:]) + "# end\n"
    )
    assert all(map(np.array_equal, whole(open_chain(run[0])), expected))


def test_an_output_file_alone_has_no_scores(run, tmp_path):
    chain = open_chain(tmp_path / "out-1.csv")
    assert not chain.has_scores and "out-diagnostic-1.csv" in dict(chain.notes())["scores"]
    run[0].unlink()
    assert "save_latent_dynamics=True" in dict(open_chain(tmp_path / "out-1.csv").notes())["scores"]
    with pytest.raises(InputError, match="is an output file of CmdStan"):
        open_chain(tmp_path / "out-1.csv", output=run[1])


@pytest.mark.parametrize(
    ("diagnostic", "output"),
    [
        ("m-20261116_1-diagnostic.csv", "m-20261116_1.csv"),
        ("m-20261116-diagnostic_1.csv", "m-20261116_1.csv"),
        ("diagnostic_1.csv", "out-1.csv"),  # as its comments say
        ("m_diagnostic.csv", "m.csv.gz"),
    ],
)
def test_the_output_file_is_found_by_its_name(diagnostic, output, made, tmp_path):
    shutil.copy(made[0], tmp_path / diagnostic)
    text = (made[0].parent / "out-1.csv").read_bytes()
    (tmp_path / output).write_bytes(gzip.compress(text) if output.endswith("gz") else text)
    chain = open_chain(tmp_path / diagnostic)
    assert chain.variables(np.array([[0, 0]]))["w"].values.shape == (1, 3)
    assert output in str(chain.notes())


def test_without_an_output_file_there_are_no_variables(run, tmp_path):
    (tmp_path / "out-1.csv").rename(tmp_path / "elsewhere.csv")
    assert open_chain(run[0]).variables(np.array([[0, 0]])) == {}
    found = open_chain(run[0], output=tmp_path / "elsewhere.csv").variables(np.array([[0, 0]]))
    assert list(found) == ["mu", "sigma", "w"]


def test_the_output_file_of_another_run_is_refused(run, tmp_path):
    with pytest.raises(InputError, match=r"out-2\.csv is not from the same run as .*lp__"):
        open_chain(run[0], output=tmp_path / "out-2.csv")
    with pytest.raises(InputError, match="2 chains, but 1 output files"):
        open_chains(run, outputs=[tmp_path / "out-1.csv"])


def test_of_a_run_that_died_only_draws_count_that_both_files_have(run, tmp_path):
    header, lines = rows(tmp_path / "out-1.csv")
    (tmp_path / "out-1.csv").write_text(header + "".join(lines[:500]) + lines[500][:20])
    chain = open_chain(run[0])
    draws, _, ids = whole(chain, rows=64)
    assert len(draws) == 500 and len(chain.variables(ids)["w"].values) == 500
    assert [len(block.ids) for block in chain.blocks(skip=499)] == [1] and not list(chain.blocks(skip=500))
    assert "500 of 1000 draws" in str(open_then_read(run[0]).notes())


def open_then_read(path):
    chain = open_chain(path)
    whole(chain)
    return chain


def test_an_output_file_that_is_too_short_is_refused(run, tmp_path):
    header, lines = rows(tmp_path / "out-1.csv")
    (tmp_path / "out-1.csv").write_text(header + "".join(lines[:500]) + "#  Elapsed Time: 1 seconds (Warm-up)\n")
    with pytest.raises(InputError, match="ends after 500 rows, but row 501 is required"):
        open_chain(run[0]).variables(np.array([[0, 500]]))


def test_a_file_that_ends_in_half_a_line_is_refused(run):
    text = run[0].read_text()
    run[0].write_text(text[: text.rindex("# \n#  Elapsed") - 5])
    with pytest.raises(InputError, match="ends in the middle of a line"):
        open_chain(run[0])


def test_columns_can_still_be_listed(run):
    chain = open_chain(run[0], draws_name="mu,sigma,w.1,w.2", scores_name="g_mu,g_sigma,g_w.1,g_w.2", negate=True)
    assert chain.names[1] == "sigma"
    assert np.array_equal(whole(chain)[1], whole(open_chain(run[0]))[1])


def test_negated_gradients_are_refused(tmp_path):
    draws, scores, _ = whole(open_chain(sample(tmp_path, fake=["sign=-1"])))
    with pytest.raises(NegatedScoresError, match="look negated"):
        ss.thin(draws, scores, size=10)


def test_gradients_that_are_no_numbers_are_refused(tmp_path):
    path = sample(tmp_path, samples=100, fake=["nan=1"])
    with pytest.raises(InputError, match=r"score of chain 0, draw 0 is nan|is NaN throughout"):
        ss.thin(*whole(open_chain(path))[:2], size=10)


def test_notes_say_where_scores_and_variables_are(run, tmp_path):
    notes = dict(open_chain(run[1]).notes())
    assert notes["from"].startswith("CmdStan 2.35, fake_model: ") and "minus the columns g_mu" in notes["from"]
    assert notes["variables"] == "mu, sigma, w[3] in out-2.csv"
    run[1].with_name("out-2.csv").unlink()
    header, lines = rows(run[1])
    run[1].write_text(header + "".join(lines[:400]))
    notes = dict(open_then_read(run[1]).notes())
    assert "400 of 1000 draws" in notes["incomplete"] and "--output-csv" in notes["variables"]


def test_thinned_chains_get_the_variables_of_their_output_files(run, tmp_path):
    chain = open_chains(run)
    kept = thin_source(ChainSource(chain), ThinConfig.of(size=30)).kept
    replace(kept, variables=chain.variables(kept.ids)).save(tmp_path / "kept.npz")
    draws, scores, _ = whole(chain)
    expected = ss.thin(np.stack(np.split(draws, 2)), np.stack(np.split(scores, 2)), size=30)
    assert np.array_equal(kept.ids, expected.ids) and kept.ksd == expected.ksd
    found = ss.Kept.load(tmp_path / "kept.npz").variables["w"].values
    assert np.allclose(found, constrain(kept.draws)[2], rtol=1e-13)


@pytest.mark.parametrize("name", ["out-diagnostic-1.csv", "out-1.csv"])
def test_divergent_transitions_after_the_warmup_and_the_burn_in_are_counted(name, tmp_path):
    sample(tmp_path, samples=300, arguments=["num_warmup=50", "save_warmup=true"], fake=["diverge=40"])
    header, lines = rows(tmp_path / name)
    at = header.splitlines()[-1].split(",").index("divergent__")
    flags = np.array([float(line.split(",")[at]) > 0 for line in lines])
    chain = open_chain(tmp_path / name)
    ids, found = (np.concatenate(part) for part in zip(*chain.diverging(), strict=True))
    assert np.array_equal(ids, whole(chain)[2]) and np.array_equal(found, flags[50:])
    assert chain.divergences() == flags[50:].sum() > 0
    assert open_chains([tmp_path / name], burn_in=100).divergences() == flags[150:].sum()

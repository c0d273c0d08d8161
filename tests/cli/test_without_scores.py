"""Files without scores: the stream term decides, what is taken is printed, and only KSD itself requires scores."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steinstream as ss
from tests.conftest import write_chain

NOTE = "Without scores: the kept draws represent the chain; scores would also correct burn-in and slow mixing."


@pytest.fixture
def draws():
    return np.random.default_rng(1).normal(size=(600, 3)) * [1.0, 5.0, 0.1]


@pytest.fixture
def table(tmp_path, draws):
    """A table as R writes it: ids, three parameters and the log density."""
    path = tmp_path / "draws.csv"
    with path.open("w") as file:
        file.write(".chain,.iteration,.draw,alpha,beta,sigma,lp__\n")
        for i, row in enumerate(draws.tolist()):
            file.write(f"{1 + i // 300},{1 + i % 300},{1 + i},{','.join(map(repr, row))},{-i}\n")
    return path


@pytest.fixture
def kept_without_scores(tmp_path, draws):
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path, half in zip(paths, np.split(draws, 2), strict=True):
        ss.thin(half, size=20).with_names(["alpha", "beta", "sigma"]).save(path)
    return paths


def test_thin_equals_the_library_without_scores(steinstream, table, draws, tmp_path):
    ran = steinstream("thin", table, "-o", "kept.npz", "--size", 30)
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(tmp_path / "kept.npz")
    expected = ss.thin(draws.reshape(2, 300, 3), size=30)
    assert kept.scores is None and np.isnan(kept.ksd) and kept.names == ("alpha", "beta", "sigma")
    assert np.array_equal(kept.draws, expected.draws)
    assert NOTE in ran.stdout and "KSD" not in ran.stdout.replace(NOTE, "")


def test_what_is_taken_is_printed_before_the_result(steinstream, table):
    lines = steinstream("thin", table, "-o", "kept.npz", "--size", 30).stdout.splitlines()
    assert lines[0] == "draws.csv has no scores"
    head = "\n".join(lines[: next(i for i, line in enumerate(lines) if line.startswith("kept "))])
    assert "parameters  3: alpha, beta, sigma" in head
    assert ".chain" in head and "lp__" in head


def test_parameters_are_chosen_by_name_and_order(steinstream, table, draws, tmp_path):
    ran = steinstream("thin", table, "-o", "kept.npz", "--size", 30, "--parameters", "sigma,alpha")
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert kept.names == ("sigma", "alpha")
    assert np.array_equal(kept.draws, ss.thin(draws[:, [2, 0]].reshape(2, 300, 2), size=30).draws)


def test_parameters_of_arrays_keep_the_commas_in_their_brackets(steinstream, tmp_path, draws):
    lines = ["w[0,0],w[0,1],b", *(",".join(map(repr, row)) for row in draws.tolist())]
    lines[0] = '"w[0,0]","w[0,1]",b'
    (tmp_path / "draws.csv").write_text("\n".join(lines) + "\n")
    ran = steinstream("thin", "draws.csv", "-o", "kept.npz", "--size", 9, "--parameters", "w[0,1],b")
    assert ran.returncode == 0, ran.stderr
    assert ss.Kept.load(tmp_path / "kept.npz").names == ("w[0,1]", "b")


def test_chosen_parameters_keep_their_scores(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 30, "--parameters", "x2,x0")
    assert ran.returncode == 0, ran.stderr
    with np.load(chain) as arrays:
        expected = ss.thin(arrays["draws"][:, [2, 0]], arrays["scores"][:, [2, 0]], size=30)
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert kept.scores is not None and np.array_equal(kept.scores, expected.scores)


def test_follow_equals_a_thinner_without_scores(steinstream, tmp_path, draws):
    rows = "\n".join(",".join(map(repr, row)) for row in draws.tolist())
    (tmp_path / "run.csv").write_text(f"alpha,beta,sigma\n{rows}\n")
    ran = steinstream("follow", "run.csv", "-o", "kept.npz", "--size", 30, "--until-idle", 0)
    assert ran.returncode == 0, ran.stderr
    thinner = ss.Thinner(3, size=30)
    thinner.extend(draws)
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(kept.ids, thinner.kept.ids) and kept.scores is None
    assert NOTE in ran.stdout


def test_inspect_describes_a_file_without_scores(steinstream, table):
    ran = steinstream("inspect", table)
    assert ran.returncode == 0, ran.stderr
    assert "2 chains x 300 draws, 3 parameters (alpha, beta, sigma)" in ran.stdout
    assert "scores      none" in ran.stdout and "steinstream thin" in ran.stdout


def test_kept_sets_without_scores_are_merged(steinstream, kept_without_scores, tmp_path):
    ran = steinstream("merge", *kept_without_scores, "-o", "all.npz", "--size", 25)
    assert ran.returncode == 0, ran.stderr
    assert len(ss.Kept.load(tmp_path / "all.npz")) == 25 and "nan" not in ran.stdout


def test_a_report_is_written_for_a_kept_set_without_scores(steinstream, kept_without_scores, table, tmp_path):
    pytest.importorskip("matplotlib")
    ran = steinstream("report", kept_without_scores[0], "--chain", table, "-o", "report.html")
    assert ran.returncode == 0, ran.stderr
    assert "KSD nan" not in (tmp_path / "report.html").read_text()


def test_initial_draws_without_scores_start_a_run_without_scores(steinstream, table, kept_without_scores):
    ran = steinstream("thin", table, "-o", "kept.npz", "--size", 25, "--initial", kept_without_scores[0])
    assert ran.returncode == 0, ran.stderr


def test_a_run_without_scores_can_be_continued(steinstream, table, draws, tmp_path):
    (tmp_path / "first.csv").write_bytes(table.read_bytes())
    command = ["thin", "first.csv", "-o", "kept.npz", "--size", 20, "--checkpoint", "state.npz"]
    assert steinstream(*command).returncode == 0 and not (tmp_path / "state.npz").exists()
    ran = steinstream(*command, "--json")
    assert json.loads(ran.stdout)["has_scores"] is False


def test_the_checks_are_made_without_scores(steinstream, table):
    ran = steinstream("thin", table, "-o", "kept.npz", "--size", 30, "--json")
    names = [finding["name"] for finding in json.loads(ran.stdout)["findings"]]
    assert {"mean", "spread"} <= {*names}


def test_scores_in_a_file_of_their_own_are_still_used(steinstream, tmp_path):
    write_chain(tmp_path / "chain.npz", draws=500)
    with np.load(tmp_path / "chain.npz") as arrays:
        np.save(tmp_path / "x.npy", arrays["draws"])
        np.save(tmp_path / "s.npy", arrays["scores"])
    ran = steinstream("thin", "x.npy", "--scores", "s.npy", "-o", "kept.npz", "--size", 9)
    assert ran.returncode == 0 and ss.Kept.load(tmp_path / "kept.npz").scores is not None


def test_a_log_density_in_the_file_is_used_on_request(steinstream, tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 1000, 2))
    density = -0.5 * np.sum(draws**2, axis=-1)
    np.savez(tmp_path / "chain.npz", draws=draws, log_density=density)
    assert "array log_density; used by steinstream thin --gradient-free" in steinstream("inspect", "chain.npz").stdout
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", "--size", 40, "--gradient-free", "--order")
    assert ran.returncode == 0, ran.stderr
    kept, expected = ss.Kept.load(tmp_path / "kept.npz"), ss.thin(draws, log_density=density, size=40).ordered()
    np.testing.assert_array_equal(kept.ids, expected.ids)
    assert kept.settings["proxy"] == expected.settings["proxy"] and "ratio" in kept.variables
    ids = np.stack([np.zeros(2000, dtype=int), np.arange(5000, 7000)], axis=1)
    np.savez(tmp_path / "ids.npz", draws=draws.reshape(-1, 2), log_density=density.ravel(), ids=ids)
    assert steinstream("thin", "ids.npz", "-o", "kept.npz", "--size", 40, "--gradient-free").returncode == 0
    kept = ss.Kept.load(tmp_path / "kept.npz")
    np.testing.assert_array_equal(kept.draws, draws.reshape(-1, 2)[kept.ids[:, 1] - 5000])


def test_a_poor_proxy_is_a_warning_that_names_the_option(steinstream, tmp_path):
    a, b = np.random.default_rng(0).normal(size=(2, 4000))
    banana = np.column_stack([a, 0.5 * b + 0.7 * (a**2 - 1.0)])
    np.savez(tmp_path / "banana.npz", draws=banana, log_density=-0.5 * (a**2 + b**2))
    words = ["thin", "banana.npz", "-o", "kept.npz", "--size", 50, "--gradient-free"]
    ran = steinstream(*words, "--strict", "--stream-weight", 0)
    assert ran.returncode == 3, ran.stderr
    assert "than as many evenly spaced draws" in ran.stderr and "Leave out --gradient-free, so that" in ran.stderr
    assert "log_density" not in ran.stderr and "better proxy" not in ran.stderr
    ran = steinstream(*words, "--start", "sample")
    assert ran.returncode == 2 and "cannot be used with the gradient-free KSD" in ran.stderr
    assert "log_density" not in ran.stderr
    assert steinstream(*words, "--candidates", 3, "--passes", 2).returncode == 0


def test_a_log_density_that_cannot_be_used_is_refused(steinstream, chain, tmp_path):
    np.savez(tmp_path / "plain.npz", draws=np.zeros((10, 2)), log_density=np.zeros(3))
    for words, message in (
        ([chain], "has scores"),
        (["plain.npz"], "has no array log_density, with one number per draw"),
        (["plain.npz", "--burn-in", 5], "--burn-in has no effect with --gradient-free"),
    ):
        ran = steinstream("thin", *words, "-o", "kept.npz", "--size", 5, "--gradient-free")
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, ran.stderr


def test_deterministic_variables_are_left_out_with_a_warning(steinstream, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    rng, dims = np.random.default_rng(0), ("chain", "draw")
    mu, log_tau, z = rng.normal(size=(2, 200)), rng.normal(size=(2, 200)), rng.normal(size=(2, 200, 8))
    theta = mu[..., None] + np.exp(log_tau)[..., None] * z  # as of a model that is not centred
    arrays = {"mu": (dims, mu), "theta_t": ((*dims, "school"), z), "tau": (dims, np.exp(log_tau))}
    posterior = xarray.Dataset({**arrays, "theta": ((*dims, "school"), theta)}, attrs={"inference_library": "pymc"})
    xarray.DataTree.from_dict({"posterior": posterior}).to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    for more in ([], ["--workers", 0]):
        ran = steinstream("thin", "fit.nc", "-o", "kept.npz", "--size", 20, "--strict", *more)
        assert ran.returncode == 3, ran.stderr
        assert ran.stderr.count("Left out as functions of other variables: posterior/theta.") == 1
        assert "name all parameters with --parameters a,b,c." in ran.stderr
        assert ss.Kept.load(tmp_path / "kept.npz").draws.shape == (20, 10)
    ran = steinstream("thin", "fit.nc", "-o", "kept.npz", "--size", 20, "--parameters", "mu,tau,theta")
    assert ran.returncode == 0 and "Left out" not in ran.stderr
    assert ss.Kept.load(tmp_path / "kept.npz").names[:2] == ("mu", "tau")


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_folder_is_not_a_chain(steinstream, folder):
    ran = steinstream("thin", folder)
    assert ran.returncode == 2 and "is a folder" in ran.stderr and "chains/*.csv" in ran.stderr


def test_semicolons_between_fields_are_reported(steinstream, tmp_path):
    (tmp_path / "Export.csv").write_text("a;b\n1,5;2\n2,5;3\n")
    ran = steinstream("thin", "Export.csv", "--size", 1)
    assert ran.returncode == 2 and "Export.csv has one column, a;b" in ran.stderr and "commas" in ran.stderr

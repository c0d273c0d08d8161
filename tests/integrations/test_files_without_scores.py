"""From a file of draws without scores to the answer, on the command line, compared with the full chain.

The files are those that users have: the HDF5 file of emcee, a csv file of R or pandas, and the chain of a black box
whose log density runs a solver of scipy.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

COVARIANCE = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 4.0]])


def errors(mean, sd, chain):
    """Return the largest error of means, in standard deviations, and of standard deviations."""
    return np.abs((mean - chain.mean(axis=0)) / chain.std(axis=0)).max(), np.abs(sd / chain.std(axis=0) - 1).max()


def stride_errors(chain, size):
    """Return the root mean squares of these errors over ten sets of evenly spaced draws."""
    every = len(chain) // size
    found = [
        errors(part.mean(axis=0), part.std(axis=0), chain)
        for part in (chain[i::every] for i in range(0, every, every // 10))
    ]
    return np.sqrt(np.mean(np.square(found), axis=0))


def read_columns(path, names):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(row[name]) for name in names] for row in rows])


def test_the_file_of_emcee_leads_to_draws_that_give_its_moments(steinstream, tmp_path):
    emcee, _ = pytest.importorskip("emcee"), pytest.importorskip("h5py")
    precision = np.linalg.inv(COVARIANCE)
    backend = emcee.backends.HDFBackend(tmp_path / "run.h5")
    sampler = emcee.EnsembleSampler(20, 3, lambda x: -0.5 * x @ precision @ x, backend=backend)
    sampler.random_state = np.random.RandomState(1).get_state()
    sampler.run_mcmc(5.0 + np.random.default_rng(1).normal(size=(20, 3)), 1500)
    described = steinstream("inspect", "run.h5").stdout
    assert "20 chains x 1 500 draws, 3 parameters" in described and "steinstream scores run.h5" in described
    ran = steinstream("thin", "run.h5", "--size", 100, "--burn-in", 300, "-o", "kept.csv")
    assert ran.returncode == 0, ran.stderr
    kept = read_columns(tmp_path / "kept.csv", ["x0", "x1", "x2"])
    full = backend.get_chain(discard=300, flat=True)
    found, spaced = errors(kept.mean(axis=0), kept.std(axis=0), full), stride_errors(full, 100)
    assert found[0] < 0.05 and found[1] < 0.1
    assert found[0] < 0.5 * spaced[0] and found[1] < spaced[1]


@pytest.mark.parametrize("tool", ["R", "pandas"])
def test_a_csv_file_leads_to_a_summary_and_draws_that_give_its_moments(steinstream, tmp_path, tool):
    x = np.random.default_rng(0).multivariate_normal(np.zeros(3), COVARIANCE, size=(4, 1000))
    chain, iteration = np.divmod(np.arange(4000), 1000)
    density = -0.5 * np.einsum("...i,ij,...j", x, np.linalg.inv(COVARIANCE), x).ravel()
    if tool == "R":  # posterior::as_draws_df
        titles = [".chain", ".iteration", ".draw", "lp__", "lprior", "a", "b[1]", "b[2]"]
        columns = [chain + 1, iteration + 1, np.arange(4000) + 1, density, density, *x.reshape(-1, 3).T]
    else:
        titles = ["", "chain", "draw", "a", "b[1]", "b[2]", "logp", "log_prob"]
        columns = [np.arange(4000), chain, iteration, *x.reshape(-1, 3).T, density, density]
    with (tmp_path / "draws.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
    ran = steinstream("thin", "draws.csv", "--size", 100)
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.splitlines()
    assert "parameters  3: a, b[1], b[2]" in printed[:3]  # before the file is thinned
    assert "difference" in ran.stdout
    kept = read_columns(tmp_path / "draws.kept.csv", ["a", "b[1]", "b[2]"])
    full = x.reshape(-1, 3)
    found, spaced = errors(kept.mean(axis=0), kept.std(axis=0), full), stride_errors(full, 100)
    assert found[0] < 0.5 * spaced[0] and found[1] < spaced[1]
    chains = read_columns(tmp_path / "draws.kept.csv", ["chain"])
    assert len(np.unique(chains)) == 4
    again = steinstream("thin", "draws.csv", "--size", 50, "--parameters", "b", "-o", "b.npz")
    assert again.returncode == 0 and "parameters  2: b[1], b[2]" in again.stdout


MODEL = '''
import numpy as np
from scipy.integrate import solve_ivp

TIMES = np.linspace(0.5, 6.0, 12)

def solve(q, times):
    """Position of a damped oscillator with stiffness exp(q[0]) and damping exp(q[1])."""
    stiffness, damping = np.exp(q)
    def slope(t, y):
        return [y[1], -stiffness * y[0] - damping * y[1]]
    return solve_ivp(slope, (0.0, times[-1]), [1.0, 0.0], t_eval=times, rtol=1e-7, atol=1e-9).y[0]

DATA = solve(np.log([2.0, 0.3]), TIMES) + 0.1 * np.random.default_rng(0).normal(size=12)

def log_density(q):
    return -0.5 * np.sum(((solve(q, TIMES) - DATA) / 0.1) ** 2) - 0.5 * np.sum(q**2)

def forecast(q):
    """Position at t = 10 and largest position after t = 5."""
    path = solve(q, np.linspace(0.1, 10.0, 100))
    return path[-1], path[50:].max()
'''

SIMULATE = '''
"""Run all simulations of runs.csv in two processes; the one in the third line fails."""
import csv
from concurrent.futures import ProcessPoolExecutor
from model_of_a_black_box import forecast

def run(place, row):
    if place == 2:
        raise RuntimeError("the solver did not converge")
    return forecast([float(row["stiffness"]), float(row["damping"])])

if __name__ == "__main__":
    with open("runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with ProcessPoolExecutor(2) as pool, open("outputs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "status", "at_10", "peak"])
        for row, future in zip(rows, [pool.submit(run, *one) for one in enumerate(rows)]):
            error = future.exception()
            writer.writerow([row["run"], "failed", "", ""] if error else [row["run"], "ok", *future.result()])
'''


def test_a_black_box_leads_to_the_mean_of_a_forecast(steinstream, tmp_path, monkeypatch):
    pytest.importorskip("scipy")
    (tmp_path / "model_of_a_black_box.py").write_text(MODEL)
    (tmp_path / "simulate.py").write_text(SIMULATE)
    monkeypatch.syspath_prepend(tmp_path)
    import model_of_a_black_box as model

    random, state = np.random.default_rng(3), np.log([2.0, 0.3])
    density, chain = model.log_density(state), []
    for _ in range(2500):  # the user's sampler
        proposal = state + random.normal(size=2) * [0.06, 0.25]
        new = model.log_density(proposal)
        if np.log(random.uniform()) < new - density:
            state, density = proposal, new
        chain.append(state)
    full = np.array(chain)
    np.savetxt(tmp_path / "chain.csv", full, delimiter=",", header="stiffness,damping", comments="")

    described = steinstream("inspect", "chain.csv").stdout
    assert "steinstream scores chain.csv --log-density" in described
    function = ["--log-density", "model_of_a_black_box.py:log_density", "--accuracy", "1e-6"]
    options = ["--size", 30, "--first", 150, "--processes", 2, "--checkpoint", "differences.npz", "-o", "kept.npz"]
    ran = steinstream("scores", "chain.csv", *function, *options)
    assert ran.returncode == 0, ran.stderr
    assert steinstream("runs", "kept.npz", "-o", "runs.csv").returncode == 0
    subprocess.run([sys.executable, "simulate.py"], cwd=tmp_path, check=True, timeout=600)
    ran = steinstream("average", "kept.npz", "outputs.csv", "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert len(result["failed"]) == 1 and 0 < result["lost_weight"] < 0.1
    assert "status failed" in ran.stderr

    states, inverse = np.unique(full, axis=0, return_inverse=True)
    outputs = np.array([model.forecast(q) for q in states])[inverse.ravel()]
    for place, name in enumerate(("at_10", "peak")):
        spread = outputs[:, place].std()
        away = result["outputs"][name]["mean"] - outputs[:, place].mean()
        assert abs(away) < 0.2 * spread
        assert result["outputs"][name]["sd"] == pytest.approx(spread, rel=0.25)

"""Output files of a small model in the format of CmdStan, and its log density, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from steinstream.validation import concatenate

FAKE = Path(__file__).parent / "integrations" / "fake_stan.py"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "stan"


def program(*arguments, samples=1000, seed=1):
    """Return the command that samples."""
    return [sys.executable, str(FAKE), "sample", f"num_samples={samples}", *arguments, "random", f"seed={seed}"]


def sample(folder, chain=1, *, samples=1000, seed=1, arguments=(), fake=(), name="out", digits=17):
    """Sample to NAME-CHAIN.csv and NAME-diagnostic-CHAIN.csv, and return the latter."""
    output, diagnostic = folder / f"{name}-{chain}.csv", folder / f"{name}-diagnostic-{chain}.csv"
    files = ["output", f"file={output}", f"diagnostic_file={diagnostic}", f"sig_figs={digits}"]
    command = [*program(*arguments, samples=samples, seed=seed), *files, f"id={chain}", "fake", *fake]
    subprocess.run(command, check=True, capture_output=True, timeout=1800)
    return diagnostic


def constrain(x):
    """Return mu, sigma and w of unconstrained draws (n, 4) with Stan's transforms, and the log of the Jacobian."""
    z1, z2 = 1 / (1 + np.exp(-(x[:, 2] - np.log(2.0)))), 1 / (1 + np.exp(-x[:, 3]))
    w = np.stack([z1, (1 - z1) * z2, (1 - z1) * (1 - z2)], axis=1)
    jacobian = x[:, 1] + np.log(z1 * (1 - z1)) + np.log(z2 * (1 - z2) * (1 - z1))
    return x[:, 0], np.exp(x[:, 1]), w, jacobian


def log_density(x):
    """Return the log density of the model of ``fake_stan.py``, in unconstrained space."""
    mu, sigma, w, jacobian = constrain(x)
    lognormal = -np.log(sigma) - np.log(sigma) ** 2 / 2
    return -(mu**2) / 2 + lognormal + np.log(w[:, 1]) + 2 * np.log(w[:, 2]) + jacobian


def gradient(log_density, x):
    """Return the gradient by complex steps, exact up to rounding: f(x + ih) = f(x) + ih f'(x)."""
    steps = 1e-30j * np.eye(x.shape[1])
    return np.stack([log_density(x + step).imag / 1e-30 for step in steps], axis=1)


def whole(chain, **how):
    """Return draws, scores and ids of a chain."""
    return concatenate(list(chain.blocks(**how)))[:3]

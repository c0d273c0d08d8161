"""``steinstream ksd`` measures a kept set as it was thinned, and any other file as requested."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss


def test_ksd_of_a_kept_set_is_the_one_reported(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60)
    value = ss.Kept.load(tmp_path / "kept.npz").ksd
    ran = steinstream("ksd", "kept.npz", "--cumulative", "curve.csv")
    assert ran.returncode == 0, ran.stderr
    assert f"KSD {value:.6g}" in ran.stdout
    curve = np.loadtxt(tmp_path / "curve.csv", delimiter=",", skiprows=1)
    assert curve.shape == (60, 2) and curve[-1, 1] == value


def test_a_kept_set_is_measured_as_it_was_thinned(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60, "--kernel", "rbf:h=2", "--preconditioner", "scales")
    kept = ss.Kept.load(tmp_path / "kept.npz")
    ran = steinstream("ksd", "kept.npz")
    assert f"KSD {kept.ksd:.6g}" in ran.stdout and "kernel: RBF(h=2.0)" in ran.stdout
    for options, other in (
        (["--kernel", "imq"], {"kernel": ss.IMQ(), "preconditioner": kept.preconditioner}),
        (["--preconditioner", "identity"], {"kernel": kept.kernel, "preconditioner": ss.Preconditioner.identity()}),
    ):
        ran = steinstream("ksd", "kept.npz", *options)
        assert f"KSD {ss.ksd(kept.draws, kept.scores, **other):.6g}" in ran.stdout, ran.stderr


def test_a_chain_is_measured_with_the_preconditioner_of_a_kept_set(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60, "--kernel", "imq:linear=1")
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert kept.preconditioner.centre is not None
    ran = steinstream("ksd", chain, "--preconditioner", "kept.npz", "--kernel", "imq:linear=1")
    with np.load(chain) as arrays:
        x, s = arrays["draws"], arrays["scores"]
    expected = ss.ksd(x, s, kernel=kept.kernel, preconditioner=kept.preconditioner)
    assert f"3 000 draws  ·  KSD {expected:.6g}" in ran.stdout, ran.stderr


def test_a_file_whose_name_is_misleading(steinstream, tmp_path):
    (tmp_path / "odd.npz").write_text("a,score_a\n" + "".join(f"{x},{-x}\n" for x in (0.5, -1.0, 0.25)))
    ran = steinstream("ksd", "odd.npz", "--format", "csv", "--preconditioner", "identity")
    assert ran.returncode == 0 and "3 draws" in ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preconditioner", "streaming"], "streaming can only be used to thin a stream"),
        (["--preconditioner", "chain.npz"], "chain.npz has no preconditioner"),
        (["--preconditioner", "missing.npy"], "missing.npy"),
    ],
)
def test_a_preconditioner_that_cannot_be_used_is_refused(steinstream, chain, options, words):
    ran = steinstream("ksd", chain, *options)
    assert ran.returncode == 2 and words in ran.stderr and "Traceback" not in ran.stderr


def test_a_set_kept_without_scores_is_refused(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(500, 2))
    ss.thin(x, log_density=-0.5 * np.sum(x**2, axis=1), proxy="gaussian", size=20).save(tmp_path / "kept.npz")
    ran = steinstream("ksd", "kept.npz")
    assert ran.returncode == 2 and "needs scores" in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
def test_a_damaged_kept_set_is_not_measured_as_a_chain(suffix, steinstream, chain, tmp_path):
    for module in {"nc": ["h5netcdf"], "zarr": ["zarr"]}.get(suffix, []):
        pytest.importorskip(module)
    name = f"kept.{suffix}"
    kept = ss.thin(*np.random.default_rng(0).normal(size=(2, 300, 2)), size=20, validate_scores=False)
    replace(kept, weights=np.full(20, -1.0)).save(tmp_path / name)  # chains have no weights, and could be read
    ran = steinstream("ksd", name)
    assert ran.returncode == 2 and f"{name} is not a valid kept set: weights must be" in ran.stderr
    ran = steinstream("inspect", name)
    assert ran.returncode == 0 and f"damaged: {name} is not a valid kept set: weights must be" in ran.stdout


def test_a_kept_set_without_one_of_its_arrays_is_not_measured_as_a_chain(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 60)
    with np.load(tmp_path / "kept.npz") as stored:
        np.savez(tmp_path / "kept.npz", **{name: stored[name] for name in stored.files if name != "history_ksd"})
    ran = steinstream("ksd", "kept.npz")
    assert ran.returncode == 2 and "missing arrays history_ksd" in ran.stderr

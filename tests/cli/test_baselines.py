"""``steinstream thin --method`` gives the results of the baselines in the library."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steinstream as ss
from steinstream import baselines
from steinstream.baselines import METHODS
from steinstream.cli import commands
from steinstream.errors import InputError
from tests.conftest import write_chain


def run(*arguments):
    commands.main(list(map(str, arguments)), standalone_mode=False)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_on_the_command_line(name, chain, tmp_path, capsys):
    if name == "kernel_thinning":
        pytest.importorskip("goodpoints")
    run("thin", chain, "--method", name.replace("_", "-"), "--size", 30, "--seed", 4, "-o", tmp_path / "kept.npz")
    assert "kept 30 of 3 000 draws" in capsys.readouterr().out
    with np.load(chain) as arrays, np.load(tmp_path / "kept.npz") as kept:
        ids = getattr(baselines, name)(arrays["draws"], arrays["scores"], 30, seed=4)
        assert np.array_equal(kept["ids"], ids[np.lexsort((ids[:, 1], ids[:, 0]))])
        assert np.array_equal(kept["draws"], arrays["draws"][kept["ids"][:, 1]])
        assert np.array_equal(kept["scores"], arrays["scores"][kept["ids"][:, 1]])
        preconditioner = ss.Preconditioner(kept["preconditioner"])
        assert float(kept["ksd"]) == ss.ksd(kept["draws"], kept["scores"], preconditioner=preconditioner)
        settings = json.loads(str(kept["settings"]))
    assert settings["seen"] == 3000
    assert settings.get("method", "default") == name
    run("ksd", tmp_path / "kept.npz")
    assert f"KSD {float(np.load(tmp_path / 'kept.npz')['ksd']):.6g}" in capsys.readouterr().out


def test_invalid_draws_can_be_skipped_and_are_counted(tmp_path, capsys):
    path = write_chain(tmp_path / "c.npz", draws=400)
    with np.load(path) as arrays:
        x, s = arrays["draws"].copy(), arrays["scores"].copy()
    x[3, 1], s[100, 2] = np.nan, np.inf
    np.savez(path, draws=x, scores=s)
    how = ["thin", path, "-o", tmp_path / "k.npz", "--method", "stein_thinning", "--size", 20]
    with pytest.raises(InputError, match="draw 3 is nan"):
        run(*how)
    run(*how, "--on-bad", "skip")
    assert "2 invalid draws skipped" in capsys.readouterr().out
    with np.load(tmp_path / "k.npz") as kept:
        assert not {3, 100} & set(kept["ids"][:, 1]) and np.array_equal(kept["draws"], x[kept["ids"][:, 1]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "spmcm", "--size", 5], "Did you mean spmcmc"),
        (["--method", "stride"], "requires the number of draws to keep"),
        (["--method", "stride", "--size", 3001], "size is 3001, but the chain has only 3000"),
        (["--method", "stride", "--size", 5, "--growth", "sqrt"], "--growth has no effect with --method stride"),
        (["--method", "stride", "--size", 5, "--passes", 2], "--passes has no effect"),
        (["--method", "stride", "--size", 5, "--stream-weight", 1], "--stream-weight has no effect"),
        (["--method", "stride", "--size", 5, "--preconditioner", "streaming"], "streaming can only be used"),
        (["--method", "stride", "--size", 5, "--candidates", 3], "--candidates has no effect"),
        (["--method", "stride", "--size", 5, "--checkpoint", "c.npz"], "--checkpoint has no effect"),
    ],
)
def test_options_without_effect_are_refused(options, words, chain, tmp_path):
    with pytest.raises(InputError, match=words):
        run("thin", chain, "-o", tmp_path / "kept.npz", *options)
    assert not (tmp_path / "kept.npz").exists()

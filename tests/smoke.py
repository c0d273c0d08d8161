"""Run against an installed wheel, with nothing but its dependencies: the main job from end to end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import steinstream as ss


def command(*arguments: str) -> str:
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("steinstream")), *arguments], capture_output=True, text=True
    )
    if ran.returncode:
        raise SystemExit(f"steinstream {' '.join(arguments)} failed:\n{ran.stderr}")
    return ran.stdout


def main() -> None:
    if "site-packages" not in str(ss.__file__):
        raise SystemExit(f"this is not the installed package but {ss.__file__}")
    if find_spec("pyarrow") or find_spec("matplotlib"):
        raise SystemExit("extras are installed, so this says nothing about the plain wheel")
    x = np.random.default_rng(0).normal(size=(2000, 3))
    kept = ss.thin(x, -x, size=50)
    if len(kept) != 50 or not 0 < kept.ksd < 0.2:
        raise SystemExit(f"unexpected result: {kept}")
    with tempfile.TemporaryDirectory() as folder:
        chain, out = f"{folder}/chain.npz", f"{folder}/kept.csv"
        np.savez(chain, draws=x, scores=-x)
        command("inspect", chain)
        command("thin", chain, "-o", out, "--size", "50")
        command("ksd", out)
        command("demo", "--draws", "11000", "-o", f"{folder}/demo")
        if len(Path(out).read_text().splitlines()) != 51:
            raise SystemExit("kept.csv has the wrong number of lines")
    if "thin_draws <- function" not in Path(command("r-file").strip()).read_text(encoding="utf-8"):
        raise SystemExit("the functions for R are missing")
    print(f"the wheel of steinstream {ss.__version__} works: {kept}")


main()

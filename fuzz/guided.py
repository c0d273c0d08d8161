"""Fuzzing of the readers, guided by the coverage of their code with atheris (``make fuzz-guided``).

atheris mutates the bytes of a file and prefers inputs that reach new lines of ``steinstream.io``. Every input must be
read or end in a `SteinstreamError`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["steinstream.io", "steinstream.validation", "steinstream.thinner"]):
    import steinstream.io  # noqa: F401
    from steinstream.errors import SteinstreamError
    from steinstream.io import open_chain, read_kept
    from steinstream.thinner import Thinner

from fuzz import seeds

#: Seeds from which atheris starts; the format of an input is that of the name.
_SEEDS = ["chain.csv", "chain.npy", "chain.npz", "kept.npz", "size.state", "stan-diagnostic.csv", "chain.parquet"]


def read(path: Path) -> None:
    """Read a file as a chain, as a kept set and as a checkpoint."""
    for attempt in (lambda: [*open_chain(path).blocks(64)], lambda: read_kept(path), lambda: Thinner.load(path)):
        try:
            attempt()
        except SteinstreamError as error:
            if not error.problem:
                raise RuntimeError("an error without a message") from error


def main() -> None:
    """Run atheris on one kind of file."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="chain.npz", help="the file to mutate: " + ", ".join(_SEEDS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="steinstream-guided-") as name:
        folder = Path(name)
        (folder / "valid").mkdir()
        (folder / "inputs").mkdir()
        seeds.make_in_process(folder / "valid")
        (folder / "inputs" / "first").write_bytes((folder / "valid" / options.only).read_bytes())
        target = folder / options.only

        def test_one_input(data: bytes) -> None:
            target.write_bytes(data)
            read(target)

        limits = [f"-max_total_time={round(60 * options.minutes)}", f"-seed={options.seed}", "-timeout=60"]
        atheris.Setup([sys.argv[0], *limits, "-max_len=20000", str(folder / "inputs")], test_one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

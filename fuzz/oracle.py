"""Run a case in this process, and compare what happened with what is promised."""

from __future__ import annotations

import hashlib
import io
import os
import re
import resource
import shutil
import sys
import traceback
import warnings
import zipfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from fuzz.cases import Case

MEGABYTES = 1500  # limit of the resident memory of a process that runs a case
_TOLERANCE = 1e-7  # of KSD, relative to the mean diagonal of the Stein kernel


class Outcome(NamedTuple):
    """Exit code, printed text, and what is wrong (empty if nothing is)."""

    code: int
    out: str
    err: str
    problem: str


def run_case(case: Case, folder: Path) -> Outcome:
    """Run a case in an empty folder and check every promise."""
    write_files(case, folder)
    before, peak_before = snapshot(folder), _peak_megabytes()
    code, out, err = run_words(case.words, folder)
    asked = {"-h", "--help"} & set(case.words)
    problem = wrong_end(case, code, err) or _changed_files(case, folder, before, code)
    if not problem and code in (0, 3) and not asked:
        try:
            with chdir(folder):
                problem = _wrong_result(case, folder)
        except Exception:
            problem = "the result cannot be checked: " + traceback.format_exc(limit=-3)
    peak = _peak_megabytes()
    if not problem and peak > max(MEGABYTES, peak_before):
        problem = f"{peak:.0f} MB of memory"
    return Outcome(code, out, err, problem)


def _peak_megabytes() -> float:
    """Return the largest resident memory of this process and of each process that it started."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def write_files(case: Case, folder: Path) -> None:
    """Write the files of a case into an emptied folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in case.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        os.utime(place, ns=(0, 0))  # checkpoints contain the time of the input


def snapshot(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run_words(words: list[str], folder: Path) -> tuple[int, str, str]:
    """Run the command line in this process; code 1 and the traceback for an exception that is not caught."""
    from steinstream.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    code: Any = 0
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        patch.object(sys, "argv", ["steinstream", *words]),
        patch.object(sys, "path", [*sys.path]),
        patch.object(sys, "dont_write_bytecode", True),  # of the modules of users
        patch.dict(os.environ, {"STEINSTREAM_LOG_INTERVAL": "inf"}),
        warnings.catch_warnings(),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            code = 1
            err.write(traceback.format_exc())
    printed = []
    for stream in (out, err):
        buffer: Any = stream.buffer
        printed.append(buffer.getvalue().decode("utf-8", "replace"))
    return code, printed[0], printed[1]


def wrong_end(case: Case, code: int, err: str) -> str:
    """Return what is wrong with the exit code and the messages."""
    if "Traceback (most recent" in err or code == 1:
        return "traceback:\n" + err[-1500:]
    if code not in case.codes:
        return f"code {code}: {err[-500:]}"
    if code == 2 and len(re.findall(r"^error: ", err, re.MULTILINE)) != 1:
        return f"code 2 without exactly one message: {err[-500:]}"
    warned = re.finditer(r"^(\S+\.py):\d+: \w*Warning.*", err, re.MULTILINE)
    developer = [one[0] for one in warned if Path(one[1]).name not in case.files]  # not of a module of the user
    return f"a warning for developers: {developer[0]}" if developer else ""


def _changed_files(case: Case, folder: Path, before: dict[str, str], code: int) -> str:
    """Return which file changed that should not, or was left behind."""
    after = snapshot(folder)
    outputs = output_names(case)
    checkpoints = [case.words[at + 1] for at, word in enumerate(case.words[:-1]) if word == "--checkpoint"]
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        saved = _place(name, checkpoints)
        place = _place(name, outputs)
        declared = saved or place or _default_output(case, name)
        if code in (0, 3):
            if not declared:
                return f"{name} was changed or left behind"
        elif saved and name not in after and name.replace(".checkpoint", ".npz") not in after:  # finished since
            return f"{name} was deleted by a command that failed"
        elif name in before and not saved and not _complete(folder / (place or name)):
            return f"{name} was changed by a command that failed"
        elif name not in before and not declared:
            return f"{name} was left behind"
    return ""


def _place(name: str, named: list[str]) -> str:
    """Return which of the named files and folders a file is, or is in; empty if none."""
    parts = name.split("/")
    return next((one for end in range(len(parts), 0, -1) if (one := "/".join(parts[:end])) in named), "")


def output_names(case: Case) -> list[str]:
    """Return the names of the outputs in a command line."""
    words = case.words
    options = ("-o", "--output", "--report", "--cumulative")
    names = [words[at + 1] for at, word in enumerate(words[:-1]) if word in options]
    names += [word.partition("=")[2] for word in words if word.startswith(tuple(f"{name}=" for name in options))]
    return [*map(os.path.normpath, names), *(["report.html"] if words[0] == "report" else [])]


def _default_output(case: Case, name: str) -> bool:
    return case.words[0] in ("thin", "plan", "compare") and ".kept." in name


def _complete(path: Path) -> bool:
    """Return whether a file is a complete kept set: a run with results is saved even if its variables are missing."""
    from steinstream.errors import SteinstreamError
    from steinstream.io import open_chain

    try:
        return any(len(block.draws) for block in open_chain(path).blocks())
    except SteinstreamError:
        return False


# -- results -----------------------------------------------------------------------------------------------------------


def _wrong_result(case: Case, folder: Path) -> str:
    """Return what is wrong with the kept set that a command wrote."""
    from steinstream.io import read_kept

    command, names = case.words[0], [name for name in output_names(case) if (folder / name).exists()]
    if command == "scores" and names and "--size" not in case.words:
        return _wrong_scores(case, folder / names[-1])
    if (
        command not in ("thin", "follow", "merge", "refine", "scores")
        or not names
        or not names[-1].endswith((".npz", ".nc", ".zarr"))
    ):
        return ""
    kept = read_kept(folder / names[-1])
    if not len(kept) or not np.isfinite(kept.draws).all():
        return "the kept set is empty, or a draw is not finite"
    if kept.scores is not None and kept.kernel is not None:
        exact, scale = recomputed_ksd(kept)
        if not abs(kept.ksd**2 - exact) <= _TOLERANCE * scale:
            return f"KSD is {kept.ksd}, recomputed {np.sqrt(max(exact, 0.0))}"
    if command == "thin" and not {"--initial", "--burn-in", "--workers"} & set(case.words):
        return _not_of_the_chain(case, folder, kept)
    return ""


def _wrong_scores(case: Case, path: Path) -> str:
    """Return what is wrong with the scores of the standard normal distribution that ``steinstream scores`` wrote."""
    with np.load(path) as file:
        draws, scores = file["draws"], file["scores"]
    if not any("standard_normal" in word for word in case.words) or "--accuracy" in case.words:
        return ""
    moderate = np.abs(draws) < 10  # of others the log density is rounded
    error = 1e-3 + 1e-14 * np.fmax.reduce(np.abs(draws))  # steps are proportional to the sd of all draws
    wrong = moderate.all(-1, keepdims=True) & ~(np.abs(scores + draws) < error)
    wrong &= ~(np.isnan(scores) & (error > 1.0))  # with such steps the log density is not finite, which is announced
    return f"scores {scores[wrong]} of the draws {draws[wrong]}" if wrong.any() else ""


def recomputed_ksd(kept: Any) -> tuple[float, float]:
    """Return KSD^2 of a kept set in plain NumPy, and the mean of the diagonal of the Stein kernel."""
    precondition, count = kept.preconditioner, len(kept)
    x = kept.draws if precondition is None else precondition.apply_to_draws(kept.draws)
    s = kept.scores if precondition is None else precondition.apply_to_scores(kept.scores)
    weights = np.full(count, 1 / count) if kept.weights is None else kept.weights
    matrix = kept.kernel.matrix(x, s, x, s)
    return float(weights @ matrix @ weights), float(np.abs(np.diag(matrix)).mean())


def _not_of_the_chain(case: Case, folder: Path, kept: Any) -> str:
    """Return which kept draw is not the row of the input that its id names."""
    from steinstream.cli import commands
    from steinstream.io import open_chain

    context = commands.commands["thin"].make_context("thin", case.words[1:], resilient_parsing=True)
    given = context.params
    if len(given["chain"]) > 1:
        return ""
    parameters = given["parameters"]
    chain = open_chain(
        folder / given["chain"][0],
        scores=None if given["scores"] is None else folder / given["scores"],
        draws_name=given["draws_name"],
        scores_name=given["scores_name"],
        negate=bool(given["negate_scores"]),
        format=given["format"],
        parameters=parameters.split(",") if isinstance(parameters, str) else parameters,
    )
    draws = None if parameters is not None else _independent_rows(case, folder / given["chain"][0])
    rows: dict[tuple[int, ...], list[bytes]] = {}  # a damaged file may have several draws with the same id
    for block in chain.blocks(64):
        for one, draw, score in zip(block.ids.tolist(), block.draws, block.scores, strict=True):
            rows.setdefault(tuple(one), []).append(_bits(draw) + _bits(score))
    for at, one in enumerate(kept.ids.tolist()):
        draw, score = kept.draws[at], b"" if kept.scores is None else _bits(kept.scores[at])
        if _bits(draw) + score not in rows[tuple(one)]:
            return f"the draw {one} is {draw}, but not in the file"
        if draws is not None and not np.array_equal(draws[one[0], one[1]], draw):
            return f"the draw {one} is {draw}, in the file {draws[one[0], one[1]]}"
    return ""


def _bits(numbers: Any) -> bytes:
    """Return the bits of numbers without the sign of a zero: draws that are equal share their numbers."""
    return bytes((numbers + 0.0).tobytes())


def _independent_rows(case: Case, path: Path) -> Any:
    """Return the draws of an npz or npy file, read with NumPy alone; None for other files."""
    if path.suffix not in (".npz", ".npy") or {"--draws-name", "--format"} & set(case.words):
        return None
    if path.suffix == ".npy":
        draws = np.load(path, allow_pickle=False)
        if not isinstance(draws, np.ndarray):
            return None
    else:
        with zipfile.ZipFile(path) as archive:  # np.load refuses an archive that follows other bytes
            if "ids.npy" in archive.namelist() or "draws.npy" not in archive.namelist():
                return None
            with archive.open("draws.npy") as file:
                draws = np.lib.format.read_array(file, allow_pickle=False)
    return draws[None] if draws.ndim == 2 else draws

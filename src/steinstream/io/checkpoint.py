"""Checkpoints: a versioned npz with a checksum, written aside and renamed, so that it is either whole or absent.

Nothing in the file is executed, and its bytes depend on the thinner's state alone, not on the order in which the engine
happens to store it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steinstream import schedules
from steinstream.errors import CheckpointError, InputError
from steinstream.kernels import IMQ, RBF
from steinstream.preconditioning import Preconditioner, Streaming, Warmup
from steinstream.result import History
from steinstream.thinner.marks import Marks
from steinstream.thinner.passes import Pass
from steinstream.thinner.sanity_checks import Looks
from steinstream.validation import Block, SteinIdentity
from steinstream.version import __version__

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

FORMAT = 5


def save(thinner: Thinner, path: str | PathLike[str], *, rows: bool = True, sync: bool = True) -> None:
    """Replace the file at ``path`` by this thinner's state, or leave it as it is if that fails.

    Without ``rows`` the points and scores of wide draws are left out: whoever has them elsewhere hands them to
    :func:`load`. Without ``sync`` the system decides when the file reaches the disk.
    """
    write(path, {**_settings(thinner), **_counters(thinner)}, _arrays(thinner, rows), sync)


def load(
    path: str | PathLike[str],
    growth: schedules.Schedule | None,
    budget: schedules.Schedule | None,
    rows: Callable[[NDArray[np.int64]], dict[str, NDArray[Any]]] | None = None,
) -> Thinner:
    """The thinner that :func:`save` wrote. Where ``rows`` are elsewhere, they are asked for by their ids (n, 3)."""
    about, arrays = read(path)
    thinner = _made(about, arrays, *_schedules(path, about, growth, budget))
    _restore(thinner, about, arrays)
    if thinner._dictionary is not None:
        thinner._open(Preconditioner(arrays["factor"], arrays.get("centre")))
        kept = _unprefixed("kept", arrays)
        thinner._dictionary.restore(kept if rows is None or "points" in kept else kept | rows(kept["ids"]))
        thinner._dictionary.trace = arrays["trace"].copy()
    return thinner


# -- how a thinner was made ----------------------------------------------------------------------------------------


def _settings(thinner: Thinner) -> dict[str, Any]:
    """What it was made with."""
    preconditioner, follower = thinner.preconditioner, thinner._follower
    return {
        "dim": thinner.dim,
        "kernel": [type(thinner.kernel).__name__, vars(thinner.kernel)],
        "warmup": vars(preconditioner) if isinstance(preconditioner, Warmup) else None,
        "follower": follower.about() if follower is not None else None,
        "growth": schedules.name_of(thinner.growth, thinner.growth),
        "budget": schedules.name_of(thinner.budget, thinner.growth),
        "rule": thinner.rule,
        "size": thinner.size,
        "candidates": thinner.candidates,
        "anchor": thinner.anchor,
        "cost_weight": thinner.cost_weight,
        "history": thinner._recorder.rule,
        "on_bad": thinner.on_bad,
        "validate_scores": thinner.validate_scores,
        "looks": vars(thinner._looks),
        "storage": thinner.storage,
    }


def _made(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], growth: schedules.Schedule, budget: schedules.Schedule
) -> Thinner:
    """A new one, made with the same."""
    from steinstream.thinner import Thinner

    kernel, parameters = about["kernel"]
    same = ("rule", "size", "candidates", "anchor", "cost_weight", "history", "on_bad", "validate_scores")
    return Thinner(
        about["dim"],
        kernel={"IMQ": IMQ, "RBF": RBF}[kernel](**parameters),
        preconditioner=_preconditioner(about, arrays),
        growth=growth,
        budget=budget,
        storage=about.get("storage", "float64"),
        **{name: about[name] for name in same},
    )


def _schedules(
    path: str | PathLike[str],
    about: dict[str, Any],
    growth: schedules.Schedule | None,
    budget: schedules.Schedule | None,
) -> tuple[schedules.Schedule, schedules.Schedule]:
    """Those that the file names, or those given for what it cannot hold."""
    floor = _schedule(path, "growth", about["growth"], growth, schedules.growth)
    return floor, _schedule(path, "budget", about["budget"], budget, lambda choice: schedules.budget(choice, floor))


def _schedule(
    path: str | PathLike[str],
    what: str,
    name: str | None,
    given: schedules.Schedule | None,
    find: Callable[[Any], schedules.Schedule],
) -> schedules.Schedule:
    if name is None and given is None:
        raise CheckpointError(
            f"{path} was made with a {what} function of your own, which a file cannot hold.",
            f"Pass it again: Thinner.load(path, {what}=...).",
        )
    if name is not None and given is not None and find(given) != find(name):
        raise CheckpointError(
            f"{path} was made with {what} {name}, and {getattr(given, '__qualname__', given)} is given.",
            f"Leave {what} out to go on as it began.",
        )
    return find(given if name is None else name)


def _preconditioner(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Preconditioner | Warmup | Streaming:
    """As they were given; the ones that a stream has led to are not."""
    if about["follower"]:
        return Streaming(**about["follower"]["streaming"])
    return Warmup(**about["warmup"]) if about["warmup"] else Preconditioner(arrays["factor"], arrays.get("centre"))


# -- how far it came -----------------------------------------------------------------------------------------------


def _counters(thinner: Thinner) -> dict[str, Any]:
    """What of it fits into JSON."""
    return {
        "pass": {name: value for name, value in vars(thinner.current_pass).items() if name != "resting"},
        "counters": [thinner.steps, thinner.seen, thinner.skipped, thinner._initial, thinner._brought],
        "identity": [thinner._identity.count, thinner._identity.moment],
        "note": thinner.note,
    }


def _arrays(thinner: Thinner, rows: bool) -> dict[str, NDArray[Any]]:
    """And the rest."""
    arrays: dict[str, NDArray[Any]] = {
        **_prefixed("waiting", thinner._waiting._asdict()),
        **_prefixed("sketch", thinner._sketch.state()),
        **_prefixed("history", thinner._recorder.history()._asdict()),
        "numbered": np.array(sorted(thinner._numbered.items()), dtype=np.int64).reshape(-1, 2),
        "identity_draw": thinner._identity.mean_draw,
        "identity_score": thinner._identity.mean_score,
        "resting": thinner.current_pass.resting,
    }
    if isinstance(thinner.preconditioner, Preconditioner):
        arrays["factor"] = thinner.preconditioner.factor
        if thinner.preconditioner.centre is not None:
            arrays["centre"] = thinner.preconditioner.centre
    if thinner._marks is not None:
        arrays |= _prefixed("marks", thinner._marks._asdict())
    if thinner._dictionary is not None:
        arrays |= {"trace": thinner._dictionary.trace, **_prefixed("kept", thinner._dictionary.state(rows))}
    if thinner._follower is not None:
        arrays |= _prefixed("follower", thinner._follower.arrays())
    if thinner._checks is not None:
        arrays |= _prefixed("differences", thinner._checks.differences.state())
    return arrays


def _restore(thinner: Thinner, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Bring a new thinner to where it came, but for what is kept."""
    thinner.steps, thinner.seen, thinner.skipped, thinner._initial, thinner._brought = about["counters"]
    thinner.note = about["note"]
    thinner._looks = Looks(**about.get("looks", vars(thinner._looks)))
    thinner._numbered = {int(chain): int(count) for chain, count in arrays["numbered"]}
    count, moment = about["identity"]
    means = arrays["identity_draw"], arrays["identity_score"]
    thinner._identity = SteinIdentity(thinner.dim, count, moment, *means)
    thinner._waiting = Block(**_unprefixed("waiting", arrays))
    thinner._sketch.restore(_unprefixed("sketch", arrays))
    marks = _unprefixed("marks", arrays)
    thinner._marks = Marks(**marks) if marks else None
    thinner._recorder.restore(History(**_unprefixed("history", arrays)))
    thinner.current_pass = Pass(**about["pass"], resting=arrays["resting"])
    if thinner._follower is not None:
        thinner._follower.restore(about["follower"], _unprefixed("follower", arrays))
    if differences := _unprefixed("differences", arrays):
        thinner._expect_checks().differences.restore(differences)


# -- the file ------------------------------------------------------------------------------------------------------


def _prefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def _unprefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}_"
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def write(path: str | PathLike[str], about: dict[str, Any], arrays: dict[str, NDArray[Any]], sync: bool = True) -> None:
    """A checked npz file of one JSON text and some arrays."""
    from steinstream.io.atomic import replacing

    try:
        head = json.dumps({"format": FORMAT, "steinstream": __version__, **about}, sort_keys=True)
    except TypeError as problem:
        raise InputError(
            f"A checkpoint holds JSON beside the draws, and something in thinner.note is none: {problem}.",
            "Put plain numbers, texts and lists there: array.tolist().",
        ) from None
    everything = {"about": np.array(head), **arrays}
    everything["checksum"] = np.array(_checksum(everything))
    with replacing(path, sync=sync) as file:
        np.savez(file, **everything)  # type: ignore[arg-type]


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What :func:`write` wrote, or a :class:`CheckpointError` that says what is wrong with the file."""
    from steinstream.io.errors import DAMAGE

    if not Path(path).is_file():
        raise CheckpointError(f"There is no checkpoint at {path}.")
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (*DAMAGE, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{path} is not a readable checkpoint: it is truncated or was made by something else.",
            "Delete it to start anew, or name another one.",
        ) from None
    if not {"about", "checksum"} <= arrays.keys():
        raise CheckpointError(f"{path} is an npz file but no steinstream checkpoint.", "Name another one.")
    checksum = str(arrays.pop("checksum"))
    if checksum != _checksum(arrays):
        raise CheckpointError(f"{path} is damaged: its checksum does not match.", "Delete it to start anew.")
    about = json.loads(str(arrays.pop("about")))
    if about["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {about['format']}, written by steinstream {about['steinstream']}; "
            f"this version reads format {FORMAT}.",
            "Finish the run with the version that began it.",
        )
    return about, arrays


def _checksum(arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

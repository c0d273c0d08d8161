"""Signals at random instants, full disks and closed pipes, in processes that really end.

Most processes are forked from this one, which has imported and compiled everything, so that a signal meets the work and
not the imports. Some are started as a user starts them.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

import steinstream as ss
from fuzz.oracle import snapshot
from fuzz.runner import Watch, fork, scratch
from fuzz.soak import differences, own_traceback, python_starts

_SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
_STARTED = 0.02  # share of the processes that are started and not forked

#: Commands that are killed and resumed; the result is out.npz.
_RESUMED = {
    "thin": ["thin", "long.npz", "-o", "out.npz", "--size", "40", "--checkpoint", "run.state", "--resume"],
    "passes": ["thin", "long.csv", "-o", "out.npz", "--size", "20", "--passes", "2",
               "--checkpoint", "run.state", "--resume"],
    "paper": ["thin", "long.npz", "-o", "out.npz", "--paper", "--checkpoint", "run.state", "--resume"],
    "follow": ["follow", "long.csv", "-o", "out.npz", "--size", "30", "--every", "0", "--until-idle", "0",
               "--checkpoint", "run.state", "--resume"],
}  # fmt: skip
#: Commands that are killed and started again; their output is the old file or the new one.
_REPEATED = {
    "merge": ["merge", "kept.npz", "other.npz", "-o", "out.npz", "--size", "10"],
    "refine": ["refine", "kept.npz", "-o", "out.npz", "--weights", "--order"],
    "plain": ["thin", "long.npz", "-o", "out.npz", "--size", "40"],
}


def run_scenarios(
    kinds: list[str], files: dict[str, bytes], seed: int, end: float, counts: Counter[str], first: int = 0
) -> Iterator[str]:
    """Run scenarios in turn until the time is over, count them, and yield what went wrong in each; empty if nothing."""
    folder, number = scratch(), first
    try:
        draws = np.random.default_rng(0).normal(size=(1000, 3))
        for name, data in files.items():
            if "/" not in name:
                (folder / name).write_bytes(data)
        np.savez(folder / "long.npz", draws=draws, scores=-draws)
        titles = "a,b,c,score_a,score_b,score_c"
        np.savetxt(folder / "long.csv", np.hstack([draws, -draws]), "%.17g", ",", header=titles, comments="")
        while time.monotonic() < end:
            kind = kinds[number % len(kinds)]
            problem = KINDS[kind](folder, Random(f"{seed} {kind} {number}"), counts)
            counts[kind] += 1
            number += 1
            yield f"{kind} {number - 1}: {problem}" if problem else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(words: list[str], folder: Path, choose: Random, prepare: Callable[[], None] = lambda: None) -> int:
    """Start a command whose messages go to messages.txt; return its process id."""
    if choose.random() < _STARTED:
        with (folder / "messages.txt").open("w") as messages:
            command = [sys.executable, "-B", "-m", "steinstream", *words]
            return subprocess.Popen(command, cwd=folder, stdout=messages, stderr=messages, preexec_fn=prepare).pid
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the command has begun
    try:
        return fork(lambda: _command(words, folder, prepare))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _command(words: list[str], folder: Path, prepare: Callable[[], None]) -> int:
    """Run a command in this process, with small blocks and a checkpoint after each of them."""
    from steinstream.__main__ import run
    from steinstream.cli import _hooks

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    messages = os.open("messages.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    prepare()
    thin = sys.modules["steinstream.cli.thin"]
    with (
        patch.object(sys, "argv", ["steinstream", *words]),
        patch.object(thin, "_ROWS", 100),
        patch.object(_hooks, "_SAVE_INTERVAL", -1.0),
        patch.dict(os.environ, {"STEINSTREAM_LOG_INTERVAL": "inf"}),
    ):
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        except KeyboardInterrupt:
            return 130
        try:
            run()
        except SystemExit as ended:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            return int(ended.code or 0)
    return 1


def finish(process: int) -> int | None:
    """Return the exit code of a process, negative for a signal; None if it had to be killed."""
    watch = Watch(process)
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if watch.problem():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.002)


def _trace(folder: Path) -> str:
    """Return a traceback of this package in the messages; one of Python itself, before the program starts, is not."""
    text = (folder / "messages.txt").read_text(errors="replace")
    return text[-1500:] if own_traceback(text) else ""


_REFERENCES: dict[str, bytes] = {}


def _reference(name: str, words: list[str], folder: Path) -> tuple[float, bytes]:
    """Return the result of an uninterrupted run, and about how long it takes."""
    begun = time.monotonic()
    code = finish(fork(lambda: _command(words, folder, lambda: None)))
    if code:
        raise RuntimeError(f"{words}: {code}: {(folder / 'messages.txt').read_text()}")
    result = (folder / "out.npz").read_bytes()
    _REFERENCES.setdefault(name, result)
    return time.monotonic() - begun, result


_DURATION: dict[str, float] = {}


def _instant(choose: Random, stops: int) -> float:
    """Return when to stop a run, relative to its duration; earlier if it is stopped many times and resumed."""
    return choose.uniform(0.0, 1.1) * min(1.0, 2.0 / stops)


def signals(folder: Path, choose: Random, counts: Counter[str]) -> str:
    """Stop a command at random instants and resume it until it ends; compare its result with an uninterrupted run."""
    name = choose.choice([*_RESUMED, *_RESUMED, *_REPEATED])
    words = _RESUMED.get(name) or _REPEATED[name]
    if name not in _REFERENCES:
        _DURATION[name], _ = _reference(name, words, folder)
    (folder / "expected.npz").write_bytes(_REFERENCES[name])
    (folder / "out.npz").unlink(missing_ok=True)
    (folder / "run.state").unlink(missing_ok=True)
    before = snapshot(folder)
    old = choose.random() < 0.5
    if old:
        shutil.copy(folder / "other.npz", folder / "out.npz")
    stops = choose.choice([1, 2, 5, 20])
    for _ in range(stops):
        process = start(words, folder, choose)
        time.sleep(_instant(choose, stops) * _DURATION[name])
        number = choose.choice(_SIGNALS)
        found, status = os.waitpid(process, os.WNOHANG)
        if not found:
            os.kill(process, number)
            counts[f"stopped by {number.name}"] += 1
            code = finish(process)
        else:
            code = os.waitstatus_to_exitcode(status)
        if python_starts((folder / "messages.txt").read_text(errors="replace")):
            counts["interrupted before the program"] += 1
            continue
        if code not in (0, 128 + number, -number):
            return f"{name}: code {code} after {number.name}: {(folder / 'messages.txt').read_text()[-500:]}"
        if _trace(folder):
            return f"{name}: {number.name}: {_trace(folder)}"
        problem = _unfinished(folder, old, name)
        if problem:
            return f"{name}: after {number.name} {problem}"
        if code == 0 and name in _RESUMED:
            break
    code = finish(start(words, folder, choose))
    if code != 0 or _trace(folder):
        return f"{name}: code {code} at the end: {(folder / 'messages.txt').read_text()[-1000:]}"
    if differences(folder / "out.npz", folder / "expected.npz"):
        return f"{name}: the result differs from that of an uninterrupted run"
    _remove_temporary(folder)
    after = {key: value for key, value in snapshot(folder).items() if key not in ("out.npz", "messages.txt")}
    before.pop("messages.txt", None)
    after.pop("messages.txt", None)
    return "" if after == before else f"{name}: files changed: {sorted(set(after.items()) ^ set(before.items()))}"


_STORED: dict[str, str] = {}  # files of an uninterrupted run


def stores(folder: Path, choose: Random, counts: Counter[str]) -> str:
    """Kill a program that keeps one file per kept draw; each kept draw must have its file, at every instant."""
    place = folder / "stored"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        if not _STORED:
            begun = time.monotonic()
            if finish(fork(lambda: _store(place))) != 0:
                return "an uninterrupted run failed"
            _DURATION["stores"] = time.monotonic() - begun
            _STORED.update(snapshot(place))
            shutil.rmtree(place)
            place.mkdir()
        stops = choose.choice([1, 2, 5, 20])
        for _ in range(stops):
            process = fork(lambda: _store(place))
            time.sleep(_instant(choose, stops) * _DURATION["stores"])
            found, status = os.waitpid(process, os.WNOHANG)
            if not found:
                os.kill(process, signal.SIGKILL)
                counts["stopped by SIGKILL"] += 1
                code = finish(process)
            else:
                code = os.waitstatus_to_exitcode(status)
            if code not in (0, -signal.SIGKILL):
                return f"code {code}"
            problem = _without_file(place)
            if problem:
                return problem
        if finish(fork(lambda: _store(place))) != 0:
            return "the program cannot continue"
        _remove_temporary(place)
        return "" if snapshot(place) == _STORED else "the files differ from those of an uninterrupted run"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _stored_draws() -> Any:
    return np.random.default_rng(2).normal(size=(60, 2))


def _store(place: Path) -> int:
    """Thin a chain draw by draw, and keep a file for each kept draw, from the checkpoint if there is one."""
    saved = place / "thinner.state"
    thinner = ss.Thinner.load(saved) if saved.exists() else ss.Thinner(2, size=10)
    with closing(ss.DrawStore(place / "draws", sync=False)) as store:
        store.reconcile(map(tuple, thinner.kept.ids.tolist()) if thinner.seen else ())
        for draw in _stored_draws()[thinner.seen :]:
            step = thinner.push(draw, -draw)
            store.commit({id: draw.tobytes() for id in step.added}, step.dropped, lambda: thinner.save(saved))
    return 0


def _without_file(place: Path) -> str:
    """Return which draw of the checkpoint has no complete file."""
    saved = place / "thinner.state"
    for chain, number in ss.Thinner.load(saved).kept.ids.tolist() if saved.exists() else ():
        file = place / "draws" / f"{chain}_{number}.bin"
        if not file.exists() or file.read_bytes() != _stored_draws()[number].tobytes():
            return f"the draw {number} has no complete file"
    return ""


def _unfinished(folder: Path, old: bool, name: str) -> str:
    """Return what is wrong with the files of a command that was stopped."""
    from steinstream.errors import SteinstreamError
    from steinstream.io import checkpoint, read_kept

    try:
        if (folder / "run.state").exists():
            checkpoint.read(folder / "run.state")
        if (folder / "out.npz").exists():
            read_kept(folder / "out.npz")
        elif old:
            return "the earlier output is lost"
    except SteinstreamError as error:
        return f"a file is damaged: {error}"
    return ""


def _remove_temporary(folder: Path) -> None:
    """Delete the temporary files that a SIGKILL leaves."""
    for path in folder.glob(".*.tmp"):
        path.unlink()


def disks(folder: Path, choose: Random, counts: Counter[str]) -> str:
    """Write to a disk that is full, or with a limit of the size of files."""
    name = choose.choice([*_RESUMED, *_REPEATED])
    words = [
        word.replace("out.npz", choose.choice(["out.npz", "out.csv", "out.nc"]))
        for word in _RESUMED.get(name) or _REPEATED[name]
    ]
    output = words[words.index("-o") + 1]
    room = choose.choice([0, 100, choose.randrange(2000), choose.randrange(40_000), choose.randrange(200_000)])
    mounted = folder / "disk"
    mounted.mkdir(exist_ok=True)
    pages = max(room // 4096, 1)
    real = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={pages * 4096}", "tmpfs", str(mounted)], capture_output=True
    ).returncode == 0  # needs root  # fmt: skip
    counts["full disks" if real else "limited file sizes"] += 1
    try:
        words = [f"disk/{word}" if word in (output, "run.state") else word for word in words]
        old = choose.random() < 0.5
        if old:
            try:
                (mounted / output).write_bytes(b"an earlier file")
            except OSError:
                (mounted / output).unlink(missing_ok=True)
                old = False
        (mounted / "run.state").unlink(missing_ok=True)

        def limit() -> None:
            if not real:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        before = snapshot(folder)
        before.pop("messages.txt", None)
        code = finish(start(words, folder, choose, limit))
        after = snapshot(folder)
        text = (folder / "messages.txt").read_text(errors="replace") if real else ""
        if "Traceback" in text or code not in (0, 2):
            return f"{name}: code {code}: {text[-1500:]}"
        if real and code == 2 and text.count("error: ") != 1:
            return f"{name}: not one message: {text}"
        after = {key: value for key, value in after.items() if key not in ("messages.txt", "disk/run.state")}
        if code == 0:
            after.pop(f"disk/{output}")
            before.pop(f"disk/{output}", None)
        return "" if after == before else f"{name}: files changed: {sorted(set(after.items()) ^ set(before.items()))}"
    finally:
        if real:
            subprocess.run(["umount", "-l", str(mounted)], check=False, capture_output=True)
        shutil.rmtree(mounted, ignore_errors=True)


def pipes(folder: Path, choose: Random, counts: Counter[str]) -> str:
    """Print to a pipe that is closed, to a full device, or to nothing."""
    words = choose.choice(
        [
            ["thin", "chain.csv", "-o", "-"],
            ["thin", "chain.npz", "-o", "out.npz", "--json"],
            ["thin", "noscores.csv", "-o", "out.csv"],
            ["inspect", "chain.npz"],
            ["ksd", "kept.npz"],
            ["merge", "kept.npz", "other.npz", "-o", "-"],
            ["thin", "missing.npz", "-o", "out.npz"],
            ["thin", "--help"],
        ]
    )
    how = choose.choice(["closed pipe", "full device", "no descriptor"])
    target = choose.choice([1, 2])
    counts[how] += 1

    def prepare() -> None:
        if how == "closed pipe":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, target)
        elif how == "full device":
            os.dup2(os.open("/dev/full", os.O_WRONLY), target)
        else:
            os.close(target)

    for name in ("out.npz", "out.csv"):
        (folder / name).unlink(missing_ok=True)
    before = snapshot(folder)
    with (folder / "messages.txt").open("w") as messages:
        command = [sys.executable, "-B", "-m", "steinstream", *words]
        code = finish(subprocess.Popen(command, cwd=folder, stdout=messages, stderr=messages, preexec_fn=prepare).pid)
    if _trace(folder) or code not in (0, 2, 141):
        return f"{words} {how} {target}: code {code}: {(folder / 'messages.txt').read_text()[-1000:]}"
    after = {name: value for name, value in snapshot(folder).items() if not name.startswith("out.")}
    before["messages.txt"] = after["messages.txt"]
    return "" if after == before else f"{words}: files changed"


KINDS: dict[str, Callable[[Path, Random, Counter[str]], str]] = {
    "signals": signals,
    "stores": stores,
    "disks": disks,
    "pipes": pipes,
}

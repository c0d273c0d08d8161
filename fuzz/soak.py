"""Soak test: follow a growing file with dashboard and checkpoints, under random kills.

A chain is appended to a csv file. Two processes of ``steinstream follow`` thin it, write checkpoints and serve their
dashboards, which are requested every second. The first is stopped by SIGKILL, SIGTERM or SIGINT at random instants,
each time followed by a run with ``--resume``. The second is never stopped; after a warm-up its resident memory must not
grow. At the end both kept sets must be, bit for bit, that of one uninterrupted run over the finished file.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np

_DIM = 4
_ROWS = 50  # draws per write of the sampler
_PAUSE = 0.1  # seconds between two writes
_IDLE = 30  # seconds without data after which a run ends
_WARM_UP = 1 / 6  # share of the time after which the memory of the process that is never stopped must not grow
_GROWTH = 8.0  # megabytes by which it may grow: the heap is fragmented differently in each minute


class Sampler(threading.Thread):
    """A sampler that appends draws of an autoregressive chain and their scores to a csv file until it is stopped."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.path, self.draws, self.stop = path, 0, threading.Event()
        self._random, self._state = np.random.default_rng(seed), np.full(_DIM, 20.0)

    def run(self) -> None:
        names = [f"x{i}" for i in range(_DIM)]
        with self.path.open("w") as file:
            file.write(",".join([*names, *(f"score_{name}" for name in names)]) + "\n")
            while not self.stop.is_set():
                for _ in range(_ROWS):
                    self._state = 0.9 * self._state + np.sqrt(1 - 0.81) * self._random.normal(size=_DIM)
                    file.write(",".join(f"{x:.17g}" for x in (*self._state, *-self._state)) + "\n")
                file.flush()
                self.draws += _ROWS
                time.sleep(_PAUSE)


class Client(threading.Thread):
    """A client of the dashboard that requests its page, an unknown page and a page without the token."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.url, self.answers = "", Counter[str]()

    def run(self) -> None:
        while True:
            time.sleep(1.0)
            page = self.url
            for url in (page, f"{page}unknown", page.rpartition("/")[0].rpartition("/")[0]) if page else ():
                try:
                    with urllib.request.urlopen(url, timeout=20) as answer:
                        answer.read()
                        self.answers[str(answer.status)] += 1
                except urllib.error.HTTPError as error:
                    self.answers[str(error.code)] += 1
                except (OSError, ValueError):  # the process has just been killed
                    self.answers["no answer"] += 1


def own_traceback(text: str) -> bool:
    """Return whether messages contain a traceback of this package."""
    return "Traceback" in text and "steinstream" in text


def python_starts(text: str) -> bool:
    """Return whether Ctrl-C stopped Python before `steinstream.__main__.run` handles it, for example in imports.

    Python prints a traceback then. Of this package it has only the modules that Python imports to find that function,
    or the line of that function that installs the handler.
    """
    text = re.sub(r'  File "[^"]*__main__.py", line \d+, in run\n    signal.signal\(signal.SIGINT, _stop\)\n', "", text)
    frames = re.findall(r'^  File "[^"]*[/\\]steinstream[/\\]([^"]*)", line \d+, in (\S+)', text, re.MULTILINE)
    before = {("__init__.py", "<module>"), ("__main__.py", "<module>")}
    return "KeyboardInterrupt" in text and before.issuperset(frames)


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


class Steady:
    """A process of ``steinstream follow`` that is never stopped, and the largest resident memory in each minute."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.errors, self.begun, self.megabytes = folder / "steady.txt", time.monotonic(), dict[int, float]()
        self.client, self.ended_early = Client(), False
        words = [*command, "-o", "steady.npz", "--every", "1", "--checkpoint", "steady-state.npz", "--serve"]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(words, cwd=folder, stdout=errors, stderr=errors)
        self.client.start()

    def measure(self) -> None:
        """Measure the memory now, while the file grows."""
        self.ended_early |= self.process.poll() is not None
        minute = int((time.monotonic() - self.begun) / 60)
        now = resident_megabytes(self.process.pid)
        self.megabytes[minute] = max(self.megabytes.get(minute, 0.0), now)
        self.client.url = self.client.url or address(self.errors)

    def failures(self, minutes: float) -> list[str]:
        """Wait for the end, and return what is wrong."""
        code, text = self.process.wait(600), self.errors.read_text()
        found = [f"the process that is never stopped: code {code}: {text[-2000:]}"] * bool(code or own_traceback(text))
        if self.ended_early:
            found.append(f"the process that is never stopped ended while the file grew: {text[-2000:]}")
        if not self.client.answers["200"]:
            found.append("the dashboard of the process that is never stopped was never seen")
        warm = _WARM_UP * minutes
        before = max((peak for minute, peak in self.megabytes.items() if minute < warm), default=0.0)
        after = max((peak for minute, peak in self.megabytes.items() if minute >= warm), default=0.0)
        if after > before + _GROWTH:
            found.append(f"memory grew from {before:.1f} MB to {after:.1f} MB in one process")
        return found


def address(messages: Path) -> str:
    """Return the address of the dashboard in the messages of a process; empty if there is none yet."""
    found = re.search(r"http://\S+", messages.read_text())
    return found[0] if found else ""


def soak(minutes: float, seed: int, folder: Path) -> dict[str, object]:
    """Run the test and return its result.

    Parameters
    ----------
    minutes : float
        Time during which the chain grows.
    seed : int
        Seed of the chain and of the signals.
    folder : Path
        An empty folder for the files.

    Returns
    -------
    dict
        The result; ``failures`` is empty if every promise was kept.
    """
    choose, started, total = random.Random(seed), time.monotonic(), 60 * minutes
    sampler, client = Sampler(folder / "chain.csv", seed), Client()
    sampler.start(), client.start()
    command = [sys.executable, "-m", "steinstream", "follow", "chain.csv", "--size", "100", "--until-idle", str(_IDLE)]
    interrupted = [*command, "-o", "kept.npz", "--every", "1", "--checkpoint", "state.npz", "--resume", "--serve"]
    signals, codes, failures = Counter[str](), Counter[str](), list[str]()
    steady = Steady(command, folder)
    code, growing, before_the_program = None, True, 0
    while code != 0 and (growing or not failures):
        # Most lives are short; some last long enough to show a leak.
        life = choose.choice([1.0, 5.0, 20.0, total / 10]) * choose.uniform(0.2, 1.0)
        number = choose.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        with (folder / "errors.txt").open("w") as errors:
            process = subprocess.Popen(interrupted, cwd=folder, stdout=errors, stderr=errors)
        begun = time.monotonic()
        while process.poll() is None:
            now = time.monotonic()
            growing = now - started < total
            if not growing:
                sampler.stop.set()
            elif now - begun > life:
                process.send_signal(number)
                signals[number.name] += 1
                break
            if growing:  # at the end the process writes its result
                steady.measure()
            client.url = address(folder / "errors.txt")
            time.sleep(0.1)
        code = process.wait(600)
        client.url = ""
        codes[str(code)] += 1
        memory = resident_megabytes(steady.process.pid)
        print(f"{(now - started) / 60:.1f} minutes: code {code}; {memory:.1f} MB", file=sys.stderr, flush=True)
        text = (folder / "errors.txt").read_text()
        if python_starts(text):
            before_the_program += 1
        elif code == 0 and growing:
            failures.append(f"it ended while the file grew: {text[-2000:]}")
        elif code not in (0, 128 + number, -number) or own_traceback(text):
            failures.append(f"code {code} after {number.name}: {text[-2000:]}")
    sampler.stop.set()
    sampler.join()
    failures += steady.failures(minutes)
    subprocess.run([*command[:-1], "0", "-o", "whole.npz"], cwd=folder, check=True, capture_output=True)
    for name in ("kept.npz", "steady.npz") if not failures else ():
        different = differences(folder / name, folder / "whole.npz")
        if different:
            failures.append(f"{name} differs from the set of one run over the finished file: {', '.join(different)}")
    if not client.answers["200"]:
        failures.append("the dashboard was never seen")
    return {
        "seed": seed,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "draws": sampler.draws,
        "signals": dict(sorted(signals.items())),
        "interrupted_before_the_program": before_the_program,
        "exit_codes": dict(sorted(codes.items())),
        "dashboard_answers": dict(sorted(client.answers.items())),
        "megabytes_of_one_process_by_minute": [round(peak, 1) for peak in steady.megabytes.values()],
        "bits_as_uninterrupted": not failures,
        "failures": failures,
    }


def differences(one: Path, other: Path) -> list[str]:
    """Return which arrays of two kept sets differ in any bit, except for the command that made them."""
    with np.load(one) as a, np.load(other) as b:
        return [
            name
            for name in sorted({*a.files, *b.files} - {"settings"})
            if name not in a.files or name not in b.files or a[name].tobytes() != b[name].tobytes()
        ]


def main() -> None:
    """Run the test and write its result."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", type=Path, help="json file to write")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit that it is ignored
    folder = Path(tempfile.mkdtemp(prefix="steinstream-soak-"))
    result = soak(options.minutes, options.seed, folder)
    if result["failures"]:
        print(f"The files are in {folder}.", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    text = json.dumps(result, indent=2)
    print(text)
    if options.result:
        options.result.write_text(text + "\n")
    sys.exit(bool(result["failures"]))


if __name__ == "__main__":
    main()

"""Run cases in forked processes, and find those that crash, hang or need too much memory.

A process runs a batch of cases. It inherits the imported modules and the compiled code, so that a case takes
milliseconds. A process that is lost costs one case.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fuzz import seeds
from fuzz.cases import Case
from fuzz.oracle import MEGABYTES, Outcome, run_case, write_files, wrong_end
from fuzz.soak import resident_megabytes
from steinstream.io.netcdf import is_hdf5

PROCESSOR_SECONDS = 20.0  # limit of a case, with the processes that it starts
WAITING_SECONDS = 20.0  # limit of the time in which it neither uses the processor nor could use it
TOO_SLOW = (f"more than {PROCESSOR_SECONDS:.0f} s of processor time", f"waited for {WAITING_SECONDS:.0f} s")
_POLL = 0.2  # seconds between two measurements of a process
GENERATOR = "generator"  # kind of a fault of the fuzzer itself, which has no case
_BATCH = 2000
_LAST_WORDS = 1500  # characters that a lost process printed, in a report


class Result(NamedTuple):
    """The end of one case; the case itself only if something is wrong."""

    kind: str
    code: int
    problem: str
    case: Case | None

    @property
    def crashed(self) -> bool:
        """Whether a signal that the process did not get from the fuzzer ended it."""
        return self.code < 0 and self.code != -signal.SIGKILL


def scratch() -> Path:
    """Return a new folder for the files of cases, in memory if possible."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="steinstream-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))


def warm_up(files: dict[str, bytes]) -> None:
    """Import and compile what most cases need, without using what starts threads."""
    for name in ("h5netcdf", "h5py", "xarray", "zarr", "pyarrow.parquet"):
        with suppress(ImportError):
            importlib.import_module(name)
    folder = scratch()
    commands = [
        ["thin", "chain.npz", "-o", "out.npz", "--size", "5"],
        ["thin", "chain.csv", "-o", "out.csv", "--paper"],
        ["thin", "noscores.csv", "-o", "out.csv"],
        ["inspect", "chain.npz"],
        ["merge", "kept.npz", "other.npz", "-o", "merged.npz", "--size", "6"],
        ["refine", "kept.npz", "-o", "refined.npz", "--weights", "--order"],
        ["ksd", "chain.npz"],
        ["average", "ordered.npz", "outputs.csv"],
        [*seeds.WORKERS, "-o", "out.npz"],
    ]
    for name in ("chain.nc", "run.h5", "kept.nc"):
        commands += [["thin", name, "-o", "out.npz", "--size", "5"]] if name in files else []
    for words in commands:
        case = Case("warm-up", words, files)
        outcome = run_case(case, folder / "case")
        if outcome.problem or outcome.code:
            raise RuntimeError(f"{words}: {outcome}")
    shutil.rmtree(folder)


def fork(work: Callable[[], int]) -> int:
    """Run a function in a forked process, which exits with its result, and return the process id."""
    process = os.fork()
    if process:
        return process
    try:
        code = work()
    except BaseException:
        os.write(2, traceback.format_exc(limit=-4).encode("utf-8", "backslashreplace"))
        code = 1
    os._exit(code)


def activity(process: int) -> tuple[float, bool]:
    """Return the processor time of a process with its children, and whether a thread could use the processor now.

    A thread that waits for a disk counts as one that could: the machine is slow, not the program.
    """
    seconds, able, left = 0.0, False, [process]
    while left:
        place = Path(f"/proc/{left.pop()}")
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            for task in (place / "task").iterdir():
                able |= (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
                left += map(int, (task / "children").read_text().split())
        except OSError:  # it has just ended
            continue
    return seconds, able


class Watch:
    """The limits of a process; a busy machine does not make it exceed one.

    The first limit is one of processor time, which does not run while other processes have the processor. The second
    is one of the time in which no thread used the processor, had to wait for its turn, or waited for a disk.
    """

    def __init__(self, process: int) -> None:
        self._process, self._waited, self._measured = process, 0.0, time.monotonic()
        self._begun = self._used = activity(process)[0]

    def problem(self) -> str:
        """Measure the process, at most every 0.2 s, and return which limit it exceeds; empty if none."""
        now = time.monotonic()
        if now - self._measured < _POLL:
            return ""
        used, able = activity(self._process)
        if not able and used == self._used:
            self._waited += min(now - self._measured, 5 * _POLL)  # this process, too, may have had to wait
        self._used, self._measured = used, now
        if used - self._begun > PROCESSOR_SECONDS:
            return TOO_SLOW[0]
        if self._waited > WAITING_SECONDS:
            return TOO_SLOW[1]
        megabytes = resident_megabytes(self._process)
        return f"{megabytes:.0f} MB of memory" if megabytes > MEGABYTES else ""


def run_batches(cases: Iterable[Callable[[], Case]], batch: int = _BATCH) -> Iterator[Result]:
    """Run cases, given as functions that are called in the process that runs them."""
    pending = iter(cases)
    folder = scratch()
    try:
        while True:
            makers = [maker for _, maker in zip(range(batch), pending, strict=False)]
            if not makers:
                return
            while makers:
                finished = 0
                for result in _run_batch(makers, folder):
                    finished += 1
                    yield result
                makers = makers[max(finished, 1) :]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_batch(makers: list[Callable[[], Case]], folder: Path) -> Iterator[Result]:
    """Run cases in one process until it has finished or is lost."""
    current, messages = folder / "current.json", folder / "messages.txt"
    reader, writer = os.pipe()
    process = fork(lambda: _work(makers, folder, current, messages, writer))
    os.close(writer)
    problem = ""
    with os.fdopen(reader, "rb", buffering=0) as answers:
        for _ in makers:
            problem = _wait(process, answers)
            line = b"" if problem else answers.readline()
            if not line:
                break
            kind, code, wrong, case = json.loads(line)
            yield Result(kind, code, wrong, case and Case.from_json(case))
        else:
            os.waitpid(process, 0)
            return
    end = _stopped(process) if problem else os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if end == 0:  # it stopped after a case that may have an effect on further ones
        return
    lost = Case.from_json(current.read_text()) if current.exists() else None
    problem = f"{problem or f'the process ended with {end}'}\n{_last_words(messages)}".rstrip()
    yield Result(lost.kind if lost else GENERATOR, end, problem, lost)


def _stopped(process: int) -> int:
    """End a process that exceeds a limit, after it has written its Python frames, and return the code of SIGKILL."""
    os.kill(process, signal.SIGABRT)
    time.sleep(1.0)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return -signal.SIGKILL


def _last_words(messages: Path) -> str:
    """Return what a lost process printed: the message of a library, and the innermost frames."""
    text = messages.read_text(errors="replace").partition("Extension modules:")[0] if messages.exists() else ""
    return "\n".join(line for line in text.splitlines() if line.strip())[:_LAST_WORDS]


def run_command(case: Case) -> str:
    """Run a case as a command in a new process, and return what is wrong with its end."""
    folder = scratch()
    write_files(case, folder / "case")
    command = [sys.executable, "-m", "steinstream", *case.words]
    try:
        with (folder / "messages.txt").open("w+", errors="replace") as messages:
            process = subprocess.Popen(command, cwd=folder / "case", stdout=subprocess.DEVNULL, stderr=messages)
            watch = Watch(process.pid)
            while process.poll() is None:
                problem = watch.problem()
                if problem:
                    process.kill()
                    process.wait()
                    return problem
                time.sleep(_POLL)
            messages.seek(0)
            return wrong_end(case, process.returncode, messages.read())
    finally:
        shutil.rmtree(folder)


def crashed_in_library(problem: str) -> str:
    """Return the name of the library that crashed, HDF5 or Arrow; empty if it is none of them.

    HDF5: the innermost Python frame is in h5py or h5netcdf. Arrow: it was ended by an exception of its own that it did
    not catch.
    """
    frames = re.findall(r'^  File "([^"]*)"', problem, re.MULTILINE)
    if frames and {"h5py", "h5netcdf"} & set(Path(frames[0]).parts):
        return "HDF5"
    return "Arrow" if "terminate called after throwing an instance of 'parquet::ParquetException'" in problem else ""


def compiled(problem: str) -> bool:
    """Return whether a process that exceeded a limit was compiling a function of this package for the first time."""
    return problem.startswith(TOO_SLOW[0]) and f"{os.sep}numba{os.sep}core{os.sep}" in problem


def _wait(process: int, answers: object) -> str:
    """Wait for an answer; return what is wrong if none arrives in time."""
    watch = Watch(process)
    while not select.select([answers], [], [], _POLL)[0]:
        problem = watch.problem()
        if problem:
            return problem
    return ""


def _work(makers: list[Callable[[], Case]], folder: Path, current: Path, messages: Path, writer: int) -> int:
    """Run cases and write an answer for each."""
    Path("/proc/self/oom_score_adj").write_text("1000")  # the first to be ended if a case needs the whole memory
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for source, descriptor in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(source, descriptor)
    faulthandler.enable(output, all_threads=False)  # the Python frames at a crash, of the thread that crashed
    for make in makers:
        os.ftruncate(output, 0)
        current.unlink(missing_ok=True)  # without it, the process was lost while it made a case
        try:
            case = make()
        except Exception:
            problem = "the case cannot be made: " + traceback.format_exc(limit=-4)
            os.write(writer, json.dumps([GENERATOR, 1, problem, None]).encode() + b"\n")
            continue
        text = case.to_json()
        current.write_text(text)  # for the case that the process does not survive it
        try:
            outcome = run_case(case, folder / "case")
        except Exception:
            outcome = Outcome(1, "", "", "the case cannot be run: " + traceback.format_exc(limit=-4))
        answer = [case.kind, outcome.code, outcome.problem, text if outcome.problem else None]
        os.write(writer, json.dumps(answer).encode() + b"\n")
        if "memory" in outcome.problem or any(is_hdf5(Path(name), data) for name, data in case.files.items()):
            return 0  # further cases would have the same peak, or memory that HDF5 has overwritten
    return 0


# -- smaller cases -----------------------------------------------------------------------------------------------------


def minimised(case: Case, fails: Callable[[Case], bool], seconds: float = 15.0) -> Case:
    """Return a smaller case that still fails: without files, words and bytes that do not matter."""
    end = time.monotonic() + seconds

    def still_fails(smaller: Case) -> bool:
        return time.monotonic() < end and fails(smaller)

    for name in list(case.files):
        without = {key: data for key, data in case.files.items() if key != name}
        smaller = Case(case.kind, case.words, without)
        case = smaller if still_fails(smaller) else case
    at = len(case.words) - 1
    while at > 0:
        smaller = Case(case.kind, case.words[:at] + case.words[at + 1 :], case.files)
        case = smaller if still_fails(smaller) else case
        at -= 1
    for name in list(case.files):
        size = len(case.files[name]) // 2
        while size >= 1 and time.monotonic() < end:
            start = 0
            while start < len(case.files[name]) and time.monotonic() < end:
                data = case.files[name]
                smaller = Case(case.kind, case.words, {**case.files, name: data[:start] + data[start + size :]})
                if still_fails(smaller):
                    case = smaller
                else:
                    start += size
            size //= 2
    return case

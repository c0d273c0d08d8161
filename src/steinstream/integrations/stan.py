"""Stan: run a compiled model and thin its draws as they are made; only what is kept is ever stored.

CmdStan writes its two files into named pipes. Unconstrained draws and their gradients come through one of them,
the constrained draws through the other, and only those of kept draws are held. Several chains run side by side and are
taken in turns, a draw of each: with given seeds the kept set is the same in every run, whoever is faster.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from steinstream.errors import InputError, SamplerError
from steinstream.integrations._common import live_thinner
from steinstream.integrations._draw_metadata import Beside
from steinstream.io.cmdstan import parse_config, parse_lines, stan_variables
from steinstream.io.csv_follow import CsvPreamble, GrowingCsv, LineBuffer, interleave
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner._unbroken import Unbroken
from steinstream.validation import Block

_AHEAD = 4096  # draws that a chain may be ahead of the others; then it waits, its pipe full
_BYTES = 1 << 24  # and that much text
_PIECE = 1 << 16
_SAID = 20  # lines of what a process says, to be shown if it dies
_PATIENCE = 5.0  # seconds between asking a process to end and ending it


def run(command: str | os.PathLike[str] | Sequence[str], *, chains: int = 4, **settings: Any) -> Live:
    """Start a compiled model and thin what it draws.

    Use it as ``with run(command, chains=4, size=200) as live: kept = live.wait()``.

    ``command`` is the program with CmdStan's arguments, without ``id`` and without files of output:
    ``["./model", "sample", "num_samples=1000", "data", "file=data.json", "random", "seed=1"]``; from cmdstanpy,
    ``[model.exe_file, ...]``. Each chain is a process of its own. ``settings`` are those of
    :class:`~steinstream.Thinner`; coordinates follow the stream unless given.
    """
    return Live([os.fspath(command)] if isinstance(command, str | os.PathLike) else list(command), chains, settings)


class Live:
    """Samplers that run, and the thinner that their draws go through. Leaving the ``with`` block ends them."""

    def __init__(self, command: list[str], chains: int, settings: dict[str, Any]) -> None:
        if chains < 1:
            raise InputError(f"chains is {chains}.", "Run at least one.")
        self.command = command
        self.thinner: Thinner | None = None
        """What the draws go through; None until the first has come."""
        self._commands = [as_command(command, chain, chains) for chain in range(chains)]
        self._settings = settings
        live_thinner(1, **settings)  # a wrong setting should not cost a start
        self._samplers: list[_Sampler] = []
        self._beside: Beside[bytes] = Beside()
        self._folder: Path | None = None

    def __enter__(self) -> Live:
        if not hasattr(os, "mkfifo"):
            raise InputError("This system has no named pipes.", "Let CmdStan write files, and use steinstream follow.")
        self._folder = Path(tempfile.mkdtemp(prefix="steinstream-"))
        try:
            for chain, command in enumerate(self._commands):
                self._samplers.append(_Sampler(chain, command, self._folder))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the samplers and remove the pipes; what is kept stays."""
        for sampler in self._samplers:
            sampler.stop()
        for sampler in self._samplers:
            sampler.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> Kept:
        """Thin until all chains are done; raise :class:`~steinstream.errors.SamplerError` if one dies."""
        while self.poll(1.0):
            pass
        return self.kept

    def poll(self, seconds: float = 0.0) -> bool:
        """Take what has come, waiting at most so long for something to come; False when all is done."""
        if not self._samplers:
            raise InputError("Nothing runs.", "Use it as: with run(...) as live: kept = live.wait().")
        self._read(seconds)
        over = [sampler.over for sampler in self._samplers]
        self._take(over)
        for sampler in self._samplers:
            if sampler.over and sampler.trouble:
                self._take([True] * len(self._samplers))
                died = SamplerError(*sampler.obituary())
                died.kept = self.kept if self._some else None
                raise died
        return not all(over)

    def _read(self, seconds: float) -> None:
        streams = [s for sampler in self._samplers for s in sampler.streams if s.open and sampler.wants(s)]
        # A pipe whose other end was never opened does not become readable: that its process has ended is seen here.
        ended = [sampler for sampler in self._samplers if not sampler.over and sampler.ended]
        if not streams:
            time.sleep(min(seconds, 0.01))
        else:
            with selectors.DefaultSelector() as selector:
                for stream in streams:
                    selector.register(stream.file, selectors.EVENT_READ, stream)
                for key, _ in selector.select(0.0 if ended else min(seconds, 0.2)):
                    key.data.read(alive=True)
        for sampler in ended:
            for stream in sampler.streams:
                while stream.open:
                    stream.read(alive=False)

    def _take(self, over: list[bool]) -> None:
        for block in interleave(self._samplers, over):
            if self.thinner is None:
                self.thinner = live_thinner(block.draws.shape[1], **self._settings)
            lines = [((chain, draw), self._samplers[chain].rows.lines.popleft()) for chain, draw in block.ids.tolist()]
            step = self.thinner.extend(block.draws, block.scores, ids=block.ids)
            self._beside.update(self.thinner, step, lines)

    @property
    def _some(self) -> bool:
        return self.thinner is not None and len(self.thinner) > 0

    @property
    def kept(self) -> Kept:
        """What is kept now, with the constrained draws as its variables."""
        if self.thinner is None or not self._some:
            raise InputError("Nothing is kept yet.", "Wait for more draws.")
        kept, first = self.thinner.kept, self._samplers[0]
        titles = first.rows.preamble.titles or []
        table = parse_lines(first.rows.path, titles, self._beside.of(kept.ids.tolist()))
        about = {"command": self.command, "chains": len(self._samplers), "model": first.draws.config.model}
        return replace(
            kept, names=first.draws.names, variables=stan_variables(titles, table), settings={**kept.settings, "stan": about}
        )


def as_command(command: Sequence[str], chain: int, chains: int) -> list[str]:
    """The command with places for the pipes, and the chain's id.

    >>> as_command(["./model", "sample", "output", "refresh=0"], 0, 2)
    ['./model', 'sample', 'output', 'file={output}', 'diagnostic_file={diagnostic}', 'sig_figs=17', 'refresh=0', 'id=1']
    """
    section, given = "", set()
    for word in command:
        key, equals, _ = word.partition("=")
        section = section if equals else word
        given.add(key)
        ours = (section == "output" and key == "file") or key in ("diagnostic_file", "num_chains")
        if equals and (ours or (key == "id" and chains > 1)):
            raise InputError(
                f"{word} stands in the command.", "Leave it out: each chain has a process, and files, of its own."
            )
    at = command.index("output") if "output" in command else len(command)
    # Digits cost nothing where nothing is written, and CmdStan's eight are few for a gradient.
    digits = [] if "sig_figs" in given else ["sig_figs=17"]
    number = [] if "id" in given else [f"id={chain + 1}"]
    files = ["file={output}", "diagnostic_file={diagnostic}"]
    return [*command[:at], "output", *files, *digits, *command[at + 1 :], *number]


class _Stream:
    """One end of a pipe, read as text comes."""

    def __init__(self, sampler: _Sampler, file: int, feed: Callable[[bytes], None], path: Path | None = None) -> None:
        self.sampler, self.file, self.path = sampler, file, path
        self._feed, self._lines = feed, LineBuffer()
        self.open, self._began = True, False
        os.set_blocking(file, False)

    def read(self, alive: bool) -> None:
        """Take what is there."""
        try:
            text = os.read(self.file, _PIECE)
        except BlockingIOError:
            self.open = alive
            return
        if text:
            if not self._began and self.path is not None:
                self.path.unlink(missing_ok=True)  # both ends are open: its name has done its duty
            self._began = True
            if lines := self._lines.add(text):
                self._feed(lines)
        elif self._began or not alive:
            self.open = False  # and half a line at the end is forgotten
        else:
            time.sleep(0.01)  # on some systems a pipe is at its end as long as nobody has opened the other one


class _Rows:
    """The lines of the output file that wait for their draws."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.preamble = CsvPreamble()
        self.lines: deque[bytes] = deque()
        self._pass_over: int | None = None

    def feed(self, text: bytes) -> None:
        """Take in whole lines."""
        text = self.preamble.take(text)
        if self.preamble.titles is None:
            return
        if self._pass_over is None:
            self._pass_over = parse_config(self.preamble.comments).warmup
        rows = [line for line in text.splitlines(keepends=True) if line.strip() and not line.startswith(b"#")]
        skip = min(self._pass_over, len(rows))
        self._pass_over -= skip
        self.lines.extend(rows[skip:])


class _Sampler:
    """One chain: its process, and the three pipes that come out of it."""

    def __init__(self, chain: int, command: list[str], folder: Path) -> None:
        output, diagnostic = folder / f"output-{chain + 1}.csv", folder / f"diagnostic-{chain + 1}.csv"
        self.draws = GrowingCsv(diagnostic, chain, alone=False)
        self.rows = _Rows(output)
        self._said: deque[str] = deque(maxlen=_SAID)
        places = {"{output}": str(output), "{diagnostic}": str(diagnostic)}
        words = [_filled(word, places) for word in command]
        files = []
        for path in (output, diagnostic):
            os.mkfifo(path)
            files.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        try:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            for file in files:
                os.close(file)
            raise InputError(
                f"cannot start {words[0]}: {error.strerror}.",
                "Give the compiled model: ./model, or model.exe_file.",
            ) from None
        self.streams = [
            _Stream(self, files[0], self.rows.feed, output),
            _Stream(self, files[1], self.draws.feed, diagnostic),
        ]
        if self.process.stdout is not None:
            self.streams.append(_Stream(self, self.process.stdout.fileno(), self._hear))
        self._closed = False

    @property
    def ready(self) -> int:
        """Draws that have come through both pipes."""
        return min(self.draws.ready, len(self.rows.lines))

    def take(self, count: int) -> Block:
        """The next of them."""
        return self.draws.take(count)

    def wants(self, stream: _Stream) -> bool:
        """Whether to read on. Both pipes are read until both have a draw, else the process might wait for ever."""
        if stream.path is None or not self.ready:
            return True
        return self.ready < _AHEAD and self.ready * len(self.rows.lines[0]) < _BYTES

    @property
    def ended(self) -> bool:
        """Whether the process has. Ctrl-C within ``poll`` could leave its lock taken, and ``wait`` would never end."""
        with Unbroken():
            return self.process.poll() is not None

    @property
    def over(self) -> bool:
        """Whether the process has ended and all it wrote is read."""
        return self._closed or (not any(stream.open for stream in self.streams) and self.ended)

    @property
    def trouble(self) -> bool:
        """Whether it ended before its time."""
        wanted = self.draws.config.samples
        some = self.draws.taken + self.ready
        return self.process.returncode != 0 or some == 0 or (wanted is not None and some < wanted)

    def obituary(self) -> tuple[str, str]:
        """How it ended, what it said last, and what to do."""
        code, done = self.process.returncode, self.draws.taken
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        said = "".join(f"\n    {line}" for line in self._said) or " none"
        return (
            f"Chain {self.draws.chain} ended {how} after {done} of {self.draws.config.samples or '?'} draws.",
            f"What was kept until then is in this error's .kept. Its last words:{said}",
        )

    def _hear(self, text: bytes) -> None:
        self._said.extend(line for line in text.decode("utf-8", "replace").splitlines() if line.strip())

    def stop(self) -> None:
        """Ask the process to end."""
        if not self.ended:
            self.process.terminate()

    def close(self) -> None:
        """See that it has ended, and close its pipes."""
        if self._closed:
            return
        self._closed = True
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in self.streams:
            if stream.path is not None:
                os.close(stream.file)
        if self.process.stdout is not None:
            self.process.stdout.close()


def _filled(word: str, places: dict[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word

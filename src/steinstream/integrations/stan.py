"""Stan: run a compiled model and thin its draws while they are made; only the kept draws are stored.

`scores` computes the scores of a finished fit with BridgeStan.

CmdStan writes its two files to named pipes. One of them delivers unconstrained draws and their gradients, the other one
the constrained draws, of which those of the kept draws are held. Several chains run in parallel and are read in turns,
one draw of each, so with given seeds the kept set does not depend on the speed of the chains.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from steinstream._formatting import listing
from steinstream._typing import Array, Flags
from steinstream.diagnostics.running_convergence import RunningConvergence
from steinstream.errors import InputError, SamplerError
from steinstream.integrations._common import with_source
from steinstream.integrations._draw_metadata import DrawMetadata
from steinstream.integrations._stored_draws import ScoredDraws, for_distinct_states
from steinstream.io import open_chains
from steinstream.io._columns import combine_elements
from steinstream.io.cmdstan import DIVERGENT, parse_config, parse_table, stan_variables, unconstrained_name
from steinstream.io.csv_follow import CsvPreamble, GrowingCsv, LineBuffer, interleave_ready
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.run import DeferredInterrupt
from steinstream.validation import Block, as_floats, concatenate

_MAX_AHEAD = 4096  # draws that a chain may be ahead of the others; then its pipe is not read
_MAX_AHEAD_BYTES = 1 << 24
_READ_BYTES = 1 << 16
_OUTPUT_LINES = 20  # latest lines of a process that are shown if it fails
_TERMINATE_SECONDS = 5.0  # time between terminating a process and killing it


def sample(
    command: str | os.PathLike[str] | Sequence[str],
    *,
    chains: int = 4,
    config: ThinConfig | None = None,
    **settings: Any,
) -> Kept:
    """Run a compiled model and return the kept draws.

    Parameters
    ----------
    command : path or sequence of str
        The program with CmdStan's arguments, without ``id`` and without output files, for example
        ``["./model", "sample", "num_samples=1000", "data", "file=data.json", "random", "seed=1"]``. With cmdstanpy, the
        program is ``model.exe_file``.
    chains : int, default 4
        Number of chains; each one is a process.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Returns
    -------
    Kept
        The kept draws. ``variables`` holds the constrained draws, ``settings["source"]`` R-hat, ESS and the number of
        divergences of the chains.

    Raises
    ------
    InputError
        If a setting is invalid, the command names output files, or the program cannot be started.
    SamplerError
        If a chain ends early. ``error.kept`` holds the draws kept so far.
    """
    with LiveRun(command, chains=chains, config=config, **settings) as run:
        return run.wait()


def scores(model: Any, draws: Any, *, progress: Callable[[float], None] | None = None) -> ScoredDraws:
    """Compute the scores of a finished fit with BridgeStan.

    Parameters
    ----------
    model : bridgestan.StanModel
        The compiled model with its data.
    draws : path, sequence of paths, cmdstanpy.CmdStanMCMC, DataFrame or array_like
        Constrained draws: the output files of CmdStan, one per chain; the fit of cmdstanpy; a table with one column per
        parameter (``sigma``, ``w.1`` or ``w[1]``); or an array (n, p) or (chains, n, p) in the order of
        ``model.param_names()``.
    progress : callable, optional
        Called with the finished fraction, 0 to 1.

    Returns
    -------
    ScoredDraws
        Unconstrained draws and scores, for :func:`steinstream.thin`; its method ``thin`` keeps the parameters of the
        model.

    Raises
    ------
    InputError
        If ``model`` is not a model of BridgeStan, or parameters are missing.
    """
    if not hasattr(model, "log_density_gradient") or not hasattr(model, "param_unconstrain"):
        raise InputError(
            f"Expected a bridgestan.StanModel, got {type(model).__name__}.",
            'pip install bridgestan; model = bridgestan.StanModel("model.stan", data="data.json").',
        )
    titles = list(model.param_names())
    table, diverging = _constrained(draws, titles)
    rows = table.reshape(-1, len(titles))
    unconstrained = np.array([model.param_unconstrain(row) for row in rows], dtype=np.float64)
    values = for_distinct_states(
        lambda states: np.array([model.log_density_gradient(x, jacobian=True)[1] for x in states]),
        unconstrained,
        batch=1,
        progress=progress,
    )
    shape = (*table.shape[:-1], unconstrained.shape[1])
    variables = {
        name: variable._replace(values=variable.values.reshape(*table.shape[:-1], *variable.values.shape[1:]))
        for name, variable in combine_elements(titles, rows).items()
    }
    names = tuple(map(unconstrained_name, model.param_unc_names()))
    return ScoredDraws(unconstrained.reshape(shape), values.reshape(shape), names, variables, "stan", diverging)


def _constrained(draws: Any, titles: Sequence[str]) -> tuple[Array, Flags | None]:
    """Return constrained draws in the order of the titles, (n, p) or (chains, n, p), and which of them diverged."""
    if hasattr(draws, "runset"):  # a fit of cmdstanpy
        draws = draws.runset.csv_files
    if isinstance(draws, str | os.PathLike):
        draws = [draws]
    if isinstance(draws, Sequence) and draws and all(isinstance(one, str | os.PathLike) for one in draws):
        chain = open_chains([os.fspath(one) for one in draws])
        block = concatenate([*chain.blocks()])
        table = dict(zip(chain.names, block.draws.T, strict=True))
        numbers, counts = np.unique(block.ids[:, 0], return_counts=True)
        columns = _columns_of(table, titles)
        if len(set(counts.tolist())) == 1:
            columns = columns.reshape(len(numbers), -1, len(titles))
        found = chain.diverging()
        return columns, None if found is None else np.concatenate([flags for _, flags in found])
    if hasattr(draws, "columns"):
        table = {str(name): np.asarray(draws[name], dtype=np.float64) for name in draws.columns}
        return _columns_of(table, titles), table[DIVERGENT] > 0 if DIVERGENT in table else None
    array = as_floats(draws, "draws")
    if array.ndim not in (2, 3) or array.shape[-1] != len(titles):
        raise InputError(
            f"The draws have shape {array.shape}, but the model has {len(titles)} parameters: {listing(titles)}.",
            "Pass constrained draws, (n, p) or (chains, n, p), in the order of model.param_names().",
        )
    return array, None


def _columns_of(table: Mapping[str, Array], titles: Sequence[str]) -> Array:
    """Return the columns of a table by title; ``w[1,2]`` and ``w.1.2`` are the same."""
    known = {name.replace("[", ".").replace(",", ".").rstrip("]"): column for name, column in table.items()}
    missing = [title for title in titles if title not in known]
    if missing:
        raise InputError(
            f"The draws have no {listing(missing)}, which are parameters of the model; they have {listing(table)}.",
            "Pass the constrained draws of this model: the output files of CmdStan, not the diagnostic files.",
        )
    return np.stack([known[title] for title in titles], axis=-1)


class LiveRun:
    """Running chains of a compiled model, and the thinner of their draws.

    Use it as a context manager, which ends the processes::

        with LiveRun(command, chains=4, size=200) as run:
            while run.poll(1.0):
                print(run.thinner)
        kept = run.kept

    Parameters
    ----------
    command : path or sequence of str
        The program with CmdStan's arguments, without ``id`` and without output files: see `sample`.
    chains : int, default 4
        Number of chains; each one is a process.
    config : ThinConfig, optional
        Settings. Default: the default settings.
    **settings
        Settings by name, which replace those in ``config``: see `ThinConfig`.

    Attributes
    ----------
    thinner : Thinner or None
        The thinner; None before the first draw.

    Raises
    ------
    InputError
        If a setting is invalid, or the command names output files.
    """

    def __init__(
        self,
        command: str | os.PathLike[str] | Sequence[str],
        *,
        chains: int = 4,
        config: ThinConfig | None = None,
        **settings: Any,
    ) -> None:
        if chains < 1:
            raise InputError(f"chains must be at least 1, got {chains}.")
        self.command = [os.fspath(command)] if isinstance(command, str | os.PathLike) else list(command)
        self.thinner: Thinner | None = None
        self._commands = [as_command(self.command, chain, chains) for chain in range(chains)]
        self._config = ThinConfig.of(config, **settings)
        self._chains: list[_ChainProcess] = []
        self._output_rows: DrawMetadata[bytes] = DrawMetadata()
        self._convergence: RunningConvergence | None = None
        self._folder: Path | None = None

    def __enter__(self) -> LiveRun:
        if not hasattr(os, "mkfifo"):
            raise InputError(
                "This system has no named pipes.", "Let CmdStan write files, and use the command steinstream follow."
            )
        self._folder = Path(tempfile.mkdtemp(prefix="steinstream-"))
        try:
            for chain, command in enumerate(self._commands):
                self._chains.append(_ChainProcess(chain, command, self._folder))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and delete the pipes; the kept draws stay available."""
        for chain in self._chains:
            chain.terminate()
        for chain in self._chains:
            chain.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> Kept:
        """Thin until all chains are done.

        Returns
        -------
        Kept
            The kept draws.

        Raises
        ------
        SamplerError
            If a chain ends early. ``error.kept`` holds the draws kept so far.
        """
        while self.poll(1.0):
            pass
        return self.kept

    def poll(self, seconds: float = 0.0) -> bool:
        """Thin the draws that are available.

        Parameters
        ----------
        seconds : float, default 0.0
            Longest time to wait for output of the chains.

        Returns
        -------
        bool
            False when all chains are done.

        Raises
        ------
        SamplerError
            If a chain ended early. ``error.kept`` holds the draws kept so far.
        """
        if not self._chains:
            raise InputError("No chains are running.", "Use a context manager: with LiveRun(...) as run: run.wait().")
        self._read(seconds)
        done = [chain.done for chain in self._chains]
        self._thin(done)
        for chain in self._chains:
            if chain.done and chain.failed:
                self._thin([True] * len(self._chains))
                error = SamplerError(*chain.failure())
                error.kept = self.kept if self._has_draws else None
                raise error
        return not all(done)

    def _read(self, seconds: float) -> None:
        """Read the pipes, waiting at most ``seconds`` for the first output."""
        streams = [s for chain in self._chains for s in chain.streams if s.open and chain.should_read(s)]
        # A pipe that its process never opened does not become readable, so ended processes are checked separately.
        ended = [chain for chain in self._chains if not chain.done and chain.ended]
        if not streams:
            time.sleep(min(seconds, 0.01))
        else:
            with selectors.DefaultSelector() as selector:
                for stream in streams:
                    selector.register(stream.file, selectors.EVENT_READ, stream)
                for key, _ in selector.select(0.0 if ended else min(seconds, 0.2)):
                    key.data.read(running=True)
        for chain in ended:
            for stream in chain.streams:
                while stream.open:
                    stream.read(running=False)

    def _thin(self, done: list[bool]) -> None:
        """Pass the draws that were read to the thinner, one of each chain in turn."""
        for block in interleave_ready(self._chains, done):
            if self.thinner is None or self._convergence is None:
                self.thinner = Thinner(block.draws.shape[1], self._config)
                self._convergence = RunningConvergence(self.thinner.dim)
            rows = [((chain, draw), self._chains[chain].rows.lines.popleft()) for chain, draw in block.ids.tolist()]
            step = self.thinner.extend(block.draws, block.scores, ids=block.ids)
            self._output_rows.update(self.thinner, step, rows)
            self._convergence.add(block.ids, block.draws, self._diverging([line for _, line in rows]))

    def _diverging(self, lines: Sequence[bytes]) -> list[bool] | None:
        """Return whether each draw ended a divergent transition; None if the sampler does not report it."""
        titles = self._chains[0].rows.preamble.titles or []
        if DIVERGENT not in titles:
            return None
        column = titles.index(DIVERGENT)
        return [float(line.split(b",", column + 1)[column]) > 0 for line in lines]

    @property
    def _has_draws(self) -> bool:
        return self.thinner is not None and len(self.thinner) > 0

    @property
    def kept(self) -> Kept:
        """The kept draws so far, with the constrained draws as variables.

        Returns
        -------
        Kept
            The kept draws.

        Raises
        ------
        InputError
            If no draws are kept yet.
        """
        if self.thinner is None or self._convergence is None or not self._has_draws:
            raise InputError("No draws are kept yet.", "Wait for more draws.")
        kept, first = self.thinner.kept, self._chains[0]
        titles = first.rows.preamble.titles or []
        table = parse_table(first.rows.path, titles, self._output_rows.select(kept.ids.tolist()))
        stan = {"command": self.command, "chains": len(self._chains), "model": first.draws.config.model}
        kept = replace(
            kept,
            names=first.draws.names,
            variables=stan_variables(titles, table),
            settings={**kept.settings, "stan": stan},
        )
        return with_source(kept, "stan", self._convergence)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The processes of the chains."""
        return [chain.process for chain in self._chains]

    @property
    def ready(self) -> list[int]:
        """Number of draws of each chain that were read and wait for the other chains."""
        return [chain.ready for chain in self._chains]


def as_command(command: Sequence[str], chain: int, chains: int) -> list[str]:
    """Return the command of one chain, with placeholders for the pipes.

    Returns
    -------
    list of str
        The words of the command.

    Examples
    --------
    >>> as_command(["./model", "sample", "output", "refresh=0"], 0, 2)
    ['./model', 'sample', 'output', 'file={output}', 'diagnostic_file={diagnostic}', 'sig_figs=17', 'refresh=0', 'id=1']
    """
    section, given = "", set()
    for word in command:
        key, equals, _ = word.partition("=")
        section = section if equals else word
        given.add(key)
        reserved = (section == "output" and key == "file") or key in ("diagnostic_file", "num_chains")
        if equals and (reserved or (key == "id" and chains > 1)):
            raise InputError(
                f"The command contains {word}.", "Leave it out: each chain has its own process and output files."
            )
    at = command.index("output") if "output" in command else len(command)
    # CmdStan's default of eight digits is not enough for a gradient, and nothing is written to disk.
    digits = [] if "sig_figs" in given else ["sig_figs=17"]
    number = [] if "id" in given else [f"id={chain + 1}"]
    files = ["file={output}", "diagnostic_file={diagnostic}"]
    return [*command[:at], "output", *files, *digits, *command[at + 1 :], *number]


class _PipeReader:
    """Reads complete lines from a pipe without blocking."""

    def __init__(self, file: int, feed: Callable[[bytes], None], path: Path | None = None) -> None:
        self.file, self.path = file, path
        self._feed, self._lines = feed, LineBuffer()
        self.open, self._started = True, False
        os.set_blocking(file, False)

    def read(self, running: bool) -> None:
        """Read the available text; ``running`` is whether the process may write more."""
        try:
            text = os.read(self.file, _READ_BYTES)
        except BlockingIOError:
            self.open = running
            return
        if text:
            if not self._started and self.path is not None:
                self.path.unlink(missing_ok=True)  # both ends are open, so the name can be removed
            self._started = True
            if lines := self._lines.add(text):
                self._feed(lines)
        elif self._started or not running:
            self.open = False  # an incomplete last line is dropped
        else:
            time.sleep(0.01)  # on some systems a pipe is at its end until the other end is opened


class _OutputRows:
    """Lines of the output file that wait for their draws."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.preamble = CsvPreamble()
        self.lines: deque[bytes] = deque()
        self._warmup: int | None = None  # rows of the warm-up that are still to be skipped

    def feed(self, text: bytes) -> None:
        """Add complete lines."""
        text = self.preamble.take(text)
        if self.preamble.titles is None:
            return
        if self._warmup is None:
            self._warmup = parse_config(self.preamble.comments).warmup
        rows = [line for line in text.splitlines(keepends=True) if line.strip() and not line.startswith(b"#")]
        skip = min(self._warmup, len(rows))
        self._warmup -= skip
        self.lines.extend(rows[skip:])


class _ChainProcess:
    """One chain: its process, and the three pipes that it writes to."""

    def __init__(self, chain: int, command: list[str], folder: Path) -> None:
        output, diagnostic = folder / f"output-{chain + 1}.csv", folder / f"diagnostic-{chain + 1}.csv"
        self.draws = GrowingCsv(diagnostic, chain, alone=False)
        self.rows = _OutputRows(output)
        self._printed: deque[str] = deque(maxlen=_OUTPUT_LINES)
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
                f"Cannot start {words[0]}: {error.strerror}.", "Pass the compiled model: ./model, or model.exe_file."
            ) from None
        self.streams = [
            _PipeReader(files[0], self.rows.feed, output),
            _PipeReader(files[1], self.draws.feed, diagnostic),
        ]
        if self.process.stdout is not None:
            self.streams.append(_PipeReader(self.process.stdout.fileno(), self._print))
        self._closed = False

    @property
    def ready(self) -> int:
        """Number of draws that were read from both pipes and not taken yet."""
        return min(self.draws.ready, len(self.rows.lines))

    def take(self, count: int) -> Block:
        """Return the next draws."""
        return self.draws.take(count)

    def should_read(self, stream: _PipeReader) -> bool:
        """Return whether to read a pipe. Both are read until both have a draw: otherwise the process might block."""
        if stream.path is None or not self.ready:
            return True
        return self.ready < _MAX_AHEAD and self.ready * len(self.rows.lines[0]) < _MAX_AHEAD_BYTES

    @property
    def ended(self) -> bool:
        """Whether the process has ended. Ctrl-C within ``Popen.poll`` could leave its lock held, so it is deferred."""
        with DeferredInterrupt():
            return self.process.poll() is not None

    @property
    def done(self) -> bool:
        """Whether the process has ended and all of its output was read."""
        return self._closed or (not any(stream.open for stream in self.streams) and self.ended)

    @property
    def failed(self) -> bool:
        """Whether the process ended with an error, or with fewer draws than expected."""
        expected = self.draws.config.samples
        count = self.draws.taken + self.ready
        return self.process.returncode != 0 or count == 0 or (expected is not None and count < expected)

    def failure(self) -> tuple[str, str]:
        """Return problem and remedy for the error, with the latest output of the process."""
        code, count = self.process.returncode, self.draws.taken
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        printed = "".join(f"\n    {line}" for line in self._printed) or " none"
        return (
            f"Chain {self.draws.chain} ended {how} after {count} of {self.draws.config.samples or '?'} draws.",
            f"The draws kept so far are available as error.kept. Last output of the process:{printed}",
        )

    def _print(self, text: bytes) -> None:
        self._printed.extend(line for line in text.decode("utf-8", "replace").splitlines() if line.strip())

    def terminate(self) -> None:
        if not self.ended:
            self.process.terminate()

    def close(self) -> None:
        """Wait for the end of the process, or kill it, and close the pipes."""
        if self._closed:
            return
        self._closed = True
        try:
            self.process.wait(_TERMINATE_SECONDS)
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

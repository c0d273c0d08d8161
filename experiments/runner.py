"""Resumable execution of an experiment in a folder.

The folder contains ``settings.json``, the files that the experiment prepares, ``runs/`` with one parquet file per work
unit and, after the last unit, ``results.parquet``, the figures and ``summary.md``. Work units run in threads, because
the compiled engine releases the GIL. Finished units are not run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from experiments.results import ResultTable, concatenate, read_table, write_table
from steinstream import __version__
from steinstream.errors import InputError
from steinstream.io import replacing
from steinstream.io.atomic import make_folder
from steinstream.io.parquet import pyarrow


class Stopped(Exception):
    """Raised inside an experiment when the user has requested a stop."""


class ProgressCallback(Protocol):
    """Function that receives the completed fraction and the current activity.

    It raises `Stopped` if the work should end.
    """

    def __call__(self, fraction: float, status: str = "", /) -> None:
        """Report the completed fraction (0 to 1) and the current activity."""


class WorkUnit(NamedTuple):
    """Part of an experiment whose result is stored in one file.

    ``work(checkpoint, progress)`` returns the result. It may save its state to the file ``checkpoint`` and resume from
    there.
    """

    name: str
    work: Callable[[Path, ProgressCallback], ResultTable]


class Presentation(Protocol):
    """Figures and summary of results."""

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return the figures by file name."""

    def summary(self, results: ResultTable) -> str:
        """Return the main results as Markdown."""


class Experiment(Presentation, Protocol):
    """Interface between an experiment and `Runner`."""

    def prepare(self, folder: Path, progress: ProgressCallback) -> None:
        """Create the data that the work units share, or load it from the folder."""

    def units(self) -> list[WorkUnit]:
        """Return the work units."""


class Runner:
    """Run an experiment in a folder and collect its results.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    folder : Path
        Folder of the results. It must not exist, be empty, or contain the same experiment with the same settings.
    settings : dict
        Settings that identify the experiment. They are stored in ``settings.json``.

    Raises
    ------
    InputError
        If the folder contains other files or an experiment with other settings, or if pyarrow is not installed.
    """

    def __init__(self, experiment: Experiment, folder: Path, settings: dict[str, Any]) -> None:
        self.experiment, self.folder = experiment, folder
        self.settings = {**settings, "steinstream": __version__}
        pyarrow()  # fail before the computation if it is missing
        self._claim_folder()

    def _claim_folder(self) -> None:
        """Create the folder, or check that it contains this experiment."""
        path = self.folder / "settings.json"
        if path.exists():
            stored = json.loads(path.read_text())
            for name, value in self.settings.items():
                if stored.get(name) != value:
                    raise InputError(
                        f"{self.folder} contains an experiment with {name} {stored.get(name)}, not {value}.",
                        "Choose another folder with -o, or delete this one.",
                    )
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise InputError(
                f"{self.folder} exists and is not a folder of an experiment.", "Choose another folder with -o."
            )
        make_folder(self.folder / "runs")
        with replacing(path, "w") as file:
            json.dump(self.settings, file, indent=1)

    def run(self, jobs: int, show: Callable[[float, str], None], stopped: Callable[[], bool]) -> None:
        """Prepare the experiment and run the units that have no result yet.

        Parameters
        ----------
        jobs : int
            Number of units that run in parallel.
        show : callable
            Called with the completed fraction and a status text.
        stopped : callable
            Returns True if the run should stop.

        Raises
        ------
        Stopped
            If ``stopped()`` returned True.
        """

        def report_preparation(fraction: float, status: str = "", /) -> None:
            if stopped():
                raise Stopped
            show(fraction, status)

        self.experiment.prepare(self.folder, report_preparation)
        units = self.experiment.units()
        pending = [unit for unit in units if not self._result(unit).exists()]
        fractions = dict.fromkeys((unit.name for unit in units if unit not in pending), 1.0)

        def run_unit(unit: WorkUnit) -> None:
            if jobs > 1:
                _use_one_thread()

            def report_unit(fraction: float, status: str = "", /) -> None:
                if stopped():
                    raise Stopped
                fractions[unit.name] = fraction

            report_unit(0.0)
            checkpoint = self._result(unit).with_suffix(".checkpoint.npz")
            write_table(self._result(unit), unit.work(checkpoint, report_unit))
            checkpoint.unlink(missing_ok=True)
            fractions[unit.name] = 1.0

        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(run_unit, unit) for unit in pending}
            try:
                while running:
                    done, running = wait(running, timeout=0.25, return_when=FIRST_COMPLETED)
                    active = [name for name, fraction in list(fractions.items()) if fraction < 1.0]
                    finished = sum(fraction == 1.0 for fraction in list(fractions.values()))
                    status = f"{finished}/{len(units)} runs  {', '.join(active)}"
                    show(sum(list(fractions.values())) / len(units), status)
                    for future in done:
                        future.result()
            finally:
                for future in running:
                    future.cancel()

    def finish(self) -> list[Path]:
        """Write the results, the summary and the figures.

        Returns
        -------
        list of Path
            The files written.
        """
        results = self.results()
        write_table(self.folder / "results.parquet", results)
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items() if value is not None)
        summary = write_summary(self.folder / "summary.md", self.experiment, results, settings)
        return [self.folder / "results.parquet", summary, *write_figures(self.folder, self.experiment, results)]

    def results(self) -> ResultTable:
        """Return the results of all units as one table."""
        return concatenate([read_table(self._result(unit)) for unit in self.experiment.units()])

    def _result(self, unit: WorkUnit) -> Path:
        return self.folder / "runs" / f"{unit.name}.parquet"


def write_summary(path: Path, experiment: Presentation, results: ResultTable, settings: str) -> Path:
    """Write the summary of an experiment, with its settings in the last line."""
    with replacing(path, "w") as file:
        file.write(f"{experiment.summary(results)}\n\n({settings})\n")
    return path


def write_figures(folder: Path, experiment: Presentation, results: ResultTable) -> list[Path]:
    """Write the figures of an experiment to a folder."""
    from steinstream.report.plots import pyplot

    figures = experiment.draw(results)
    for name, figure in figures.items():
        with replacing(folder / name) as file:
            figure.savefig(file, dpi=110, format="png")
        pyplot().close(figure)
    return [folder / name for name in figures]


def _use_one_thread() -> None:
    """Limit compiled code that is called from this thread to one thread; other units use the other cores."""
    import numba

    numba.set_num_threads(1)

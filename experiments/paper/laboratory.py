"""Runs an experiment: units side by side, each result written as it comes, the rest another time if need be.

The folder holds ``settings.json``, what the experiment prepares, ``runs/`` with one parquet file a unit, and at the end
``results.parquet``, the figures and ``summary.md``. Units run in threads: the engine leaves Python alone as it works.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from experiments.paper import Experiment, Stopped, Unit
from experiments.paper.columns import Columns, read, stacked, write
from steinstream.errors import InputError
from steinstream.io.atomic import make_folder, replacing
from steinstream.io.parquet import pyarrow
from steinstream.version import __version__

#: Told how much of the whole is done, from 0 to 1, and what is being done.
Show = Callable[[float, str], None]


class Laboratory:
    """An experiment in a folder."""

    def __init__(self, experiment: Experiment, folder: Path, settings: dict[str, Any]) -> None:
        self.experiment, self.folder = experiment, folder
        self.settings = {**settings, "steinstream": __version__}
        self._claim(self.settings)

    def _claim(self, settings: dict[str, Any]) -> None:
        """Make the folder ours, or see that it holds this very experiment."""
        pyarrow()  # a missing package should not cost an hour
        note = self.folder / "settings.json"
        if note.exists():
            before = json.loads(note.read_text())
            for name, value in settings.items():
                if before.get(name) != value:
                    raise InputError(
                        f"{self.folder} holds an experiment with {name} {before.get(name)}, and now it is {value}.",
                        "Choose another folder with -o, or delete this one.",
                    )
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise InputError(
                f"{self.folder} exists and is no experiment's folder.", "Choose another folder with -o."
            )  # fmt: skip
        make_folder(self.folder / "runs")
        with replacing(note, "w") as file:
            json.dump(settings, file, indent=1)

    def run(self, jobs: int, show: Show, stopped: Callable[[], bool]) -> None:
        """Prepare, then do what is not done yet; raises `Stopped` if ``stopped()`` says so."""

        def report(share: float, doing: str = "", /) -> None:
            if stopped():
                raise Stopped
            show(share, doing)

        self.experiment.prepare(self.folder, report)
        units = self.experiment.units()
        waiting = [unit for unit in units if not self._result(unit).exists()]
        shares = dict.fromkeys((unit.name for unit in units if unit not in waiting), 1.0)

        def one(unit: Unit) -> None:
            if jobs > 1:
                _keep_to_one_thread()

            def report(share: float, doing: str = "", /) -> None:
                if stopped():
                    raise Stopped
                shares[unit.name] = share

            report(0.0)
            checkpoint = self._result(unit).with_suffix(".checkpoint.npz")
            write(self._result(unit), unit.work(checkpoint, report))
            checkpoint.unlink(missing_ok=True)
            shares[unit.name] = 1.0

        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(one, unit) for unit in waiting}
            try:
                while running:
                    done, running = wait(running, timeout=0.25, return_when=FIRST_COMPLETED)
                    active = [name for name, share in list(shares.items()) if share < 1.0]
                    finished = sum(share == 1.0 for share in list(shares.values()))
                    show(sum(list(shares.values())) / len(units), f"{finished}/{len(units)} runs  {', '.join(active)}")
                    for future in done:
                        future.result()
            finally:
                for future in running:
                    future.cancel()

    def finish(self) -> list[Path]:
        """Collect the results, draw them, say what they show; returns the files written."""
        results = self.results()
        write(self.folder / "results.parquet", results)
        with replacing(self.folder / "summary.md", "w") as file:
            made = ", ".join(f"{name} {value}" for name, value in self.settings.items() if value is not None)
            file.write(f"{self.experiment.summary(results)}\n\n({made})\n")
        written = [self.folder / "results.parquet", self.folder / "summary.md"]
        for name, figure in self.experiment.draw(results).items():
            with replacing(self.folder / name) as file:
                figure.savefig(file, dpi=110, format="png")
            written.append(self.folder / name)
        return written

    def results(self) -> Columns:
        """The units' columns, one below the other."""
        return stacked([read(self._result(unit)) for unit in self.experiment.units()])

    def _result(self, unit: Unit) -> Path:
        return self.folder / "runs" / f"{unit.name}.parquet"


def _keep_to_one_thread() -> None:
    """In this thread: its neighbours have the other cores."""
    import numba

    numba.set_num_threads(1)

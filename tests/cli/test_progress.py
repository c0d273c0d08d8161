"""Compilation is shown, and is not part of the time of a stage."""

from __future__ import annotations

import io
import math
import time

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from steinstream._engine.compile_clock import CompileClock
from steinstream.cli import progress


@pytest.fixture
def clock(monkeypatch):
    """Compilation and bars on a clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    compilations = CompileClock()
    monkeypatch.setattr(progress, "compile_clock", compilations)
    compilations.now = now
    return compilations


def shown(bars):
    """Return what the lines of a progress bar show."""
    return [(task.description, f"{task.fields['time']}") for task in bars.tasks]


def test_compilation_has_a_line_of_its_own(clock):
    bars = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    bar = progress.Bar(bars)
    clock.observers.append(bar.show_compilation)
    bar.begin("thinning", 10.0)
    clock.now[0] += 2.0
    clock.start()
    clock.now[0] += 5.0
    assert shown(bars) == [("thinning", "0:00:02"), ("compiling (first use only)", "0:00:05")]
    clock.start()  # a function on behalf of another one
    clock.now[0] += 1.0
    clock.stop()
    clock.stop()
    clock.now[0] += 3.0
    assert bar.seconds == 5.0
    bar.begin("pass 2", 10.0)
    clock.now[0] += 60.0
    assert shown(bars) == [("thinning", "0:00:05"), ("compiling (first use only)", "0:00:06"), ("pass 2", "0:01:00")]


@pytest.mark.parametrize(("interval", "lines"), [(30.0, ["0:00:00  compiling (first use only)"]), (math.inf, [])])
def test_compilation_is_printed_once_off_a_terminal(clock, capsys, interval, lines):
    bar = progress.Bar(Progress(disable=True), progress.ProgressLog(interval, lambda: 0.0))
    clock.observers.append(bar.show_compilation)
    bar.begin("thinning", 10.0)
    for _ in range(2):
        clock.start()
        clock.stop()
    assert capsys.readouterr().err.splitlines() == lines


def test_compilation_is_logged_once(clock, caplog):
    with caplog.at_level("INFO", logger="steinstream"):
        for _ in range(2):
            clock.start()
            clock.now[0] += 1.0
            clock.stop()
    assert [record.getMessage() for record in caplog.records] == ["Compiling (first use only)."]


def test_a_log_states_once_that_code_is_compiled(clock, capsys):
    for interval, lines in ((30.0, ["0:00:00  compiling (first use only)"]), (float("inf"), [])):
        bar = progress.Bar(Progress(disable=True), progress.ProgressLog(interval))
        bar.begin("thinning", 10.0)
        for begins in (True, False, True, False):
            bar.show_compilation(begins)
        assert capsys.readouterr().err.splitlines() == lines

"""Batch use: JSON, quiet and strict runs, exit codes, lines of progress, and standard input and output."""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pytest

import steinstream as ss
from steinstream.cli import commands
from steinstream.cli.messages import STRICT_CODE, Messages
from steinstream.cli.progress import ProgressLog, bar
from steinstream.errors import InputError
from tests.conftest import write_chain


@pytest.fixture
def drifting(tmp_path):
    """A chain whose mean moves, so that a check fires."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2)) + np.linspace(0, 6, 2000)[:, None]
    np.savez(tmp_path / "drifting.npz", draws=x)
    return tmp_path / "drifting.npz"


def test_json_is_one_object_with_the_result(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 40, "--json")
    assert ran.returncode == 0 and len(ran.stdout.splitlines()) == 1
    result, kept = json.loads(ran.stdout), ss.Kept.load(tmp_path / "kept.npz")
    assert result["command"] == "thin" and result["kept"] == 40 and result["seen"] == 3000
    assert result["ksd"] == kept.ksd and result["mmd"] == kept.mmd
    assert result["paths"] == {"kept": "kept.npz"} and result["settings"]["config"]["size"] == 40
    assert result["warnings"] == [] and not any(finding["fired"] for finding in result["findings"])
    assert "worth about" in result["chain_worth"] and result["effective_draws"] > 100


@pytest.mark.parametrize(
    "words",
    [
        ["merge", "kept.npz", "other.npz", "-o", "all.npz"],
        ["refine", "kept.npz", "-o", "ordered.npz", "--order"],
        ["ksd", "kept.npz"],
        ["thin", "chain.npz", "-o", "few.npz", "--size", 9, "--method", "stride"],
        ["thin", "chain.npz", "other-chain.npz", "-o", "few.npz", "--size", 9, "--workers", 0],
        ["follow", "run.csv", "-o", "followed.npz", "--until-idle", 0],
    ],
    ids=lambda words: f"{words[0]}-{words[-2]}",
)
def test_json_is_printed_alone(steinstream, tmp_path, words):
    for name, seed in (("", 0), ("other-", 1)):
        with np.load(write_chain(tmp_path / f"{name}chain.npz", draws=400, seed=seed)) as arrays:
            draws, scores = arrays["draws"], arrays["scores"]
        ss.thin(draws, scores, size=20).save(tmp_path / f"{name.strip('-') or 'kept'}.npz")
    header = ",".join(f"x{i}" for i in range(3)) + "," + ",".join(f"score_x{i}" for i in range(3))
    np.savetxt(tmp_path / "run.csv", np.hstack([draws, scores]), delimiter=",", header=header, comments="")
    ran = steinstream(*words, "--json")
    assert ran.returncode == 0, ran.stderr
    assert math.isfinite(json.loads(ran.stdout)["ksd"])


def test_numbers_that_are_not_finite_are_null_in_json(capsys):
    Messages(json=True).result({"ksd": math.nan, "size": np.int64(3), "list": (1.5, np.float64(np.inf))})
    assert json.loads(capsys.readouterr().out) == {"ksd": None, "size": 3, "list": [1.5, None], "warnings": []}


def test_quiet_prints_nothing_if_nothing_is_wrong(steinstream, chain, tmp_path):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 40, "--quiet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "") and (tmp_path / "kept.npz").exists()


def test_quiet_prints_the_checks_that_fire(steinstream, drifting):
    ran = steinstream("thin", drifting, "-o", "kept.npz", "--size", 40, "--quiet")
    assert ran.returncode == 0 and ran.stdout == "" and "warning: drift: " in ran.stderr


def test_strict_exits_with_3_if_a_check_fires(steinstream, drifting, chain, tmp_path):
    assert steinstream("thin", chain, "-o", "good.npz", "--size", 40, "--strict").returncode == 0
    ran = steinstream("thin", drifting, "-o", "kept.npz", "--size", 40, "--strict", "--json")
    assert ran.returncode == STRICT_CODE == 3
    result = json.loads(ran.stdout)
    assert "drift" in [finding["name"] for finding in result["findings"] if finding["fired"]] and result["warnings"]
    assert not any(text.startswith("Note: ") for text in result["warnings"])
    assert len(ss.Kept.load(tmp_path / "kept.npz")) == 40  # the result is written all the same


def test_strict_exits_with_3_after_a_warning_of_the_library(capsys):
    messages = Messages(strict=True)
    with messages.collecting_warnings():
        warnings.simplefilter("always")
        warnings.warn("A column is left out.", stacklevel=1)
    assert capsys.readouterr().err == "warning: A column is left out.\n"
    with pytest.raises(SystemExit) as end:
        messages.exit_if_strict()
    assert end.value.code == STRICT_CODE
    Messages(strict=True).exit_if_strict()


def test_an_error_is_no_json(steinstream):
    ran = steinstream("thin", "missing.npz", "-o", "kept.npz", "--json", "--strict")
    assert ran.returncode == 2 and ran.stdout == "" and ran.stderr.startswith("error: ")


def test_help_states_the_exit_codes(steinstream):
    text = steinstream("--help").stdout
    assert all(f"  {code}  " in text for code in (0, 2, 3, 130))


# -- progress ----------------------------------------------------------------------------------------------------------


def lines_of(capsys, interval, work, total=100.0):
    """Return the lines that a log prints for (time, amount of work done)."""
    now = 0.0
    log = ProgressLog(interval, lambda: now)
    log.begin("thinning ", total)
    for now, done in work:  # noqa: B007 the clock reads now
        log.show(done, f"{done} draws")
    return capsys.readouterr().err.splitlines()


def test_a_line_is_printed_after_30_seconds_and_a_tenth_of_the_work_whichever_is_later(capsys):
    fast = [(second, second) for second in range(101)]
    assert [line.split()[2] for line in lines_of(capsys, 30.0, fast)] == ["30%", "60%", "90%"]
    slow = [(60 * minute, minute) for minute in range(101)]
    assert [line.split()[0] for line in lines_of(capsys, 30.0, slow)][:2] == ["0:10:00", "0:20:00"]
    assert lines_of(capsys, 30.0, [(second, 3 * second) for second in range(30)]) == []


def test_without_a_known_amount_of_work_the_time_decides(capsys):
    lines = lines_of(capsys, 30.0, [(second, 0.0) for second in range(3700)], total=1.0)
    assert len(lines) == 123 and lines[-1].startswith("1:01:30  thinning  ")


def test_the_end_of_a_stage_is_printed_once(capsys):
    lines = lines_of(capsys, 0.0, [(1, 95), (2, 100), (3, 100), (4, 100)])
    assert [line.split()[2] for line in lines] == ["95%", "100%"]


def test_a_run_off_a_terminal_logs_its_progress(steinstream, chain, monkeypatch):
    monkeypatch.setenv("STEINSTREAM_LOG_INTERVAL", "0")
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20)
    assert ran.returncode == 0
    lines = ran.stderr.splitlines()
    assert any("thinning 100%" in line and "3 000 draws" in line and "kept 20" in line for line in lines), lines
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--quiet")
    assert ran.stderr == ""


def test_an_interval_that_is_no_number_is_an_error(monkeypatch):
    monkeypatch.setenv("STEINSTREAM_LOG_INTERVAL", "often")
    with (
        pytest.raises(InputError, match="STEINSTREAM_LOG_INTERVAL must be a number of seconds, got 'often'"),
        bar("", 1),
    ):
        pass


# -- standard input and output -----------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """A csv file with scores."""
    x = np.random.default_rng(2).normal(size=(500, 2))
    np.savetxt(tmp_path / "run.csv", np.hstack([x, -x]), delimiter=",", header="a,b,score_a,score_b", comments="")
    return tmp_path / "run.csv"


def test_csv_goes_through_standard_input_and_output(steinstream, table, tmp_path):
    assert steinstream("thin", table, "-o", "kept.csv", "--size", 9).returncode == 0
    piped = steinstream("thin", "-", "-o", "-", "--size", 9, input=table.read_text())
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == (tmp_path / "kept.csv").read_text() and "kept 9 of 500 draws" in piped.stderr


def test_other_formats_are_recognised_on_standard_input(chain, tmp_path, steinstream, monkeypatch):
    assert steinstream("thin", chain, "-o", "kept.npz", "--size", 9).returncode == 0
    with chain.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        ran = steinstream("thin", "-", "-o", "piped.npz", "--size", 9)
    assert ran.returncode == 0, ran.stderr
    assert np.array_equal(ss.Kept.load(tmp_path / "piped.npz").ids, ss.Kept.load(tmp_path / "kept.npz").ids)


def test_follow_reads_standard_input_to_its_end(steinstream, table, tmp_path):
    ran = steinstream("follow", "-", "-o", "piped.npz", "--size", 9, input=table.read_text())
    assert ran.returncode == 0, ran.stderr
    with table.open() as file:  # a file on standard input ends, too
        ran = steinstream("follow", "-", "-o", "redirected.npz", "--size", 9, stdin=file)
    assert ran.returncode == 0, ran.stderr
    assert np.array_equal(ss.Kept.load(tmp_path / "piped.npz").ids, ss.Kept.load(tmp_path / "redirected.npz").ids)
    assert steinstream("follow", table, "-o", "kept.npz", "--size", 9, "--until-idle", 0).returncode == 0
    assert np.array_equal(ss.Kept.load(tmp_path / "piped.npz").ids, ss.Kept.load(tmp_path / "kept.npz").ids)


def test_standard_input_has_no_default_output(steinstream, table, monkeypatch):
    with table.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        ran = steinstream("thin", "-", "--size", 9)
    assert ran.returncode == 2 and "-o - for csv on standard output" in ran.stderr


def test_the_command_in_the_result_names_standard_input(steinstream, table, tmp_path, monkeypatch):
    with table.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert steinstream("thin", "-", "-o", "kept.npz", "--size", 9).returncode == 0
    assert ss.Kept.load(tmp_path / "kept.npz").settings["commands"] == ["steinstream thin - --size 9"]


@pytest.mark.parametrize("name", commands.commands)
def test_options_for_batch_use_have_the_same_names_in_all_commands(name):
    found = {
        option.name: option for option in commands.commands[name].get_params(click.Context(commands.commands[name]))
    }
    batch = {"json", "quiet", "strict"} & found.keys()
    assert len(batch) == (0 if name in ("demo", "r-file", "completion") else 3)
    assert all(found[option].opts == [f"--{option}"] and found[option].is_flag for option in batch)


def test_every_entry_of_json_is_documented(steinstream, chain, tmp_path):
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    section = page[page.index("## Printing") : page.index("## Files")]
    (tmp_path / "model.py").write_text("def score(x):\n    return -x\n")
    lines = (
        ["thin", chain, "-o", "kept.npz", "--size", 30],
        ["inspect", chain],
        ["scores", chain, "--score", "model.py:score", "-o", "scored.npz"],
        ["merge", "kept.npz", "-o", "merged.npz"],
        ["refine", "kept.npz", "-o", "refined.npz", "--order"],
        ["ksd", chain, "--cumulative", "curve.csv"],
        ["plan", chain, "--radius", 0.5, "-o", "preconditioner.npz"],
        ["compare", chain, "--methods", "stride", "--sizes", 20],
        ["runs", "kept.npz", "-o", "runs.csv"],
        ["average", "refined.npz", "outputs.npy", "-o", "table.csv"],
    )
    np.save(tmp_path / "outputs.npy", np.arange(30.0))
    for words in lines:
        ran = steinstream(*words, "--json")
        assert ran.returncode == 0, ran.stderr
        result = json.loads(ran.stdout)
        assert result["command"] == words[0]
        unknown = [name for name in (*result, *result["paths"]) if f"`{name}`" not in section]
        assert not unknown, (words[0], unknown)

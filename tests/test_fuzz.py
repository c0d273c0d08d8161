"""The quick part of ``make fuzz``: the committed corpus, some hundred cases, and the numbers in docs/robustness.md."""

import ctypes
import itertools
import json
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fuzz import cases, mutations, page, runner, seeds
from fuzz.__main__ import CORPUS, makers
from fuzz.oracle import Outcome, run_case
from fuzz.runner import minimised
from fuzz.soak import python_starts, same_draws

ROOT = Path(__file__).resolve().parents[1]
CASES = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    seeds.make_in_process(folder)
    return seeds.contents(folder)


def failures(result):
    return f"{result.problem}\n{result.err}" if result.problem else ""


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_of_the_corpus_ends_as_promised(path, tmp_path):
    case = cases.Case.from_json(path.read_text())
    assert not failures(run_case(case, tmp_path / "case"))


def test_generated_cases_end_as_promised(files, tmp_path):
    kinds = cases.available(files)
    codes = set()
    for make in itertools.islice(makers(kinds, files, 0), CASES):
        case = make()
        outcome = run_case(case, tmp_path / "case")
        assert not failures(outcome), case.words
        codes.add(outcome.code)
    assert {0, 2} <= codes  # some mutations are harmless, others are not


def test_the_same_seed_gives_the_same_cases(files):
    first, second = (
        [make().to_json() for make in itertools.islice(makers(["csv", "npz", "options"], files, 7), 30)]
        for _ in range(2)
    )
    assert first == second


# -- the oracle notices what it must -----------------------------------------------------------------------------------


def thinned(files, *options):
    return cases.Case("npz", ["thin", "chain.npz", "-o", "out.npz", *options], {"chain.npz": files["chain.npz"]})


@pytest.mark.parametrize("array", ["draws", "ids", "ksd", "scores"])
def test_a_wrong_result_is_noticed(array, files, tmp_path, monkeypatch):
    from steinstream.result import Kept

    save = Kept.save

    def forge(kept, path):
        save(kept, path)
        with np.load(path) as stored:
            arrays = dict(stored)
        arrays[array] = np.roll(arrays[array], 1, 0) if arrays[array].ndim else arrays[array] * 1.01
        np.savez(path, **arrays)

    assert not run_case(thinned(files), tmp_path / "case").problem
    monkeypatch.setattr(Kept, "save", forge)
    assert run_case(thinned(files), tmp_path / "case").problem


def test_a_changed_input_a_traceback_and_a_left_file_are_noticed(files, tmp_path, monkeypatch):
    from steinstream.cli import _thin_request, paths

    for damage, noticed in (
        (lambda: Path("chain.npz").write_bytes(b"x"), "chain.npz was changed"),
        (lambda: Path("left.tmp").write_bytes(b"x"), "left.tmp was changed or left behind"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ):

        def save(kept, output, damage=damage):
            paths.save_kept(kept, output)
            damage()

        monkeypatch.setattr(_thin_request, "save_kept", save)
        assert noticed in run_case(thinned(files), tmp_path / "case").problem


def test_a_failing_case_becomes_smaller():
    case = cases.Case("x", ["thin", "a", "--size", "3"], {"a": b"..!" * 50 + b"bad" + b"?" * 99, "b": b"unused"})
    smaller = minimised(case, lambda case: b"bad" in case.files.get("a", b"") and "thin" in case.words)
    assert smaller.files == {"a": b"bad"} and smaller.words == ["thin"]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8", "f8"])
def test_arrays_of_any_type_can_be_mutated(dtype):
    for number in range(200):  # among them integers beyond the range of NumPy
        mutations.mutate_array(np.arange(6, dtype=dtype), Random(number))


@pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer needs fork and /proc")
def test_a_lost_process_is_reported_with_its_cause(monkeypatch):
    def crash(case, folder):
        if case.kind == "crash":
            ctypes.string_at(0)
        if case.kind == "exit":
            raise KeyboardInterrupt("not caught")
        return Outcome(0, "", "", "")

    def no_case():
        raise ZeroDivisionError("no case")

    monkeypatch.setattr(runner, "run_case", crash)
    made = [lambda kind=kind: cases.Case(kind, [], {}) for kind in ("first", "crash", "exit", "last")]
    first, generator, crashed, ended, last = runner.run_batches([made[0], no_case, *made[1:]])
    assert (first.kind, first.problem, last.kind, last.problem) == ("first", "", "last", "")
    assert generator.case is None and "ZeroDivisionError: no case" in generator.problem
    assert crashed.crashed and crashed.case.kind == "crash" and "string_at" in crashed.problem
    assert ended.code == 1 and ended.case.kind == "exit" and "KeyboardInterrupt: not caught" in ended.problem


def test_a_command_in_its_own_process_is_judged_by_its_end(files):
    words = ["thin", "chain.npz", "-o", "out.npz", "--size", "5"]
    assert not runner.run_command(cases.Case("npz", words, {"chain.npz": files["chain.npz"]}))
    assert "code 2" in runner.run_command(cases.Case("npz", words, {}, codes=[0]))


def test_forged_checkpoints_have_a_valid_checksum(files, tmp_path):
    from steinstream.io import checkpoint

    changed = 0
    for number in range(20):
        (tmp_path / "x").write_bytes(mutations.mutate_checkpoint(files["size.state"], Random(number)))
        try:
            changed += bool(checkpoint.read(tmp_path / "x"))
        except checkpoint.CheckpointError as error:
            assert "checksum" not in error.problem
    assert changed > 10


# -- soak --------------------------------------------------------------------------------------------------------------


def test_only_a_traceback_before_the_program_is_one_of_python():
    start = """Traceback (most recent call last):
  File "<frozen runpy>", line 112, in _get_module_details
  File "/x/src/steinstream/__init__.py", line 13, in <module>
  File "/x/lib/python3.11/typing.py", line 25, in <module>
KeyboardInterrupt
"""
    assert python_starts(start)
    for frame in ('__main__.py", line 20, in run', 'io/base.py", line 3, in <module>'):
        assert not python_starts(start.replace('__init__.py", line 13, in <module>', frame))
    assert not python_starts(start.replace("KeyboardInterrupt", "ValueError"))


def test_different_kept_sets_are_not_the_same(tmp_path):
    for name, value in (("a.npz", 1.0), ("b.npz", 1.0), ("c.npz", np.nextafter(1.0, 2.0))):
        np.savez(tmp_path / name, draws=np.array([value]), settings=np.array(name))
    assert same_draws(tmp_path / "a.npz", tmp_path / "b.npz")
    assert not same_draws(tmp_path / "a.npz", tmp_path / "c.npz")


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_states_the_committed_results():
    text = (ROOT / "docs" / "robustness.md").read_text()
    assert page.table() in text and page.updated(text) == text


def test_the_committed_soak_test_kept_every_promise():
    soak = json.loads((ROOT / "fuzz" / "soak.json").read_text())
    assert soak["bits_as_uninterrupted"] and not soak["failures"]

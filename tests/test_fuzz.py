"""The quick part of ``make fuzz``: the committed corpus, some hundred cases, and the numbers in docs/robustness.md."""

import ctypes
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fuzz import __main__ as fuzzer
from fuzz import cases, mutations, page, processes, runner, seeds
from fuzz.__main__ import CORPUS, makers
from fuzz.oracle import Outcome, run_case, wrong_end
from fuzz.runner import crashed_in_library, minimised
from fuzz.soak import Steady, differences, python_starts

ROOT = Path(__file__).resolve().parents[1]
CASES = 300
linux = pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer needs fork and /proc")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    seeds.make_in_process(folder)
    return seeds.contents(folder)


def failures(result):
    return f"{result.problem}\n{result.err}" if result.problem else ""


@pytest.fixture(scope="module")
def replayed():
    """Run the corpus with the limits of time and memory of the fuzzer, which a busy machine does not exceed."""
    command = [sys.executable, "-m", "fuzz", "--replay"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    return json.loads(ended.stdout)


@linux
@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.json")))
def test_a_case_of_the_corpus_ends_as_promised(name, replayed):
    assert not replayed[name]


def test_notes_of_the_corpus_name_files_without_their_folders():
    notes = [json.loads(path.read_text())["note"] for path in CORPUS.glob("*.json")]
    assert [fuzzer.without_folders(note) for note in notes] == notes
    assert fuzzer.without_folders("at /a/b-1.2/c.py:7: a/b, 1/2") == "at c.py:7: a/b, 1/2"


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


def test_only_a_fault_in_the_code_of_a_library_is_excused():
    frames = 'Fatal Python error: Aborted\n  File "/x/h5py/_hl/dims.py", line 60 in __len__\n'
    own = 'Fatal Python error: Aborted\n  File "/x/steinstream/io/netcdf.py", line 9 in close\n' + frames[28:]
    arrow = "terminate called after throwing an instance of 'parquet::ParquetException'\n" + own
    assert [crashed_in_library(problem) for problem in (frames, own, arrow)] == ["HDF5", "", "Arrow"]


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


def test_only_a_warning_of_the_users_own_module_is_not_one_for_developers():
    case = cases.Case("scores", [], {"model_1.py": b""})
    assert not wrong_end(case, 0, "/x/model_1.py:12: RuntimeWarning: overflow\n  return 1e308 * x\n")
    assert "developers" in wrong_end(case, 0, "/x/steinstream/api.py:12: RuntimeWarning: overflow\n")


def test_a_failing_case_becomes_smaller():
    case = cases.Case("x", ["thin", "a", "--size", "3"], {"a": b"..!" * 50 + b"bad" + b"?" * 99, "b": b"unused"})
    smaller = minimised(case, lambda case: b"bad" in case.files.get("a", b"") and "thin" in case.words)
    assert smaller.files == {"a": b"bad"} and smaller.words == ["thin"]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8", "f8"])
def test_arrays_of_any_type_can_be_mutated(dtype):
    for number in range(200):  # among them integers beyond the range of NumPy
        mutations.mutate_array(np.arange(6, dtype=dtype), Random(number))


def test_a_huge_dataset_is_not_read_to_be_mutated(monkeypatch):
    h5py = pytest.importorskip("h5py")
    file = io.BytesIO()
    with h5py.File(file, "w") as root:
        root.create_dataset("draws", (10**7, 100), "f8", chunks=(1000, 100), compression="gzip")
    monkeypatch.setattr(mutations, "mutate_array", lambda array, choose: pytest.fail(f"{array.nbytes} bytes were read"))
    for number in range(40):
        mutations.mutate_hdf5(file.getvalue(), Random(number))


@linux
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


def first_problem(program):
    """Watch a Python program until a limit is exceeded."""
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        watch = runner.Watch(process.pid)
        while process.poll() is None:
            problem = watch.problem()
            if problem:
                return problem
            time.sleep(0.05)
        return "it ended"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
        process.wait()


@linux
def test_a_process_that_waits_works_too_long_or_is_too_large_is_noticed(monkeypatch):
    monkeypatch.setattr(runner, "WAITING_SECONDS", 1.0)
    assert first_problem("import time; time.sleep(1000)") == runner.TOO_SLOW[1]
    monkeypatch.setattr(runner, "PROCESSOR_SECONDS", 1.0)
    assert first_problem("while True: pass") == runner.TOO_SLOW[0]
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    assert first_problem(child) == runner.TOO_SLOW[0]  # which waits, but for a process that works
    monkeypatch.setattr(runner, "MEGABYTES", 1)
    assert first_problem("import time; time.sleep(1000)").endswith("MB of memory")


@linux
def test_a_process_that_cannot_get_the_processor_does_not_exceed_a_limit(monkeypatch):
    states = iter([(1.0, True)] * 500)
    clock = itertools.count(step=0.3)
    monkeypatch.setattr(runner, "activity", lambda process: next(states))
    monkeypatch.setattr(runner, "resident_megabytes", lambda process: 1.0)
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    watch = runner.Watch(0)
    assert not any(watch.problem() for _ in range(400))  # 120 s of waiting for its turn


@linux
def test_only_a_crash_in_hdf5_that_the_command_reports_is_excused(monkeypatch):
    frames = ['  File "/x/h5py/_hl/files.py", line 1 in close', '  File "/x/steinstream/io/netcdf.py", line 2 in read']
    case = cases.Case("netcdf", ["inspect", "chain.nc"], {})

    def excused(code, *lines):
        return fuzzer.excuse(runner.Result("netcdf", code, "\n".join(["the process ended", *lines]), case))

    monkeypatch.setattr(fuzzer, "run_command", lambda case: "")
    assert excused(-11, *frames)
    assert not excused(-11, *reversed(frames)) and not excused(-11)
    assert not excused(1, *frames) and not excused(-9, *frames)
    monkeypatch.setattr(fuzzer, "run_command", lambda case: "traceback")
    assert not excused(-11, *frames)


def test_an_interrupted_run_continues_with_the_next_case(files, tmp_path):
    whole = [make().to_json() for make in itertools.islice(makers(["csv", "npz"], files, 3), 6)]
    rest = [make().to_json() for make in itertools.islice(makers(["csv", "npz"], files, 3, 4), 2)]
    assert rest == whole[4:]
    path = tmp_path / "results.json"
    for seed, commit, number in ((1, "a", 5), (2, "a", 3), (1, "a", 6), (1, "b", 1)):
        fuzzer.write(path, {**fuzzer.earlier(path, seed, commit), "counts": {"csv": number}})
    assert fuzzer.earlier(path, 1, "a")["counts"] == {"csv": 6}
    assert fuzzer.earlier(path, 1, "c")["counts"] == {} and len(json.loads(path.read_text())) == 3


@linux
def test_a_kept_draw_without_its_file_is_noticed(tmp_path):
    processes._store(tmp_path)
    assert not processes._without_file(tmp_path)
    next((tmp_path / "draws").glob("*.bin")).write_bytes(b"half")
    assert "no complete file" in processes._without_file(tmp_path)


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
    installs = '  File "/x/src/steinstream/__main__.py", line 13, in run\n    signal.signal(signal.SIGINT, _stop)\n'
    assert python_starts(start.replace("KeyboardInterrupt", installs + "KeyboardInterrupt"))


@linux
def test_a_process_that_ends_while_the_file_grows_is_reported(tmp_path):
    steady = Steady([sys.executable, "-c", "pass"], tmp_path)
    steady.process.wait()
    steady.measure()
    assert any("ended while the file grew" in failure for failure in steady.failures(60.0))


def test_different_kept_sets_are_not_the_same(tmp_path):
    for name, value in (("a.npz", 1.0), ("b.npz", 1.0), ("c.npz", np.nextafter(1.0, 2.0))):
        np.savez(tmp_path / name, draws=np.array([value]), settings=np.array(name))
    assert not differences(tmp_path / "a.npz", tmp_path / "b.npz")
    assert differences(tmp_path / "a.npz", tmp_path / "c.npz") == ["draws"]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_states_the_committed_results():
    text = (ROOT / "docs" / "robustness.md").read_text()
    assert page.table() in text and page.updated(text) == text


RUNS = json.loads((ROOT / "fuzz" / "results.json").read_text())


def test_the_committed_runs_have_one_version():
    assert {run["commit"] for run in RUNS} == {RUNS[0]["commit"]} and re.fullmatch("[0-9a-f]{40}", RUNS[0]["commit"])


def test_the_committed_runs_have_all_kinds_of_cases():
    counts = page.total(RUNS)
    assert all(counts[kind] for kind in (*cases.KINDS, *processes.KINDS))


def test_a_committed_run_of_full_length_has_no_fault():
    clean = [Counter(run["counts"]) for run in RUNS if not run["failures"]]
    lengths = [(sum(counts[kind] for kind in cases.KINDS), counts["stopped by SIGKILL"]) for counts in clean]
    assert any(number >= 20_000 and kills >= 1000 for number, kills in lengths), lengths


def test_the_page_lists_the_faults_of_the_committed_runs():
    commit, faults = RUNS[0]["commit"][:7], sum(len(run["failures"]) for run in RUNS)
    text = (ROOT / "docs" / "robustness.md").read_text()
    own = text[text.index(f"| {commit} |") :]
    assert len(re.match(r"\|.*\n(?:\| \| \| \|.*\n)*", own)[0].splitlines()) == faults


SOAK = json.loads((ROOT / "fuzz" / "soak.json").read_text())


def test_the_committed_soak_test_gave_the_bits_of_an_uninterrupted_run():
    assert SOAK["bits_as_uninterrupted"] and not SOAK["failures"]


def test_the_committed_soak_test_lasted_an_hour_in_the_same_memory():
    assert SOAK["minutes"] >= 60
    memory = SOAK["megabytes_of_one_process_by_minute"]
    assert len(memory) >= 60 and max(memory[10:]) <= max(memory[:10]) + 8

"""A command writes over nothing that it reads, deletes nothing that it did not write, and goes on with its own data."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import write_chain
from stan_runs import sample

import steinstream as ss
from steinstream.cli import commands
from steinstream.cli.checkpoints import fingerprint
from steinstream.cli.progress import Stop
from steinstream.errors import CheckpointError, InputError, SteinstreamError

thin_module = sys.modules["steinstream.cli.thin"]


def run(line):
    commands.main(shlex.split(line), standalone_mode=False)


def table(path, *columns):
    titles = ",".join(f"{name}{i}" for name in ("a", "score_a")[: len(columns)] for i in range(columns[0].shape[1]))
    np.savetxt(path, np.hstack(columns), delimiter=",", header=titles, comments="")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with chains of all kinds, a kept set and a checkpoint."""
    folder = tmp_path_factory.mktemp("made")
    write_chain(folder / "chain.npz", draws=300)
    x = np.random.default_rng(0).normal(size=(300, 2))
    for name in ("g-1.csv", "g-2.csv", "compare.csv", "chain.html"):
        table(folder / name, x, -x)
    table(folder / "draws.csv", x)
    table(folder / "s.csv", -x)
    np.savez(folder / "leaf-1.npz", draws=x, scores=-x)
    sample(folder, 1, samples=200)
    shutil.copy(folder / "out-diagnostic-1.csv", folder / "momenta.csv")  # which names its output in a comment
    commands.main(["thin", str(folder / "chain.npz"), "-o", str(folder / "kept.npz"), "--size", "20"],
                  standalone_mode=False)  # fmt: skip
    ss.Thinner(3).save(folder / "state.npz")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of it, to work in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("thin chain.npz -o chain.npz", "chain.npz is the input too.* Give -o"),
        ("thin 'g-*.csv' -o g-1.csv", "g-1.csv is the input too"),
        ("thin 'g-*.csv' -o ../{here}/g-2.csv", "g-2.csv is the input too"),
        ("thin draws.csv --scores s.csv -o s.csv", "s.csv is the input too"),
        ("thin draws.csv --scores s.csv -o s.csv --method stride --size 5", "s.csv is the input too"),
        ("thin out-diagnostic-1.csv -o out-1.csv", "out-1.csv is the input too"),
        ("thin momenta.csv -o out-1.csv", "out-1.csv is the input too"),
        ("thin out-diagnostic-1.csv g-1.csv -o out-1.csv --workers 0", "out-1.csv is the input too"),
        ("thin momenta.csv --output-csv g-1.csv -o g-1.csv", "g-1.csv is the input too"),
        ("thin chain.npz --initial kept.npz -o kept.npz", "kept.npz is the input too"),
        ("thin chain.html --format csv -o k.npz --report chain.html", "chain.html is the input too.* Give --report"),
        ("thin chain.npz -o k.npz --checkpoint chain.npz", "chain.npz is the input too.* Give --checkpoint"),
        ("thin draws.csv --scores s.csv -o k.npz --checkpoint s.csv", "s.csv is the input too"),
        ("thin leaf-1.npz -o k.npz --workers 0 --checkpoint .", "leaf-1.npz would be taken for a leaf"),
        ("follow out-diagnostic-1.csv -o out-1.csv", "out-1.csv is the input too"),
        ("follow momenta.csv -o out-1.csv", "out-1.csv is the input too"),
        ("follow 'g-*.csv' -o g-1.csv", "g-1.csv is the input too"),
        ("follow g-1.csv -o k.npz --checkpoint g-1.csv", "g-1.csv is the input too"),
        ("plan chain.npz --radius 1 -o chain.npz", "chain.npz is the input too"),
        ("refine kept.npz -o chain.npz --weights chain --chain chain.npz", "chain.npz is the input too"),
        ("ksd g-1.csv --cumulative g-1.csv", "g-1.csv is the input too.* Give --cumulative"),
        ("compare compare.csv -o . --methods stride --sizes 5", "compare.csv is the input too"),
        ("report kept.npz --chain chain.html --format csv -o chain.html", "chain.html is the input too"),
        ("merge kept.npz -o kept.npz", "kept.npz is the input too"),
    ],
)  # fmt: skip
def test_what_is_read_is_not_written_over(folder, line, problem):
    before = contents(folder)
    with pytest.raises(InputError, match=problem):
        run(line.format(here=folder.name))
    assert contents(folder) == before


def test_a_store_is_not_replaced_by_what_was_kept_of_something_in_it(folder):
    (folder / "store.zarr").mkdir()
    shutil.move("g-1.csv", "store.zarr/g.csv")
    with pytest.raises(SteinstreamError):
        run("thin store.zarr/g.csv -o store.zarr")
    assert (folder / "store.zarr" / "g.csv").exists()


def test_the_output_that_cmdstan_begins_later_is_its_own(folder, monkeypatch):
    shutil.move("out-1.csv", "later.csv")
    module = sys.modules["steinstream.cli.follow"]
    take = module._Run._take

    def begun(self, last):
        shutil.copy("later.csv", "out-1.csv")
        take(self, last)

    monkeypatch.setattr(module._Run, "_take", begun)
    with pytest.raises(InputError, match=r"out-1\.csv is the input too"):
        run("follow out-diagnostic-1.csv -o out-1.csv")
    assert Path("out-1.csv").read_bytes() == Path("later.csv").read_bytes()


def test_a_kept_set_can_be_refined_in_its_place(folder):
    run("refine kept.npz -o kept.npz --order")
    assert ss.Kept.load("kept.npz").prefix_ksd is not None


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["thin chain.npz", "follow g-1.csv --until-idle 0"])
@pytest.mark.parametrize(
    ("checkpoint", "problem"),
    [
        ("kept.npz", r"kept\.npz is an npz file but no steinstream checkpoint"),
        ("s.csv", r"s\.csv is not a readable checkpoint"),
        ("k.npz", "-o and --checkpoint are the same file"),
        (".", "it is no file"),
        ("nowhere/state.npz", "there is no folder"),
        ("/proc/state.npz", "cannot write /proc/state.npz|there is no folder"),
    ],
)
def test_a_checkpoint_is_a_file_of_its_own(folder, command, checkpoint, problem):
    before = contents(folder)
    with pytest.raises(SteinstreamError, match=problem):
        run(f"{command} -o k.npz --checkpoint {checkpoint}")
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["thin chain.npz", "follow g-1.csv --until-idle 0"])
def test_who_forgets_to_resume_loses_nothing(folder, command):
    before = contents(folder)
    with pytest.raises(CheckpointError, match=r"state.npz holds the state of a run that was stopped.* Add --resume"):
        run(f"{command} -o k.npz --checkpoint state.npz")
    assert contents(folder) == before


class StopAfter(Stop):
    """Ctrl-C after so many looks at it."""

    looks = 2

    @property
    def signal(self):
        self.looks -= 1
        return 2 if self.looks < 0 else 0


@pytest.fixture
def stopped(folder, monkeypatch):
    """Begin a run and stop it in its middle."""

    def begin(line):
        @contextmanager
        def soon():
            yield StopAfter()

        with monkeypatch.context() as patch:
            patch.setattr(thin_module, "stoppable", soon)
            patch.setattr(thin_module, "_ROWS", 50)
            with pytest.raises(SystemExit) as end:
                run(f"{line} --scale identity --checkpoint run.npz")
        assert end.value.code == 130 and 0 < ss.Thinner.load("run.npz").seen < 300

    return begin


@pytest.mark.parametrize(
    ("begun", "now", "problem"),
    [
        ("chain.npz", "chain.npz --negate-scores", "--negate-scores False, and now it is True"),
        ("both.npz", "both.npz --draws-name other", "--draws-name draws, and now it is other"),
        ("chain.npz", "chain.npz --format npz", "--format None, and now it is npz"),
        ("draws.csv --scores s.csv", "draws.csv --scores g-1.csv --scores-name score_a0,score_a1", "--scores-name"),
        ("draws.csv --scores s.csv", "draws.csv --scores other/s.csv", "other/s.csv is not the file"),
        ("chain.npz", "other/chain.npz", "other/chain.npz is not the file .* other contents"),
        ("chain.npz", "long/chain.npz", r"long/chain.npz is not the file .* it has \d+ bytes, not \d+"),
        ("chain.npz", "kept.npz", "belongs to chain.npz"),
    ],
)
def test_a_run_goes_on_with_its_own_data_alone(folder, stopped, begun, now, problem):
    with np.load("chain.npz") as arrays:
        np.savez("both.npz", **arrays, other=arrays["draws"] + 1e-3)
    for name in ("other", "long"):
        Path(name).mkdir()
    write_chain(Path("other/chain.npz"), draws=300, seed=1)
    write_chain(Path("long/chain.npz"), draws=301)
    table("other/s.csv", -np.random.default_rng(1).normal(size=(300, 2)))
    stopped(f"thin {begun} -o k.npz")
    before = contents(folder)
    with pytest.raises(CheckpointError, match=problem):
        run(f"thin {now} -o k.npz --scale identity --checkpoint run.npz --resume")
    assert contents(folder) == before


def test_a_run_of_one_command_is_not_gone_on_with_by_another(folder, stopped):
    stopped("thin g-1.csv -o k.npz")
    with pytest.raises(CheckpointError, match="belongs to another command"):
        run("follow g-1.csv -o k.npz --scale identity --checkpoint run.npz --resume")


def test_a_chain_may_move_and_an_older_checkpoint_has_fewer_notes(folder, stopped):
    run("thin chain.npz -o whole.npz --scale identity")
    for _ in range(2):
        stopped("thin chain.npz -o k.npz")
        Path("moved").mkdir(exist_ok=True)
        shutil.copy("chain.npz", "moved/chain.npz")
        run("thin moved/chain.npz -o k.npz --scale identity --checkpoint run.npz --resume")
        assert np.array_equal(ss.Kept.load("k.npz").ids, ss.Kept.load("whole.npz").ids)
        assert not Path("run.npz").exists()
    stopped("thin chain.npz -o k.npz")
    thinner = ss.Thinner.load("run.npz")
    del thinner.note["data"], thinner.note["options"]["draws_name"]
    thinner.save("run.npz")
    run("thin chain.npz -o k.npz --scale identity --checkpoint run.npz --resume")
    assert np.array_equal(ss.Kept.load("k.npz").ids, ss.Kept.load("whole.npz").ids)


def test_a_file_is_known_by_its_size_its_beginning_and_its_end(tmp_path):
    (tmp_path / "store").mkdir()
    one, two = tmp_path / "one", tmp_path / "store" / "two"
    one.write_bytes(bytes(300_000))
    two.write_bytes(bytes(300_000))
    assert fingerprint(one) == fingerprint(two)
    whole = fingerprint(two.parent)
    for at in (0, 299_999):
        other = bytearray(300_000)
        other[at] = 1
        two.write_bytes(other)
        assert fingerprint(one) != fingerprint(two) and fingerprint(two.parent) != whole
    two.write_bytes(bytes(300_001))
    assert fingerprint(one) != fingerprint(two) and fingerprint(two.parent) != whole

"""A command overwrites no input, deletes no file of others, and a checkpoint is continued with the same data only."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli import commands
from steinstream.cli.checkpoints import Checkpoint, fingerprint
from steinstream.cli.progress import Stop
from steinstream.errors import CheckpointError, InputError, SteinstreamError
from steinstream.io import checkpoint
from tests.conftest import write_chain
from tests.stan_runs import sample

thin_module = sys.modules["steinstream.cli.thin"]


def run(line):
    commands.main(shlex.split(line), standalone_mode=False)


def table(path, *columns):
    titles = ",".join(f"{name}{i}" for name in ("a", "score_a")[: len(columns)] for i in range(columns[0].shape[1]))
    np.savetxt(path, np.hstack(columns), delimiter=",", header=titles, comments="")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with chains, a kept set and a checkpoint."""
    folder = tmp_path_factory.mktemp("made")
    write_chain(folder / "chain.npz", draws=300)
    x = np.random.default_rng(0).normal(size=(300, 2))
    for name in ("g-1.csv", "g-2.csv", "compare.csv", "chain.html"):
        table(folder / name, x, -x)
    table(folder / "draws.csv", x)
    table(folder / "s.csv", -x)
    np.savez(folder / "leaf-1.npz", draws=x, scores=-x)
    sample(folder, 1, samples=200)
    shutil.copy(folder / "out-diagnostic-1.csv", folder / "momenta.csv")  # it names its output in a comment
    commands.main(
        ["thin", str(folder / "chain.npz"), "-o", str(folder / "kept.npz"), "--size", "20"], standalone_mode=False
    )
    ss.Thinner(3).save(folder / "state.npz")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of that folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- input files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("thin chain.npz -o chain.npz", "chain.npz is also an input file.* Give -o"),
        ("thin 'g-*.csv' -o g-1.csv", "g-1.csv is also an input file"),
        ("thin 'g-*.csv' -o ../{here}/g-2.csv", "g-2.csv is also an input file"),
        ("thin draws.csv --scores s.csv -o s.csv", "s.csv is also an input file"),
        ("thin draws.csv --scores s.csv -o s.csv --method stride --size 5", "s.csv is also an input file"),
        ("thin out-diagnostic-1.csv -o out-1.csv", "out-1.csv is also an input file"),
        ("thin momenta.csv -o out-1.csv", "out-1.csv is also an input file"),
        ("thin out-diagnostic-1.csv g-1.csv -o out-1.csv --workers 0", "out-1.csv is also an input file"),
        ("thin momenta.csv --output-csv g-1.csv -o g-1.csv", "g-1.csv is also an input file"),
        ("thin chain.npz --initial kept.npz -o kept.npz", "kept.npz is also an input file"),
        (
            "thin chain.html --format csv -o k.npz --report chain.html",
            "chain.html is also an input file.* Give --report",
        ),
        ("thin chain.npz -o k.npz --checkpoint chain.npz", "chain.npz is also an input file.* Give --checkpoint"),
        ("thin draws.csv --scores s.csv -o k.npz --checkpoint s.csv", "s.csv is also an input file"),
        ("thin leaf-1.npz -o k.npz --workers 0 --checkpoint .", "leaf-1.npz has the name of a checkpoint in"),
        ("follow out-diagnostic-1.csv -o out-1.csv", "out-1.csv is also an input file"),
        ("follow momenta.csv -o out-1.csv", "out-1.csv is also an input file"),
        ("follow 'g-*.csv' -o g-1.csv", "g-1.csv is also an input file"),
        ("follow g-1.csv -o k.npz --checkpoint g-1.csv", "g-1.csv is also an input file"),
        ("plan chain.npz --radius 1 -o chain.npz", "chain.npz is also an input file"),
        ("ksd g-1.csv --cumulative g-1.csv", "g-1.csv is also an input file.* Give --cumulative"),
        ("compare compare.csv -o . --methods stride --sizes 5", "compare.csv is also an input file"),
        ("report kept.npz --chain chain.html --format csv -o chain.html", "chain.html is also an input file"),
        ("merge kept.npz -o kept.npz", "kept.npz is also an input file"),
    ],
)
def test_no_input_is_overwritten(folder, line, problem):
    if "report" in line:
        pytest.importorskip("matplotlib")
    before = contents(folder)
    with pytest.raises(InputError, match=problem):
        run(line.format(here=folder.name))
    assert contents(folder) == before


def test_a_store_is_not_replaced_by_the_kept_draws_of_a_file_in_it(folder):
    (folder / "store.zarr").mkdir()
    shutil.move("g-1.csv", "store.zarr/g.csv")
    with pytest.raises(SteinstreamError):
        run("thin store.zarr/g.csv -o store.zarr")
    assert (folder / "store.zarr" / "g.csv").exists()


def test_an_output_that_cmdstan_creates_later_is_not_overwritten(folder, monkeypatch):
    shutil.move("out-1.csv", "later.csv")
    module = sys.modules["steinstream.cli.follow"]
    add = module.FollowRun.add_draws

    def add_draws(self, last):
        shutil.copy("later.csv", "out-1.csv")
        add(self, last)

    monkeypatch.setattr(module.FollowRun, "add_draws", add_draws)
    with pytest.raises(InputError, match=r"out-1\.csv is also an input file"):
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
        ("kept.npz", r"kept\.npz is an npz file but not a steinstream checkpoint"),
        ("s.csv", r"s\.csv is not a readable checkpoint"),
        ("k.npz", "-o and --checkpoint are the same file"),
        (".", "it is not a file"),
        ("nowhere/state.npz", "the folder .* does not exist|there is no folder"),
        ("/proc/state.npz", "cannot write /proc/state.npz|does not exist"),
    ],
)
def test_a_checkpoint_is_a_file_of_its_own(folder, command, checkpoint, problem):
    before = contents(folder)
    with pytest.raises(SteinstreamError, match=problem):
        run(f"{command} -o k.npz --checkpoint {checkpoint}")
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["thin chain.npz", "follow g-1.csv --until-idle 0"])
def test_a_checkpoint_is_not_replaced_without_resume(folder, command):
    before = contents(folder)
    with pytest.raises(CheckpointError, match=r"state.npz contains the state of a run that was stopped.* Add --resume"):
        run(f"{command} -o k.npz --checkpoint state.npz")
    assert contents(folder) == before


class StopAfter(Stop):
    """A stop after two checks."""

    checks = 2

    @property
    def signal(self):
        self.checks -= 1
        return 2 if self.checks < 0 else 0


@pytest.fixture
def stopped(folder, monkeypatch):
    """Return a function that starts a run and stops it before its end."""

    def begin(line):
        @contextmanager
        def soon():
            yield StopAfter()

        with monkeypatch.context() as patch:
            patch.setattr(thin_module, "stoppable", soon)
            patch.setattr(thin_module, "_ROWS", 50)
            with pytest.raises(SystemExit) as end:
                run(f"{line} --preconditioner identity --checkpoint run.npz")
        assert end.value.code == 130 and 0 < ss.Thinner.load("run.npz").seen < 300

    return begin


@pytest.mark.parametrize(
    ("begun", "now", "problem"),
    [
        ("chain.npz --size 50", "chain.npz --size 40", "--size 50, but 40 was given"),
        ("chain.npz", "chain.npz --kernel rbf", r"--kernel IMQ\(c=1.0, beta=-0.5\), but RBF\(h=None\) was given"),
        ("chain.npz", "chain.npz --no-validate-scores", "--validate-scores True, but False was given"),
        ("chain.npz", "chain.npz --initial kept.npz", "--initial None, but kept.npz was given"),
        ("chain.npz", "chain.npz --negate-scores", "--negate-scores False, but True was given"),
        ("both.npz", "both.npz --draws-name other", "--draws-name draws, but other was given"),
        ("chain.npz", "chain.npz --format npz", "--format None, but npz was given"),
        ("draws.csv --scores s.csv", "draws.csv --scores g-1.csv --scores-name score_a0,score_a1", "--scores-name"),
        ("draws.csv --scores s.csv", "draws.csv --scores other/s.csv", "other/s.csv is not the file"),
        ("chain.npz", "other/chain.npz", "other/chain.npz is not the file .* its contents differ"),
        ("chain.npz", "long/chain.npz", r"long/chain.npz is not the file .* it has \d+ bytes, not \d+"),
        ("chain.npz", "kept.npz", "belongs to chain.npz"),
    ],
)
def test_a_run_continues_with_the_same_data_and_options_only(folder, stopped, begun, now, problem):
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
        run(f"thin {now} -o k.npz --preconditioner identity --checkpoint run.npz --resume")
    assert contents(folder) == before


@pytest.mark.parametrize("chain", ["chain.npz", "draws.csv"])  # with scores and without
def test_a_checkpoint_with_other_ids_than_those_of_its_draws_is_refused(folder, stopped, chain):
    stopped(f"thin {chain} -o k.npz")
    content = checkpoint.read("run.npz")
    ids = content["state"]["kept"]["ids"]
    ids[[0, 1], :2] = ids[[1, 0], :2]
    checkpoint.write("run.npz", content)
    with pytest.raises(CheckpointError, match=r"run.npz is damaged: its draw \d+ of chain 0 is not that of"):
        run(f"thin {chain} -o k.npz --preconditioner identity --checkpoint run.npz --resume")
    assert not Path("k.npz").exists()


def test_a_checkpoint_of_another_command_is_refused(folder, stopped):
    stopped("thin g-1.csv -o k.npz")
    with pytest.raises(CheckpointError, match="belongs to another command"):
        run("follow g-1.csv -o k.npz --preconditioner identity --checkpoint run.npz --resume")


def test_a_run_continues_when_the_chain_was_moved(folder, stopped):
    run("thin chain.npz -o whole.npz --preconditioner identity")
    for _ in range(2):
        stopped("thin chain.npz -o k.npz")
        Path("moved").mkdir(exist_ok=True)
        shutil.copy("chain.npz", "moved/chain.npz")
        run("thin moved/chain.npz -o k.npz --preconditioner identity --checkpoint run.npz --resume")
        assert np.array_equal(ss.Kept.load("k.npz").ids, ss.Kept.load("whole.npz").ids)
        assert not Path("run.npz").exists()


def test_a_preconditioner_with_other_values_is_noticed(folder):
    config = ss.ThinConfig(preconditioner=[1.0, 0.1, 10.0])
    checkpoint = Checkpoint(Path("run.npz"))
    thinner = ss.Thinner(3, config)
    thinner.note = {"config": config.to_dict(), "options": {"proxy": None}}
    checkpoint.save(thinner)
    note = ss.Thinner.load("run.npz").note
    checkpoint.check_settings(note, config, {"proxy": None})
    with pytest.raises(CheckpointError, match="was written with another --preconditioner"):
        checkpoint.check_settings(note, ss.ThinConfig(preconditioner=[1.0, 0.1, 11.0]), {"proxy": None})
    with pytest.raises(CheckpointError, match="--proxy None, but gaussian was given"):
        checkpoint.check_settings(note, config, {"proxy": "gaussian"})


def test_a_file_is_identified_by_its_size_its_start_and_its_end(tmp_path):
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

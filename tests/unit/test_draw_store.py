"""A payload is there as long as its draw is kept: whatever fails, and at whatever instant the process is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from steinstream.draw_store import DrawStore
from steinstream.errors import CheckpointError, InputError, OutputError
from tests.thinners import ksd_thinner

posix = pytest.mark.skipif(os.name != "posix", reason="needs fork, kill and locks")


def nothing():
    pass


@pytest.mark.parametrize("sync", [True, False])
def test_files_follow_a_thinner(tmp_path, sync):
    draws = np.random.default_rng(0).normal(size=(60, 2))
    thinner, store = ksd_thinner(2, size=7), DrawStore(tmp_path / "draws", suffix=".npy", sync=sync)
    for x in draws:
        step = thinner.push(x, -x)
        new = {id: lambda path, x=x: np.save(path, x) for id in step.added}
        store.commit(new, step.dropped, lambda: thinner.save(tmp_path / "thinner.npz"))
        assert store.ids() == sorted(map(tuple, thinner.kept.ids.tolist()))
    for id in store.ids():
        assert np.array_equal(np.load(store.path(id)), draws[id[1]])


class Power(BaseException):
    """The power fails."""


def test_whichever_operation_on_the_disk_is_the_last_one_store_and_checkpoint_agree(tmp_path, monkeypatch):
    """Cut off before the first, the second, ... call that changes a file or forces one to disk."""
    left = [0]
    for owner, name in ((Path, "replace"), (Path, "unlink"), (Path, "write_bytes"), (os, "fsync")):
        real = getattr(owner, name)

        def cut(*arguments, real=real, **options):
            if left[0] == 0:
                raise Power
            left[0] -= 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, cut)

    seen = set()
    for last in range(100):
        left[0] = 10**9
        folder = tmp_path / str(last)
        store, saved = DrawStore(folder), folder / "kept.json"

        def checkpoint(ids, saved=saved):
            from steinstream.io.atomic import replacing

            with replacing(saved, "w") as file:
                json.dump(ids, file)

        store.commit({(0, 1): b"1", (0, 2): b"2"}, [], lambda c=checkpoint: c([[0, 1], [0, 2]]))
        left[0] = last
        whole = True
        try:
            store.commit({(0, 3): b"3", (0, 4): b"4"}, [(0, 1), (0, 2)], lambda c=checkpoint: c([[0, 3], [0, 4]]))
        except Power:
            whole = False
            left[0] = 10**9
            with pytest.raises(InputError, match="earlier commit"):
                store.commit({}, [], nothing)
        store.close()
        again = DrawStore(folder)
        kept = [tuple(id) for id in json.loads(saved.read_text())]
        assert kept in ([(0, 1), (0, 2)], [(0, 3), (0, 4)])
        seen.add((tuple(kept), again.reconcile(kept)))
        assert again.ids() == kept
        assert [again.path(id).read_bytes() for id in kept] == [str(id[1]).encode() for id in kept]
        assert not list(folder.glob(".new/*"))
        again.close()
        if whole:
            break
    old, new = ((0, 1), (0, 2)), ((0, 3), (0, 4))
    assert seen >= {(old, ()), (old, ((0, 3),)), (old, new), (new, old), (new, ((0, 2),)), (new, ())}


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import steinstream as ss
from steinstream.io import checkpoint
from steinstream.draw_store import DrawStore

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
saved, names, dim = folder / "thinner.npz", ("draws", "scores"), 40


def draw(number):
    x = np.random.default_rng(number).normal(size=dim).astype(np.float32)
    return x, -x


def load(store):
    if not saved.exists():
        return ss.Thinner(dim, size=12, storage="float32", preconditioner="identity", stream_weight=0.0)
    rows = lambda ids: dict(zip(names, np.array([np.load(store.path((c, d))) for c, d, _ in ids]).swapaxes(0, 1)))
    return checkpoint.load(saved, read_rows=rows)


def agree(store):
    thinner = load(store)  # fails if a kept draw has no file
    kept = [tuple(id) for id in thinner.kept.ids.tolist()] if len(thinner) else []
    store.reconcile(kept)
    assert store.ids() == kept
    for point, id in zip(thinner.kept.draws if kept else (), kept):
        assert np.array_equal(point, draw(id[1])[0])
    return thinner


def run():
    store = DrawStore(folder / "draws", suffix=".npy")
    thinner = agree(store)
    while True:
        both = np.array(draw(thinner.seen))
        step = thinner.push(*both)
        if step.added or step.dropped:
            write = lambda path: np.save(path, both)
            save = lambda: checkpoint.save(thinner, saved, rows=False)
            store.commit({id: write for id in step.added}, step.dropped, save)


folder.mkdir()
warm = ss.Thinner(dim, storage="float32", preconditioner="identity", stream_weight=0.0)
warm.push(*draw(0))
random.seed(0)
seen = 0
while kills > 0 or seen <= 100:  # on a slow machine more often, until enough happened
    kills -= 1
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    time.sleep(random.uniform(0.0, 0.25))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    store = DrawStore(folder / "draws", suffix=".npy")
    thinner = agree(store)
    assert thinner.seen >= seen
    seen = thinner.seen
    store.close()
print(json.dumps({"seen": seen}))
"""


@posix
def test_kill_9_at_fifty_random_instants_never_separates_a_draw_and_its_file(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["seen"] > 100  # kills between two writes happen by chance; the test above covers all of them


@posix
def test_a_folder_serves_one_process_at_a_time(tmp_path):
    store = DrawStore(tmp_path)
    other = f"from steinstream.draw_store import DrawStore; DrawStore({str(tmp_path)!r})"
    refused = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
    assert refused.returncode and "Another process uses" in refused.stderr
    store.close()
    assert subprocess.run([sys.executable, "-c", other]).returncode == 0
    with pytest.raises(InputError, match="closed"):
        store.commit({(0, 0): b""}, [], nothing)


def test_a_payload_that_someone_deleted_is_missed(tmp_path):
    store = DrawStore(tmp_path)
    store.commit({(0, 1): b"1", (1, 2): b"2"}, [], nothing)
    store.path((1, 2)).unlink()
    with pytest.raises(CheckpointError, match=r"1 of 2 kept draws have no file.*draw 2 of chain 1"):
        store.reconcile([(0, 1), (1, 2)])
    assert store.ids() == [(0, 1)]


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("notes.txt", "0_1.txt", "0_x.bin"):
        (tmp_path / name).write_text("mine")
    store = DrawStore(tmp_path)
    store.commit({(0, 1): b"1"}, [], nothing)
    assert store.reconcile([]) == ((0, 1),)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".new", "0_1.txt", "0_x.bin", "notes.txt"]


def test_a_payload_that_cannot_be_written_stops_the_commit_before_the_checkpoint(tmp_path):
    def full(path):
        path.write_bytes(b"half")
        raise OSError(28, os.strerror(28))

    store, done = DrawStore(tmp_path), []
    with pytest.raises(OutputError, match="no space left"):
        store.commit({(0, 1): full}, [], lambda: done.append(1))
    assert not done and store.ids() == [] and not list(tmp_path.glob(".new/*"))


@pytest.mark.parametrize("suffix", ["", "npy", ".a/b"])
def test_a_suffix_that_would_not_do_is_refused(tmp_path, suffix):
    with pytest.raises(InputError, match="suffix"):
        DrawStore(tmp_path, suffix=suffix)

"""Whatever hangs on a kept draw, as a file each: there as long as its draw is kept, and no longer.

A thinner says what a step changed (:class:`~steinstream.StepInfo`). :meth:`steinstream.Payloads.commit` carries that out in
an order that a crash cannot spoil:

1. the payloads of added draws are written aside, forced to disk, and renamed, so that each is whole or absent;
2. the thinner's checkpoint is replaced, as wholly: from this instant on the step has happened;
3. the payloads of dropped draws are deleted.

Killed before 2, the old checkpoint holds: new payloads have no draw, and all old ones are there. Killed after it, the
new one holds: all new payloads are there, and some old ones have no draw any more. Either way every kept draw has its
payload, and :meth:`steinstream.Payloads.reconcile` with the checkpoint deletes the payloads that have no draw. A step
that changes nothing needs no commit.

What is forced to disk: with ``sync`` (the default) payloads before the checkpoint and the checkpoint before deletions,
so that the order also holds when the power fails. Deletions are not: one that is lost is made up for by ``reconcile``.
Without ``sync`` nothing is forced, and the order holds for anything that ends the process, a kill -9 too, but not for
the end of the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from weakref import finalize

from steinstream.errors import CheckpointError, InputError
from steinstream.io.atomic import sync_path, write_error

Id = tuple[int, int]
Content = bytes | Callable[[Path], object]
"""What is to be in the file, or a function that writes it to the path it is given."""


class Payloads:
    """A folder with a file for each kept draw, named by its id: ``0_17`` and the suffix for draw 17 of chain 0.

    One process at a time may use a folder. Whoever begins calls :meth:`reconcile` first.

    >>> import tempfile
    >>> payloads = Payloads(tempfile.mkdtemp(), suffix=".txt")
    >>> payloads.commit({(0, 1): b"one", (0, 2): b"two"}, [], checkpoint=lambda: None)
    >>> payloads.commit({(0, 3): b"three"}, [(0, 1)], checkpoint=lambda: None)
    >>> [payloads.path(id).read_text() for id in payloads.ids()]
    ['two', 'three']
    >>> payloads.reconcile([(0, 3)])  # the checkpoint knows only of this one
    ((0, 2),)
    >>> payloads.close()
    """

    def __init__(self, folder: str | PathLike[str], *, suffix: str = ".bin", sync: bool = True) -> None:
        if not re.fullmatch(r"\.[\w.]+", suffix):
            raise InputError(f"A suffix is a dot and some letters, got {suffix!r}.")
        self.folder = Path(folder)
        self.suffix = suffix
        self.sync = sync
        self._name = re.compile(rf"(-?\d+)_(\d+){re.escape(suffix)}")
        self._failed = False
        self._aside = self.folder / ".new"  # whatever is left there by a crash, by a writer's own doings too, can go
        try:
            self._aside.mkdir(parents=True, exist_ok=True)
            handle = _locked(self.folder / ".lock")
        except OSError as error:
            raise write_error(folder, error) from error
        self._lock = finalize(self, os.close, handle)

    def path(self, id: Id) -> Path:
        """Where the payload of this draw is."""
        return self.folder / f"{id[0]}_{id[1]}{self.suffix}"

    def ids(self) -> list[Id]:
        """The draws that have a payload now, in order."""
        names = (self._name.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(name[1]), int(name[2])) for name in names if name)

    def commit(self, new: Mapping[Id, Content], gone: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Write the new payloads, then the checkpoint, then delete those that are gone.

        If this fails, the thinner in memory is ahead of the disk, and nothing more is committed.
        """
        if not self.open:
            raise InputError(
                f"An earlier step could not be written to {self.folder}, or the folder was closed.",
                "Begin again from the checkpoint, which is whole.",
            )
        self._failed = True
        for id, content in new.items():
            self._write(id, content)
        if new and self.sync:
            sync_path(self.folder)
        checkpoint()
        for id in gone:
            self._delete(self.path(id))
        self._failed = False

    def reconcile(self, kept: Iterable[Id]) -> tuple[Id, ...]:
        """Delete what belongs to no kept draw, half-written files too. Returns the draws whose payloads went."""
        wanted, there = set(kept), self.ids()
        missing = sorted(wanted.difference(there))
        if missing:
            chain, draw = missing[0]
            raise CheckpointError(
                f"{len(missing)} of {len(wanted)} kept draws have no payload in {self.folder}, "
                f"the first is draw {draw} of chain {chain}.",
                "Files were deleted or the checkpoint is another run's: put them back, or begin anew elsewhere.",
            )
        orphans = tuple(id for id in there if id not in wanted)
        for id in orphans:
            self._delete(self.path(id))
        for path in self._aside.iterdir():
            self._delete(path)
        return orphans

    @property
    def open(self) -> bool:
        """Whether more can be committed: no commit has failed, and the folder was not closed."""
        return self._lock.alive and not self._failed

    def close(self) -> None:
        """Let others use the folder."""
        self._lock()

    def _write(self, id: Id, content: Content) -> None:
        target = self.path(id)
        temporary = self._aside / target.name
        try:
            if callable(content):
                content(temporary)
            else:
                temporary.write_bytes(content)
            if self.sync:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise write_error(target, error) from error

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(path, error) from error


def _locked(path: Path) -> int:
    """A handle of the lock file, which is held until that is closed or the process ends, however it ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        import fcntl
    except ImportError:  # not POSIX: nobody watches
        return handle
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(
            f"Another process uses {path.parent}.", "Wait until it ends, or choose another folder."
        ) from None
    except OSError:  # a file system without locks
        pass
    return handle

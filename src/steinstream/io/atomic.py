"""A file that is either wholly there or not there at all.

The bytes go to a temporary file beside the target, are forced to disk, and only then take the target's name,
which POSIX does in one step. A crash, a full disk or Ctrl-C at any instant leaves what stood at the target
untouched.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from steinstream.errors import OutputError

_REMEDIES = {
    errno.ENOSPC: "Free some space or choose another folder with -o.",
    errno.EDQUOT: "Free some space or choose another folder with -o.",
    errno.ENOENT: "Make the folder first, or choose another with -o.",
    errno.ENOTDIR: "Make the folder first, or choose another with -o.",
    errno.EACCES: "Choose a folder you may write to with -o.",
    errno.EPERM: "Choose a folder you may write to with -o.",
    errno.EROFS: "Choose a folder you may write to with -o.",
}


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", *, sync: bool = True) -> Iterator[IO[Any]]:
    """Open a file that takes the place of ``path`` when the block ends well, and vanishes otherwise.

    Without ``sync`` nothing is forced to disk: the file survives the end of the process, but not that of the machine.
    """
    # Through a symbolic link the file it points to is replaced, not the link.
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        if target.exists() and not target.is_file():
            # Run as root, os.replace would put a plain file in the place of /dev/null.
            raise OutputError(f"{path} is not a regular file.", "Choose a file name with -o.")
        try:
            with temporary.open(mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        if sync:
            settle(target.parent)
    except OutputError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def replacing_folder(path: str | os.PathLike[str], ours: Callable[[Path], bool]) -> Iterator[Path]:
    """An empty folder that takes the place of ``path`` when the block ends well, and vanishes otherwise.

    An older one goes if it is ``ours``. For an instant it stands aside under another name, since no system call puts a
    folder in the place of a full one.
    """
    target = Path(os.path.realpath(path))
    token = secrets.token_hex(6)
    temporary, aside = (target.with_name(f".{target.name[:100]}.{token}.{kind}") for kind in ("tmp", "old"))
    try:
        if os.path.lexists(target) and not (target.is_dir() and ours(target)):
            raise OutputError(f"{path} is there, and is no store of this kind.", "Choose another name with -o.")
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.rglob("*"):
                settle(file)
            if target.exists():
                target.rename(aside)
            try:
                temporary.rename(target)
            except BaseException:
                if aside.exists():
                    aside.rename(target)
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        settle(target.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except OutputError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error


def make_folder(folder: Path) -> None:
    """A folder for results, there and fit to be written to before anything long begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder} is a file, or lies in one.", "Name a folder with -o.") from None
    except OSError as error:
        raise unwritable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def unwritable(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """What the system said about ``path``, in words a user can act on."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "Choose another place with -o.")
    return OutputError(f"cannot write {path}: {reason[:1].lower()}{reason[1:]}.", remedy)


def settle(place: Path) -> None:
    """Force a file, or the names in a folder, to disk; where folders cannot be synced the system decides when."""
    if os.name != "posix":
        return
    with suppress(OSError):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

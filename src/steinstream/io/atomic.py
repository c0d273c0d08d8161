"""Atomic writing: a file is complete or absent.

The content is written to a temporary file next to the target and synced to the disk. Then the temporary file gets the
name of the target, which POSIX does in one step. A crash, a full disk or Ctrl-C leaves the existing file unchanged.
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

_NO_SPACE = "Free some space on the disk, or choose another folder."
_NO_FOLDER = "Make the folder first, or choose another one."
_NO_ACCESS = "Choose a folder with write permission."
_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.ENOENT: _NO_FOLDER,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: _NO_ACCESS,
}


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", *, sync: bool = True) -> Iterator[IO[Any]]:
    """Open a file that replaces ``path`` when the ``with`` block ends without an error.

    Through a symbolic link, the file it points to is replaced. Without ``sync``, the file survives a crash of the
    process but possibly not of the machine.

    Yields
    ------
    file object
        The temporary file. It is deleted if an exception is raised.

    Raises
    ------
    OutputError
        If the file cannot be written; the existing file is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt", "w") as file:
    ...         _ = file.write("complete or absent")
    ...     (Path(folder) / "a.txt").read_text()
    'complete or absent'
    """
    target = _target(path)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    # A file name may not be valid UTF-8.
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "replace"}
    with _output_errors(path):
        if target.exists() and not target.is_file():
            # As root, os.replace would replace /dev/null by a regular file.
            raise OutputError(f"{path} is not a regular file.", "Choose another file name.")
        try:
            with temporary.open(mode.replace("w", "x"), **text) as file:
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
            sync_path(target.parent)


@contextmanager
def replacing_folder(path: str | os.PathLike[str], replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Create an empty folder that replaces ``path`` when the ``with`` block ends without an error.

    ``replaceable`` returns whether an existing folder may be replaced. It is renamed and then deleted, because no
    system call replaces a folder that is not empty.

    Yields
    ------
    Path
        The temporary folder. It is deleted if an exception is raised.
    """
    target = _target(path)
    token = secrets.token_hex(6)
    temporary, previous = (target.with_name(f".{target.name[:100]}.{token}.{kind}") for kind in ("tmp", "old"))
    with _output_errors(path):
        if os.path.lexists(target) and not (target.is_dir() and replaceable(target)):
            raise foreign_folder(path)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.rglob("*"):
                sync_path(file)
            if target.exists():
                target.rename(previous)
            try:
                temporary.rename(target)
            except BaseException:
                if previous.exists():
                    previous.rename(target)
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_path(target.parent)
        shutil.rmtree(previous, ignore_errors=True)


def foreign_folder(path: str | os.PathLike[str]) -> OutputError:
    """Return the error for a folder that must not be replaced."""
    return OutputError(
        f"{path} exists and is not a store that steinstream wrote, or it was changed later.", "Choose another name."
    )


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path refers to, through symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # realpath returns it if it refers to itself
        raise OutputError(f"{path} is a symbolic link that refers to itself.", "Delete it, or choose another name.")
    return target


def make_folder(folder: Path) -> None:
    """Create a folder for results, or raise an `OutputError` if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{folder}, or a part of this path, is a file.", "Choose the name of a folder.") from None
    except OSError as error:
        raise write_error(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise write_error(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def write_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    """Convert a system error about ``path`` to an `OutputError` with a remedy."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "Choose another path.")
    return OutputError(f"Cannot write {path}: {reason[:1].lower()}{reason[1:]}.", remedy)


def sync_path(path: Path) -> None:
    """Sync a file or a folder to the disk, if the system supports it."""
    if os.name != "posix":
        return
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _output_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise write_error(path, error) from error

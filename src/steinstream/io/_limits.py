"""Limits of what a file may expand to.

Compressed data, fill values and repeated values describe far more numbers than a file has bytes. A file of draws does
not: draws hardly compress. What must be held in memory at a time is limited by a multiple of the size on the disk, so
that a small file needs little memory, and a large file of any layout is read.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from steinstream.errors import InputError

_HELD = 32 << 20  # bytes that any file may expand to
_EXPANSION = 16  # bytes held at a time per byte on the disk
_LENGTH = 1_000_000  # numbers that any file may describe
_DENSITY = 32  # numbers that a file may describe per byte; a chain that accepts 0.5 % of its moves describes about 20
_DEFLATE = 1032  # largest ratio of deflate
_PARAMETER = 64  # bytes for the name of a parameter
_METHODS = {12: "bzip2", 14: "lzma"}


def stored_bytes(path: Path) -> int:
    """Return the size of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.stat().st_size  # of the file to which a link leads
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())


def largest_held(path: Path) -> int:
    """Return the number of bytes that a part of a file may take in memory."""
    return max(_HELD, _EXPANSION * stored_bytes(path))


def require_held(path: Path, what: str, size: int, remedy: str) -> None:
    """Raise an `InputError` if ``size`` bytes, which must be held at a time, are implausible for the size of a file.

    If ``path`` does not exist, the draws are in memory, and nothing is limited.
    """
    if size > _HELD and path.exists() and size > largest_held(path):
        raise InputError(
            f"{path}: {what} takes {size / 1e6:.0f} MB in memory, but the file has {stored_bytes(path) / 1e6:.3g} MB.",
            remedy,
        )


def require_length(path: Path, draws: int, dim: int) -> None:
    """Raise an `InputError` if a file describes more draws or parameters than it can hold."""
    numbers = draws * max(dim, 1)
    if numbers > _LENGTH and path.exists() and numbers > _DENSITY * stored_bytes(path):
        raise InputError(
            f"{path}: {draws} draws of {dim} parameters do not fit into {stored_bytes(path) / 1e6:.3g} MB.",
            "The file is damaged, its draws were never filled in, or almost all are equal. Write the draws that exist "
            "without compression.",
        )
    require_held(path, f"a draw of {dim} parameters", _PARAMETER * dim, "Write the draws without compression.")


def require_distinct(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise an `InputError` if two members of an archive have the same name: programs differ in which one they read."""
    names = archive.namelist()
    if len(set(names)) < len(names):
        name = next(name for at, name in enumerate(names) if name in names[:at])
        raise InputError(f"{path} has two members {name[:100]!r}.", "Write it again.")


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise an `InputError` if a member of a zip file cannot be read in bounded memory.

    The sizes of members are those of the directory of the archive, which may be forged; a member never yields more.
    Only deflate is decompressed in parts: the other methods of `zipfile` expand a whole input buffer at once.
    """
    members = archive.infolist()
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = _METHODS.get(member.compress_type, f"method {member.compress_type}")
            raise InputError(
                f"{path}: {member.filename[:100]!r} is compressed with {method}, expected deflate.",
                "Write it with np.savez or np.savez_compressed.",
            )
        most = member.compress_size * (_DEFLATE if member.compress_type == zipfile.ZIP_DEFLATED else 1)
        if member.file_size > most:
            raise InputError(
                f"{path}: {member.filename[:100]!r} cannot have {member.file_size} bytes in {member.compress_size}.",
                "The file is damaged. Copy or write it again.",
            )
    if sum(member.compress_size for member in members) > stored_bytes(path):
        raise InputError(f"{path} has members that overlap.", "The file is damaged. Copy or write it again.")

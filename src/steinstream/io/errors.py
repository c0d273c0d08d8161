"""Error messages that the file formats share."""

from __future__ import annotations

import csv
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from steinstream.errors import InputError, SteinstreamError

#: Exceptions that the libraries raise for a damaged file.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,  # numpy and pyarrow for an invalid header, UnicodeDecodeError
    RuntimeError,  # zipfile for an encrypted member or an unknown compression
    MemoryError,  # a damaged size field
    ArithmeticError,
    AssertionError,
    AttributeError,  # h5netcdf and zarr for metadata of another type, here and below
    LookupError,
    TypeError,
    SyntaxError,  # numpy parses the header of an array as a Python literal
    SystemError,  # numpy for text with numbers that are not characters
    tokenize.TokenError,
    csv.Error,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


_LONGEST_TEXT = 300  # characters of the text of a library, which may quote a part of the file


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Convert the exceptions that a library raises for a damaged file to an `InputError` that names the file."""
    try:
        yield
    except SteinstreamError:
        raise
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", "Check the path and its permissions.") from error
    except DAMAGE as error:
        text = " ".join(str(error).split()) or type(error).__name__
        text = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
        raise InputError(
            f"{path} cannot be read as {kind}: {text.rstrip('.')}.",
            "The file is damaged, truncated or in another format. Copy or write it again.",
        ) from error


def truncated(path: Path, what: str) -> InputError:
    """Return the error for a file that ends before its header says."""
    return InputError(f"{path} ends in the middle of {what}.", "The file is truncated. Copy or write it again.")


def need(module: str, extra: str) -> Any:
    """Import an optional library, or raise an `InputError` that says how to install it."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise InputError(
            f"{module} cannot be imported: {problem}.", f"Install it: pip install 'steinstream[{extra}]'."
        ) from None

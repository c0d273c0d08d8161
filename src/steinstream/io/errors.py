"""The wording of what can be wrong with a file, shared by the formats."""

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

from steinstream._formatting import listing as listing
from steinstream._formatting import nearest as nearest
from steinstream.errors import InputError, SteinstreamError

#: What the libraries that we read with raise when a file is damaged.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,  # numpy and pyarrow for a header they cannot make sense of, UnicodeDecodeError
    RuntimeError,  # zipfile for an encrypted member or an unknown compression
    MemoryError,  # a damaged size field
    OverflowError,
    SyntaxError,  # numpy reads an array's header as a Python literal, after a look at its tokens
    tokenize.TokenError,
    csv.Error,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a format's library raises on a damaged file into one error that names the file."""
    try:
        yield
    except SteinstreamError:
        raise
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"cannot read {path}: {error.strerror}.", "Check the path and its permissions.") from error
    except DAMAGE as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} cannot be read as {kind}: {said.rstrip('.')}.",
            "It is damaged, cut short or of another format: copy or write it again.",
        ) from error


def truncated(path: Path, what: str) -> InputError:
    """The error for a file that ends before its header says it should."""
    return InputError(f"{path} ends in the middle of {what}.", "It is cut short: copy or write it again.")


def need(module: str, extra: str) -> Any:
    """Import a tool, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise InputError(
            f"{module} cannot be imported: {problem}.", f"Install it: pip install 'steinstream[{extra}]'."
        ) from None

"""One message and exit code 2 if the HDF5 library or Arrow crashes because a file is damaged.

HDF5 does not validate everything that it reads. A damaged file can make it overwrite memory, and SIGSEGV or SIGABRT
then ends the process: while the file is read, later, or at the end of the program. Arrow aborts the process if the
statistics of a column of a parquet file are damaged. Python code cannot run after that, so the handler of these signals
is compiled. It writes the message and exits.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steinstream._formatting import listing

if TYPE_CHECKING:
    import ctypes

_installed: list[Any] = []  # the compiled handler and its message, which must exist until the process ends


@contextmanager
def reported_crashes(words: Sequence[str]) -> Iterator[None]:
    """Run a command so that a crash ends with a message and code 2 if an argument is an HDF5 or parquet file."""
    files = [word for word in (each.rpartition("=")[2] for each in words) if _may_crash(word)]
    if not files or os.name == "nt" or faulthandler.is_enabled():
        yield
        return
    length = _install(
        f"error: {listing(files)} cannot be read: the library that reads the format crashed.\n"
        "       The file is damaged, truncated or in another format. Copy or write it again.\n"
    )
    try:
        yield
    except SystemExit as ended:
        if ended.code == 2:
            length.value = 0  # the error has its message; the library may still crash when it is closed
        raise


def _may_crash(word: str) -> bool:
    with suppress(OSError, ValueError):  # not the name of a file
        path = Path(word)
        if path.is_file():
            from steinstream.io.netcdf import is_hdf5

            with path.open("rb") as file:
                start = file.read(16)
            return is_hdf5(path, start) or start.startswith(b"PAR1")
    return False


def _install(message: str) -> ctypes.c_int64:
    """Install the handler and return the length of its message, which may be changed."""
    import ctypes

    from llvmlite import binding, ir

    text = message.encode("utf-8", "backslashreplace")
    buffer, length = ctypes.create_string_buffer(text), ctypes.c_int64(len(text))
    i32, i64, address = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
    module = ir.Module("crash")
    write = ir.Function(module, ir.FunctionType(i64, [i32, address, i64]), "write")
    leave = ir.Function(module, ir.FunctionType(ir.VoidType(), [i32]), "_exit")
    handler = ir.Function(module, ir.FunctionType(ir.VoidType(), [i32]), "handler")
    builder = ir.IRBuilder(handler.append_basic_block())
    place = builder.inttoptr(i64(ctypes.addressof(length)), i64.as_pointer())
    start = builder.inttoptr(i64(ctypes.addressof(buffer)), address)
    builder.call(write, [i32(2), start, builder.load(place)])
    builder.call(leave, [i32(2)])
    builder.unreachable()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    install = ctypes.CDLL(None).signal
    install.argtypes, install.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV):
        install(number, engine.get_function_address("handler"))
    _installed.extend([engine, buffer, length])
    return length

"""Validation of the chunks of a Zarr store before they are decoded.

Codecs are limited to those whose decoded size is known before they run. The Blosc library reads beyond the end of a
truncated chunk, and other libraries allocate what the chunk states. Codecs that run code are not among them.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from steinstream.errors import InputError
from steinstream.io.errors import need

_COMPRESSORS = ("blosc", "zstd", "gzip", "zlib", "lz4")
#: Codecs whose result is at most some times larger than what they decode.
_OTHERS = frozenset(
    {
        *("bytes", "transpose", "delta", "fixedscaleoffset", "shuffle", "bitround", "quantize", "astype"),
        *("crc32", "crc32c", "adler32", "fletcher32"),
    }
)
_TEXTS = frozenset({"vlen-utf8", "vlen-bytes"})
_ZSTD_FRAME, _ZSTD_SKIPPED, _ZSTD_BLOCK = 0xFD2FB528, range(0x184D2A50, 0x184D2A60), 1 << 17
_STEP = 1 << 20


def compressor_of(name: str, metadata: dict[str, Any]) -> tuple[str, bool]:
    """Return the compressor of an array, empty if it has none, and whether its values are texts of any length."""
    if "codecs" in metadata:
        used = [codec["name"] for codec in metadata["codecs"]]
    else:
        stored = [metadata.get("compressor"), *(metadata.get("filters") or [])]
        used = [codec["id"] for codec in stored if codec is not None]
    is_text = not _TEXTS.isdisjoint(used)
    others = _TEXTS if is_text else _OTHERS  # before a filter the number of texts cannot be checked
    compressors = [codec for codec in used if codec not in others]
    unknown = [codec for codec in compressors if codec not in _COMPRESSORS] or compressors[1:]
    if unknown:
        raise InputError(
            f"The array {name} is encoded with {', '.join(map(repr, used))}, of which {unknown[0]!r} is not read.",
            "Write it with one compressor: Blosc, Zstd or Gzip.",
        )
    return compressors[0] if compressors else "", is_text


def check_texts(compressor: str, data: memoryview) -> None:
    """Raise a `ValueError` if a chunk states more texts than it has bytes for: the library would allocate them all."""
    content = data
    if compressor:
        content = memoryview(need("numcodecs", "zarr").get_codec({"id": compressor}).decode(bytes(data)))
    (count,) = struct.unpack_from("<I", content)
    if 4 * (count + 1) > content.nbytes:  # each text has its length before it
        raise ValueError(f"a chunk of {content.nbytes} bytes states {count} texts")


def decoded_size(compressor: str, data: memoryview, limit: int) -> int:
    """Return the decoded size of a chunk, whose compressor may be an empty string.

    Returns
    -------
    int
        An upper bound in bytes, which is exact above ``limit``, where counting ends.

    Raises
    ------
    ValueError
        If the chunk is truncated or damaged.
    """
    if compressor == "blosc":
        if len(data) < 16:
            raise ValueError("a Blosc chunk is truncated")
        size, _, stored = struct.unpack_from("<III", data, 4)
        if stored > len(data):
            raise ValueError(f"a Blosc chunk has {len(data)} of {stored} bytes")
        return int(size)
    if compressor == "lz4":
        return int(struct.unpack_from("<I", data)[0])
    if compressor == "zstd":
        return _size_of_zstd(data)
    if compressor in ("gzip", "zlib") and 1032 * len(data) > limit:
        return _size_of_deflate(data, limit)
    return len(data)


def _size_of_deflate(data: memoryview, limit: int) -> int:
    """Count the bytes of gzip or zlib data, in parts; the members of gzip follow each other."""
    size, rest = 0, bytes(data)
    while rest and size <= limit:
        part = zlib.decompressobj(47)
        while not part.eof and size <= limit:
            found = len(part.decompress(rest, _STEP))
            if not found and not part.unconsumed_tail and not part.eof:
                return size  # truncated, which the library reports
            size, rest = size + found, part.unconsumed_tail
        rest = part.unused_data.lstrip(b"\0")
    return size


def _size_of_zstd(data: memoryview) -> int:
    """Return the sum of the sizes that the frames state, or else of the largest sizes of their blocks (RFC 8878)."""
    size = at = 0
    while at < len(data):
        (magic,) = struct.unpack_from("<I", data, at)
        if magic in _ZSTD_SKIPPED:
            at += 8 + struct.unpack_from("<I", data, at + 4)[0]
            continue
        if magic != _ZSTD_FRAME:
            raise ValueError("a Zstd chunk is damaged")
        described, at = data[at + 4], at + 5
        single = described >> 5 & 1
        at += (1 - single) + (0, 1, 2, 4)[described & 3]
        width = (single, 2, 4, 8)[described >> 6]
        stated = int.from_bytes(data[at : at + width], "little") + 256 * (width == 2)
        at, blocks, last = at + width, 0, False
        while not last:
            block = int.from_bytes(data[at : at + 3], "little")
            if at + 3 > len(data):
                raise ValueError("a Zstd chunk is truncated")
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            blocks += _ZSTD_BLOCK if kind == 2 else length
            at += 3 + (1 if kind == 1 else length)
        size += max(stated, blocks) if width else blocks
        at += 4 * (described >> 2 & 1)
    return size

"""Readers and writers: one format a file, one registry.

Every file of draws is a `Chain`, a stream of `Block`s in bounded memory, whatever its length; every output is
written whole or not at all. Nothing in a file is ever executed.
"""

from steinstream.door import Block
from steinstream.io.atomic import replacing
from steinstream.io.chain import Chain
from steinstream.io.registry import FORMATS, check_output, open_chain, read_kept, write_kept

__all__ = ["FORMATS", "Block", "Chain", "check_output", "open_chain", "read_kept", "replacing", "write_kept"]

"""Readers and writers: one format a file, one registry.

Every file of draws is a `Chain`, a stream of blocks (`Block`) in bounded memory, whatever its length; every output is
written whole or not at all. Nothing in a file is ever executed.
"""

from steinstream.io.atomic import replacing
from steinstream.io.base import Chain
from steinstream.io.datatree import chain_of_datatree, kept_of_datatree, to_datatree
from steinstream.io.multi_file import open_chains
from steinstream.io.registry import FORMATS, check_output, open_chain, read_kept, write_kept
from steinstream.validation import Block

__all__ = [
    "FORMATS",
    "Block",
    "Chain",
    "chain_of_datatree",
    "check_output",
    "kept_of_datatree",
    "open_chain",
    "open_chains",
    "read_kept",
    "replacing",
    "to_datatree",
    "write_kept",
]

"""Readers of chains, and readers and writers of kept sets: one file format per module, and one registry.

Every file of draws is a `Chain`, which iterates over blocks (`Block`) with bounded memory. Every output file is
complete or absent. Nothing in a file is executed.
"""

from steinstream.io.atomic import replacing as replacing
from steinstream.io.base import Chain
from steinstream.io.datatree import chain_of_datatree, kept_of_datatree, to_datatree
from steinstream.io.multi_file import open_chains
from steinstream.io.registry import FORMATS, open_chain, read_kept, write_kept
from steinstream.io.registry import check_output as check_output
from steinstream.validation import Block

__all__ = [
    "FORMATS",
    "Block",
    "Chain",
    "chain_of_datatree",
    "kept_of_datatree",
    "open_chain",
    "open_chains",
    "read_kept",
    "to_datatree",
    "write_kept",
]

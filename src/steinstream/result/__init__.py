"""The result of thinning: kept draws with their scores, origin, KSD and the settings that reproduce them."""

from steinstream.result.history import History
from steinstream.result.kept import Kept
from steinstream.result.summarised_stream import SummarisedStream
from steinstream.result.variables import MODEL_GROUPS, Variable

__all__ = ["MODEL_GROUPS", "History", "Kept", "SummarisedStream", "Variable"]

"""Array types used throughout the package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Float32Array: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]

#: Identifier of a draw: chain and index within the chain.
Id: TypeAlias = tuple[int, int]
Ids: TypeAlias = tuple[Id, ...]

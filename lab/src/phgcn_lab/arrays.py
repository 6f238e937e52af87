r"""The types of numpy arrays in this package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyInts = NDArray[np.integer[Any]]  # Integers of any width, signed or not: as a file holds them

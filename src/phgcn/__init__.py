"""phgcn: global attention for graphs, at linear cost."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import data, functional, kernels, lattice, nn, train
    from .accuracy import attention_error
    from .estimators import NodeClassifier, NodeRegressor
    from .estimators.tables import AttentionClassifier, AttentionRegressor
    from .functional import (
        explain_method,
        global_attention,
        permutohedral_filter,
        structural_attention,
    )

__version__ = "0.3.0"

# Intel's MKL, which multiplies matrices for torch, sums in an order that depends on the number of
# threads, unless this is set before its first product: the same seed shall give the same bits on
# any number of cores. Gradients of weights cost up to a third more.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__all__ = [
    "AttentionClassifier",
    "AttentionRegressor",
    "NodeClassifier",
    "NodeRegressor",
    "attention_error",
    "data",
    "explain_method",
    "functional",
    "global_attention",
    "kernels",
    "lattice",
    "nn",
    "permutohedral_filter",
    "structural_attention",
    "train",
]

# Loaded on first use: torch, Numba and PyG take seconds to import, and `phgcn --help` needs none of
# them.
_MODULES = ("data", "functional", "kernels", "lattice", "nn", "train")
_HOMES = {
    "attention_error": "accuracy",
    "NodeClassifier": "estimators",
    "NodeRegressor": "estimators",
    "AttentionClassifier": "estimators.tables",
    "AttentionRegressor": "estimators.tables",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        found: Any = importlib.import_module(f".{name}", __name__)
    else:
        found = getattr(
            importlib.import_module(f".{_HOMES.get(name, 'functional')}", __name__), name
        )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

r"""Packages that only embeddings need."""

from __future__ import annotations

from importlib.util import find_spec


def needed(module: str, package: str, method: str) -> None:
    """Says in one line what is missing, and how to get it."""
    if find_spec(module) is None:
        raise ValueError(f"the embedding {method} needs the package {package}: pip install 'phgcn[geom]'")

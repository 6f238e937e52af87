r"""Packages that only the experiments need."""

from __future__ import annotations

from importlib.util import find_spec


def needed(module: str, package: str, what: str) -> None:
    if find_spec(module) is None:
        raise ValueError(f"{what} needs the package {package}: pip install {package}")

"""Packages that only some experiments need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(what: str, package: str, module: str = "", install: str = "") -> Any:
    """Imports a package by its name, or that of its module; the error says how to install it."""
    try:
        return import_module(module or package)
    except ImportError:
        missing = f"{what} needs the package {package}"
        raise ValueError(f"{missing}: pip install {install or package}") from None

"""The debug log: the method and backend of each call, and the reason.

``PHGCN_LOG=debug`` prints it. A program that sets up :mod:`logging` itself reads the logger
``phgcn``."""

from __future__ import annotations

import logging
import os
import warnings

import torch

LOGGER = logging.getLogger("phgcn")
LEVELS = ("debug", "info", "warning", "error")


def print_log(level: str) -> None:
    """Prints messages of this level or above on standard error; an unknown level is a warning."""
    if level.lower() not in LEVELS:
        warnings.warn(f"PHGCN_LOG is {level!r}; allowed: {', '.join(LEVELS)}", stacklevel=2)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())


def is_logged() -> bool:
    """Returns whether debug messages are read; never in a compiled graph."""
    return not torch.compiler.is_compiling() and LOGGER.isEnabledFor(logging.DEBUG)


if "PHGCN_LOG" in os.environ:
    print_log(os.environ["PHGCN_LOG"])

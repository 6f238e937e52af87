r"""The command line: parses, calls, prints.  Nothing heavy is imported until a command runs."""

from .app import main

__all__ = ["main"]

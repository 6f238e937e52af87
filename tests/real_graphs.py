"""Marks of tests that need a real graph, which they find in the folder that PHGCN_DATA names."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("PHGCN_DATA", "/nowhere"))


def needs(*names):
    """Skips a test, with the reason, where one of the graphs is missing."""
    missing = [f"{name}.npz" for name in names if not (DATA / f"{name}.npz").is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"PHGCN_DATA holds no {', '.join(missing)}")

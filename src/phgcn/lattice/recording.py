r"""Lattices are not recorded as CUDA graphs; the Triton backend still asks."""


def rehearsed() -> bool:
    """Whether launches are those of a recording.  The module goes together with its import in ``triton/backend.py``."""
    return False

r"""Chooses the backend of a call."""

from __future__ import annotations

import os

import torch


def choose_backend(backend: str, device: torch.device) -> str:
    """Returns the backend asked for, or for ``"auto"`` the fastest on the device."""
    if backend == "auto":
        return {"cpu": "numba", "cuda": "triton"}.get(device.type, "reference")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f'backend is "numba", but positions are on {device}; allowed: "auto", "reference"')
    if backend == "triton" and device.type != "cuda" and not _triton_is_interpreted():
        raise ValueError(f'backend is "triton", but positions are on {device}; allowed: "auto", "reference"')
    return backend


def _triton_is_interpreted() -> bool:
    """Tells whether Triton's kernels run in its interpreter, which takes tensors on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")

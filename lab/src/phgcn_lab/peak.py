r"""The most memory that a call holds: of this process, or what torch has allocated on a GPU."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch


def begin_peak(device: str) -> int:
    """Makes the peak start anew; returns the bytes that are in use."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    # of glibc: what was freed is else still in use
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        problem = f"the peak of memory cannot be measured here ({error})"
        raise ValueError(f"{problem}; allowed: Linux, with /proc") from None
    return _status("VmRSS")


def peak_bytes(device: str) -> int:
    on_gpu = torch.device(device).type == "cuda"
    return torch.cuda.max_memory_allocated(device) if on_gpu else _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))

"""Triton itself, whether it interprets, and sizes of blocks. Only the backend ``"triton"`` imports
this file, as Triton comes with torch for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        'backend is "triton", but Triton cannot be imported; install it with "pip install triton", '
        'or use "reference"'
    ) from error

if not hasattr(triton, "knobs"):
    raise ImportError(
        f'backend is "triton", but Triton is {triton.__version__}; allowed: 3.4 or later, which '
        'comes with torch 2.8, or the backend "reference"'
    )

# True where kernels run in Triton's interpreter, on CPU tensors (``TRITON_INTERPRET=1`` before the
# first import): each operation is then a call of NumPy's. For tests on machines without a GPU.
INTERPRETED: bool = triton.knobs.runtime.interpret


def kernel(*, do_not_specialize: Sequence[str] = ()) -> Any:
    """Decorates a function that the host launches. Name in ``do_not_specialize`` the sizes that
    change from call to call: Triton compiles again for a size of 1 and for a multiple of 16."""
    return triton.jit(do_not_specialize=do_not_specialize)


def cdiv(count: int, size: int) -> int:
    return -(-count // size)


def power_of_2(count: int) -> int:
    """Returns the next power of two."""
    return 1 << max(0, count - 1).bit_length()


def block_size(size: int, count: int) -> int:
    """Returns the number of items per program: all in the slow interpreter."""
    return min(power_of_2(count), 1 << 12) if INTERPRETED else size


def search_steps(count: int) -> int:
    """Returns the number of halvings of a search among ``count`` sorted keys, the end included."""
    return max(1, count.bit_length())


def device_of(tensor: Tensor) -> torch.cuda.device_of:
    """Returns a context in which kernels run on the tensor's GPU, if it has one."""
    return torch.cuda.device_of(tensor)


def capturing(tensor: Tensor) -> bool:
    """Whether a CUDA graph is captured: no host reads allowed."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


__all__ = ["tl", "triton"]  # what other modules take from here besides what is defined here

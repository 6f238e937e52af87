r"""What all Triton kernels share: Triton itself, whether it interprets, and sizes of blocks.

Imported only where the backend ``"triton"`` is used: Triton comes with torch for CUDA, and is not needed without.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        'backend is "triton", but Triton cannot be imported; install it with "pip install triton", or use "reference"'
    ) from error

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether kernels run in Triton's interpreter, on CPU tensors (``TRITON_INTERPRET=1`` before the first import): each operation
is then a call of NumPy's.  For tests on machines without a GPU."""


def cdiv(count: int, size: int) -> int:
    """How many blocks of a size cover a count."""
    return -(-count // size)


def power_of_2(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, count - 1).bit_length()


def device_of(tensor: Tensor) -> torch.cuda.device_of:
    """A context in which kernels are launched on the GPU that holds a tensor; on the CPU it does nothing."""
    return torch.cuda.device_of(tensor)


def capturing(tensor: Tensor) -> bool:
    """Whether launches are being recorded into a CUDA graph: then the host cannot wait for an answer of the device."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _index_by_item() -> None:
    """Makes a scalar of a kernel usable in ``range`` in the interpreter: Triton 3.6 asks NumPy for ``int(array)``, which
    NumPy 2.4 refuses for arrays of one element."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_and_index(tensor, scope) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_index


if INTERPRETED:
    _index_by_item()

__all__ = ["INTERPRETED", "capturing", "cdiv", "device_of", "power_of_2", "tl", "triton"]

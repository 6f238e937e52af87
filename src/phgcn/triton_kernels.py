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


def _round_and_multiply_bfloat16() -> None:
    """Makes bfloat16 right in the interpreter, which keeps these numbers as their bits: Triton 3.6 cuts float32 numbers off
    where a GPU rounds them, and multiplies matrices of bits."""
    import numpy as np
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, multiply = builder.cast_impl, builder.create_dot

    def rounded(self, source, kind):
        if source.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        bits = source.data.view(np.uint32)
        return handle(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), tl.bfloat16)

    def product(self, a, b, d, *options):
        if a.dtype.scalar == tl.bfloat16:
            a, b = (handle((t.data.astype(np.uint32) << 16).view(np.float32), tl.float32) for t in (a, b))
        return multiply(self, a, b, d, *options)

    builder.cast_impl, builder.create_dot = rounded, product


if INTERPRETED:
    _index_by_item()
    _round_and_multiply_bfloat16()

__all__ = ["INTERPRETED", "capturing", "cdiv", "device_of", "power_of_2", "tl", "triton"]

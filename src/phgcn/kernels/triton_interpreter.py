r"""Test support: mends Triton's interpreter, which tests run kernels in where there is no GPU.

Nothing here is used on a GPU.  The patches reach into Triton's private names and are made for Triton 3.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def patch_interpreter() -> None:
    """Applies all patches."""
    _patch_language_once()
    _index_by_item()
    _round_and_multiply_bfloat16()


def _patch_language_once() -> None:
    """Makes calls of device functions faster: Triton 3.6 replaces its whole language for each of them, though the launch of the
    kernel has done so."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tl.core.is_builtin(tl.load) or tl.core.is_builtin(tl.core.load):
            interpreter._patch_lang(self.fn)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter.InterpretedFunction.__call__ = call


def _index_by_item() -> None:
    """Makes a scalar of a kernel usable in ``range``: Triton 3.6 asks NumPy for ``int(array)``, which NumPy 2.4 refuses for
    arrays of one element."""
    patch = interpreter._patch_lang_tensor

    def patch_and_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_index


def _round_and_multiply_bfloat16() -> None:
    """Makes bfloat16, which the interpreter keeps as bits, right: Triton 3.6 truncates float32 numbers where a GPU rounds them,
    and multiplies matrices of bits."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, multiply = builder.cast_impl, builder.create_dot

    def rounded(self: Any, source: Any, kind: Any) -> Any:
        if source.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        bits = source.data.view(np.uint32)
        return handle(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), tl.bfloat16)

    def product(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:
            a, b = (handle((t.data.astype(np.uint32) << 16).view(np.float32), tl.float32) for t in (a, b))
        return multiply(self, a, b, d, *options)

    builder.cast_impl, builder.create_dot = rounded, product

"""Patches Triton's interpreter, in which tests run kernels where there is no GPU.

The patches reach into Triton's private names and are made for Triton 3.6.  To import this module
applies them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter


def patch_interpreter() -> None:
    """Applies all patches."""
    _patch_language_once()
    _index_by_item()
    _round_and_multiply_bfloat16()
    if triton.__version__.startswith("3.6."):  # for speed alone: other versions do without
        _share_shapes()
        _look_up_numpy_types()
        _leave_equal_types_alone()


def _patch_language_once() -> None:
    """Makes calls of device functions faster: Triton 3.6 replaces its whole language for each of
    them, though the launch of the kernel has done so."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tl.core.is_builtin(tl.load) or tl.core.is_builtin(tl.core.load):
            interpreter._patch_lang(self.fn)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter.InterpretedFunction.__call__ = call


def _index_by_item() -> None:
    """Makes a scalar of a kernel usable in ``range``: Triton 3.6 asks NumPy for ``int(array)``,
    which NumPy 2.4 refuses for arrays of one element."""
    patch = interpreter._patch_lang_tensor

    def patch_and_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_index


def _round_and_multiply_bfloat16() -> None:
    """Makes bfloat16, which the interpreter keeps as bits, right: Triton 3.6 truncates float32
    numbers where a GPU rounds them, and multiplies matrices of bits."""
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, multiply = builder.cast_impl, builder.create_dot

    def rounded(self: Any, source: Any, kind: Any) -> Any:
        if source.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        bits = source.data.view(np.uint32)
        return handle(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), tl.bfloat16)

    def product(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:
            a, b = (
                handle((t.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
                for t in (a, b)
            )
        return multiply(self, a, b, d, *options)

    builder.cast_impl, builder.create_dot = rounded, product


def _share_shapes() -> None:
    """Lets types and tensors of equal shape share it, and compares shapes as plain numbers: most of
    the interpreter's time goes into making shapes."""
    core = tl.core
    init_type = core.block_type.__init__
    of_scalars = core.tuple([]), core.constexpr(1)

    @cache
    def share(sizes: tuple[int, ...]) -> tuple[Any, ...]:
        """Returns shape, elements and the text of a type, then shape and elements of a tensor."""
        made = core.block_type.__new__(core.block_type)
        init_type(made, tl.int32, list(sizes))
        of_tensors = (
            core.tuple([core.constexpr(size) for size in sizes]),
            core.constexpr(made.numel),
        )
        return made.shape, made.numel, str(made.shape), *of_tensors

    def make_type(self: Any, element_ty: Any, shape: Any) -> None:
        self.element_ty = element_ty
        self.shape, self.numel, text, *_ = share(_sizes(shape))
        self.name = f"<{text}, {element_ty}>"

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = share(_sizes(type.shape))[3:] if type.is_block() else of_scalars

    def is_equal(self: Any, other: Any) -> Any:
        return core.constexpr(
            isinstance(other, (core.tuple, tuple, list)) and _sizes(self) == _sizes(other)
        )

    core.block_type.__init__, core.tensor.__init__, core.tuple.__eq__ = (
        make_type,
        make_tensor,
        is_equal,
    )


def _sizes(shape: Iterable[Any]) -> tuple[int, ...]:
    """Returns a shape as plain numbers."""
    return tuple([getattr(size, "value", size) for size in shape])


def _look_up_numpy_types() -> None:
    """Looks NumPy's type for one of Triton's up by its name: Triton 3.6 makes a dictionary of all
    of them for each look.
    """
    find, kept = interpreter._get_np_dtype, {}

    def look_up(kind: Any) -> Any:
        name = kind.scalar.name
        if name not in kept:
            kept[name] = find(kind)
        return kept[name]

    interpreter._get_np_dtype = look_up


def _leave_equal_types_alone() -> None:
    """Returns operands whose shapes or types are equal already at once, as most are."""
    semantic = interpreter.TritonSemantic
    broadcast, cast = semantic.broadcast_impl_value, semantic.cast

    def broadcast_others(self: Any, lhs: Any, rhs: Any) -> Any:
        same = lhs.shape is rhs.shape  # see _share_shapes
        return (lhs, rhs) if same else broadcast(self, lhs, rhs)

    def cast_others(self: Any, input: Any, dst_ty: Any, *rounding: Any) -> Any:
        return input if input.dtype is dst_ty.scalar else cast(self, input, dst_ty, *rounding)

    semantic.broadcast_impl_value, semantic.cast = broadcast_others, cast_others


patch_interpreter()

r"""What all Triton kernels share: Triton itself, whether it interprets, and sizes of blocks.

Imported only where the backend ``"triton"`` is used: Triton comes with torch for CUDA, and is not needed without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def kernel(*, do_not_specialize: tuple[str, ...] | list[str] = ()) -> Callable[[Callable], Any]:
    """Makes a function a kernel that the host launches; as ``triton.jit``, with less work for the host (:class:`Kernel`)."""

    def make(function: Callable) -> Any:
        made = triton.jit(function, do_not_specialize=do_not_specialize)
        return Kernel(made) if DIRECT else made

    return make


DIRECT = not INTERPRETED and triton.__version__.startswith("3.6.")
"""Whether compiled kernels are found and launched by :class:`Kernel`, as Triton 3.6 does it: other versions may differ."""


class Kernel:
    """A kernel that is launched as Triton's are, ``kernel[grid](*tensors and numbers, NAME=constant)``.

    On small clouds the host takes longer to launch kernels than the GPU to run them, and most of that time is Triton's: it
    looks at the environment, at hooks and at globals, and asks the driver about every pointer.  Here the compiled kernel is
    found by what Triton compiles a kernel anew for: constants, types, whether a tensor starts at a multiple of 16 bytes,
    and whether a number is 1, a multiple of 16 or long; or by the last two only for one that is not specialised.

    Args:
        function: What ``triton.jit`` made; its constants come last and are given by name.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.specialised = [not parameter.do_not_specialize for parameter in function.params if not parameter.is_constexpr]
        self.constants = (None,) * (len(function.params) - len(self.specialised))
        self.places: dict[tuple, tuple[list[int], ...]] = {}
        self.found: dict[tuple, tuple] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **named: self._launch(grid, given, named)

    def _launch(self, grid: tuple[int, ...], given: tuple, named: dict[str, Any]) -> None:
        active = triton.runtime.driver.active
        device = active.get_current_device()
        types = tuple(map(type, given))
        tensors, numbers, specialised = self.places.get(types) or self._places(types)
        passed, kinds, unaligned, longest = list(given), [], 0, 0
        for place in tensors:
            tensor = given[place]
            kinds.append(tensor.dtype)
            passed[place] = pointer = tensor.data_ptr()
            unaligned |= pointer
        for place in numbers:
            longest |= given[place] ^ (given[place] >> 63)  # a negative number is as long as its complement
        key = (device, types, *kinds, *named, *named.values(), *[_kind(given[place]) for place in specialised])
        if unaligned & 15 or longest >> 31:
            key += tuple(passed[place] & 15 == 0 for place in tensors) + tuple(_long(given[place]) for place in numbers)
        compiled = self.found.get(key)
        hooks = triton.knobs.runtime
        if compiled is None or hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
            compiled = self.function[grid](*given, **named)
            run = None if compiled is None else compiled.run  # a hook may have kept it from being compiled
            if run is not None and run.global_scratch_size == 0 and run.profile_scratch_size == 0:
                options = run.launch_cooperative_grid, run.launch_pdl, None, None, compiled.packed_metadata, None, None, None
                self.found[key] = run.launch, compiled.function, options
            return
        launch, function, options = compiled
        x, y, z = grid if len(grid) == 3 else (*grid, 1, 1)[:3]
        launch(x, y, z, active.get_current_stream(device), function, *options, *passed, *self.constants)

    def _places(self, types: tuple) -> tuple[list[int], ...]:
        """Which arguments are tensors, which are integers, and which of these are specialised."""
        if len(types) != len(self.specialised):
            raise TypeError(f"{len(types)} arguments are given; allowed: {len(self.specialised)}, as the kernel has")
        tensors = [place for place, kind in enumerate(types) if issubclass(kind, Tensor)]
        numbers = [place for place, kind in enumerate(types) if issubclass(kind, int)]
        found = tensors, numbers, [place for place in numbers if self.specialised[place]]
        self.places[types] = found
        return found


def _kind(number: int) -> int:
    """What Triton tells apart of a number that is specialised."""
    return 1 if number == 1 else 16 if number & 15 == 0 else 0


def _long(number: int) -> bool:
    """Whether a number needs more than 32 bits."""
    return not -(2**31) <= number < 2**31


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

__all__ = ["INTERPRETED", "capturing", "cdiv", "device_of", "kernel", "power_of_2", "tl", "triton"]

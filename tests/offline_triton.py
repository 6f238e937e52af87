"""Compiles Triton kernels for an H200 on a machine that has none: every launch compiles its kernel
and runs nothing.
"""

from contextlib import contextmanager

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

SHARED = 227 * 1024
"""The shared memory that a program can have on an H200."""


class _NoGpu:
    """As much of a driver as compiling asks for."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


@contextmanager
def compiled_only():
    """Within, launches compile; yields the list of what was compiled, by name.  Not for the
    interpreter.
    """
    assert not triton.knobs.runtime.interpret
    run, found = JITFunction.run, []

    def compile_only(self, *args, grid, warmup, **kwargs):
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        assert kernel.metadata.shared <= SHARED, (
            f"{self.__name__} needs {kernel.metadata.shared} bytes of shared memory"
        )
        found.append((self.__name__, kernel))

    before, driver._active = driver._active, _NoGpu()
    JITFunction.run = compile_only
    try:
        yield found
    finally:
        JITFunction.run = run
        driver._active = before

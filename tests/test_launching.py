"""Launching kernels: a compiled one is found again by what Triton compiles anew for."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

pytest.importorskip("triton")
from phgcn.kernels import triton as triton_kernels
from phgcn.kernels.triton import Kernel, triton


class Function:
    """What ``triton.jit`` makes of ``def f(tensor, size, count, SIZE)``, where ``count`` is not specialised."""

    params: ClassVar = [
        SimpleNamespace(do_not_specialize=name == "count", is_constexpr=name == "SIZE")
        for name in ("t", "size", "count", "SIZE")
    ]

    def __init__(self, scratch=0):
        self.asked, self.launched = [], []
        run = SimpleNamespace(
            global_scratch_size=scratch, profile_scratch_size=0, launch_cooperative_grid=False, launch_pdl=False,
            launch=lambda *given: self.launched.append(given),
        )  # fmt: skip
        self.compiled = SimpleNamespace(run=run, function="function", packed_metadata="metadata")

    def __getitem__(self, grid):
        return lambda *given, **named: (self.asked.append((grid, given, named)), self.compiled)[1]


@pytest.fixture
def device(monkeypatch):
    active = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda device: "stream")
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    return active


def test_a_compiled_kernel_is_launched_with_pointers(device):
    function, tensor = Function(), torch.zeros(64)
    kernel = Kernel(function)
    kernel[(5, 2)](tensor, 7, 9, SIZE=4)
    kernel[(6,)](tensor[16:], 5, 100, SIZE=4)
    assert function.asked == [((5, 2), (tensor, 7, 9), {"SIZE": 4})]
    (given,) = function.launched
    assert given[:5] == (6, 1, 1, "stream", "function")
    assert given[-4:] == (tensor[16:].data_ptr(), 5, 100, None)


@pytest.mark.parametrize(
    "tensor, size, count, constant",
    [
        (torch.zeros(64, dtype=torch.float64), 7, 9, 4),
        (torch.zeros(64)[1:], 7, 9, 4),
        (None, 7, 9, 4),
        (torch.zeros(64), 1, 9, 4),
        (torch.zeros(64), 32, 9, 4),
        (torch.zeros(64), 2**31, 9, 4),
        (torch.zeros(64), 7, 2**31, 4),
        (torch.zeros(64), 7.0, 9, 4),
        (torch.zeros(64), 7, 9, 8),
    ],
)
def test_another_kind_of_argument_is_compiled(device, tensor, size, count, constant):
    function = Function()
    kernel = Kernel(function)
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    kernel[(1,)](tensor, size, count, SIZE=constant)
    assert len(function.asked) == 2
    assert not function.launched


@pytest.mark.parametrize("count", [1, 16, 8])
def test_numbers_that_are_not_specialised_are_not_told_apart(device, count):
    function = Function()
    kernel = Kernel(function)
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    kernel[(1,)](torch.zeros(64), 7, count, SIZE=4)
    assert len(function.asked) == 1


def test_another_device_is_compiled_for(device):
    function = Function()
    kernel = Kernel(function)
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    device.get_current_device = lambda: 1
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    assert len(function.asked) == 2


def test_triton_launches_where_it_must(device, monkeypatch):
    """Where a kernel needs memory of Triton's, or hooks are called."""
    function = Function(scratch=8)
    kernel = Kernel(function)
    for _ in range(2):
        kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    assert len(function.asked) == 2
    function = Function()
    kernel = Kernel(function)
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    kernel[(1,)](torch.zeros(64), 7, 9, SIZE=4)
    assert len(function.asked) == 2
    assert not function.launched


def test_what_triton_would_compile_anew_is_what_is_told_apart():
    """The words of Triton that this follows: other versions are launched as Triton launches them."""
    if triton_kernels.DIRECT or triton.__version__.startswith("3.6."):
        made = triton.runtime.jit.native_specialize_impl
        from triton.backends.compiler import BaseBackend

        def kind(value, specialise=True):
            return made(BaseBackend, value, False, specialise, True)

        assert kind(7) == kind(9) != kind(1) != kind(16)
        assert kind(16) == kind(32) == kind(0)
        assert kind(7) != kind(2**31)
        assert kind(1, False) == kind(16, False) == kind(7, False)
        tensor = torch.zeros(64)
        assert kind(tensor) == kind(tensor[4:]) != kind(tensor[1:])

"""The backends: kernels that run a call, their devices, and the types they take. Each backend has a
package of its name in the rooms ``exact``, ``lattice`` and ``structural``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

# the name of a backend; ``"auto"``: the fastest that can run on the device
BackendName = Literal["auto", "reference", "numba", "triton"]

HALF_TYPES = (torch.float16, torch.bfloat16)

DEVICES = ("cpu", "cuda")  # the types of device for which the custom ops have kernels


@dataclass(frozen=True)
class Backend:
    """A backend.

    Args:
        name (str): The name, in arguments and as packages.
        device_type (str, optional): The type of device that its kernels need. (default:
            :obj:`None`, any)
        is_interpreted (callable, optional): Returns whether its kernels run anywhere, slowly, for
            tests. (default: never)
        takes_half_types (bool, optional): Whether its kernels take half values beside float32
            positions. (default: :obj:`False`)
        keeps_lattice (bool, optional): Whether the backward pass reuses the forward pass's lattice.
            (default: :obj:`False`)
        shares_lattice (bool, optional): Whether several processes can share its lattice; else each
            gathers all points. (default: :obj:`True`)
    """

    name: str
    device_type: str | None = None
    is_interpreted: Callable[[], bool] = lambda: False
    takes_half_types: bool = False
    keeps_lattice: bool = False
    shares_lattice: bool = True

    def can_run(self, device: torch.device) -> bool:
        return self.device_type in (None, device.type) or self.is_interpreted()

    def why_not(self, device: torch.device) -> str:
        """Returns why the kernels do not run on a device."""
        able = [b.name for b in BACKENDS if b.device_type is None or b.device_type == device.type]
        allowed = ", ".join(f'"{name}"' for name in ("auto", *able))
        return f'backend is "{self.name}", but positions are on {device}; allowed: {allowed}'

    def widen(self, tensor: Tensor) -> Tensor:
        """Returns values of half types as float32 if the kernels do not take them."""
        return (
            tensor.float() if tensor.dtype in HALF_TYPES and not self.takes_half_types else tensor
        )

    def load(self, room: str, file: str = "") -> Any:
        """Imports the backend's package in a room, or a file of it."""
        name = f"{__package__}.{room}.{self.name}"
        return importlib.import_module(f"{name}.{file}" if file else name)


def _triton_is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


# all backends, the fastest first
BACKENDS = (
    Backend("numba", device_type="cpu", keeps_lattice=True),
    Backend(
        "triton",
        device_type="cuda",
        is_interpreted=_triton_is_interpreted,
        takes_half_types=True,
        keeps_lattice=True,
    ),
    Backend("reference", shares_lattice=False),
)

BY_NAME = {backend.name: backend for backend in BACKENDS}
NAMES = ("auto", *BY_NAME)


def find_backend(name: str) -> Backend:
    """Returns the backend of a name, other than ``"auto"``."""
    return BY_NAME[name]


def choose_backend(name: str, device: torch.device) -> Backend:
    """Returns the backend of a name, or for ``"auto"`` the fastest for the device."""
    if name == "auto":
        made_for = [b for b in BACKENDS if b.device_type in (None, device.type)]
        return made_for[0]
    backend = BY_NAME[name]
    if not backend.can_run(device):
        raise ValueError(backend.why_not(device))
    return backend

"""Torch devices: their existence and names."""

from __future__ import annotations

import torch


def check_device(device: str) -> None:
    """Refuses a device that torch does not find here."""
    try:
        torch.zeros(1, device=device).item()  # on "meta" there are tensors without numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device is {device!r}; allowed: cpu, or a device that torch finds here ({reason})"
        ) from None


def device_name(device: str) -> str:
    """Returns the GPU's name for a CUDA device, else the device as it is."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device

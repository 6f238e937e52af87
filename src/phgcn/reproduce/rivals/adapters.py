r"""All rivals, each with the settings that it is swept over, the cheap ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor

from ...functional import global_attention
from .hashed import hashed
from .low_rank import nystroem, random_features
from .packages import Sampled, densecrf, fourier, keops, tree
from .sliced import sliced

Setting = dict[str, Any]


@dataclass(frozen=True)
class Rival:
    """A way to compute attention.

    Args:
        name (str): As it is shown.
        attend (callable): Takes points, values and a setting, and gives the output; if ``sampled``, takes the numbers of the
            sampled points too, and gives :class:`~phgcn.reproduce.rivals.packages.Sampled`.
        settings (tuple): What it is swept over, the cheap ones first.
        devices (tuple): Where it runs. (default: CPU and GPU)
        gradients (bool): Whether it has some. (default: :obj:`True`)
        dims (range): Dimensions that it is for. (default: all)
        sampled (bool): Whether it answers query by query. (default: :obj:`False`)
        growth (float): A setting takes at least so many times longer than the one before. (default: :obj:`1.0`)
        any_cloud (bool): Whether it takes as long for every cloud: it is timed on the first then. (default: :obj:`False`)
        ours (bool): Whether it is this library's. (default: :obj:`False`)
    """

    name: str
    attend: Callable[..., Tensor | Sampled]
    settings: tuple[Setting, ...] = ({},)
    devices: tuple[str, ...] = ("cpu", "cuda")
    gradients: bool = True
    dims: range = range(1, 17)
    sampled: bool = False
    growth: float = 1.0
    any_cloud: bool = False
    ours: bool = False


def swept(name: str, *numbers: float) -> tuple[Setting, ...]:
    return tuple({name: number} for number in numbers)


def attend_with(method: Literal["exact", "lattice", "lattice-fine", "separable"], points: Tensor, values: Tensor) -> Tensor:
    return global_attention(points, values, decay=1.0, method=method)


TOLERANCES = swept("rtol", 0.3, 0.1, 0.01)
BUCKETS = tuple({"rounds": rounds, "bucket": bucket} for rounds, bucket in ((1, 64), (4, 64), (4, 256), (8, 512)))
NFFT_2D = tuple({"expansion": expansion, "near": near} for expansion, near in ((64, 0), (256, 0), (1024, 0), (1024, 2)))
NFFT_3D = tuple({"expansion": expansion, "near": near} for expansion, near in ((32, 0), (64, 0), (128, 0), (128, 2)))
CPU = ("cpu",)

RIVALS = (
    Rival("separable", partial(attend_with, "separable"), ours=True),
    Rival("lattice", partial(attend_with, "lattice"), ours=True),
    Rival("lattice-fine", partial(attend_with, "lattice-fine"), ours=True),
    Rival("exact", partial(attend_with, "exact"), any_cloud=True, ours=True),
    Rival("pykeops", keops, any_cloud=True),
    Rival("KD-tree", partial(tree, algorithm="kd_tree"), TOLERANCES, CPU, gradients=False, sampled=True),
    Rival("ball tree", partial(tree, algorithm="ball_tree"), TOLERANCES, CPU, gradients=False, sampled=True),
    Rival("NFFT, 2-D", fourier, NFFT_2D, CPU, gradients=False, dims=range(2, 3)),
    Rival("NFFT, 3-D", fourier, NFFT_3D, CPU, gradients=False, dims=range(3, 4)),
    Rival("slicing", sliced, swept("slices", 16, 64, 256, 1024), growth=3.0),
    Rival("LSH", hashed, BUCKETS, growth=1.5),
    Rival("random features", random_features, swept("features", 64, 256, 1024, 4096), growth=3.0),
    Rival("Nyström", nystroem, swept("landmarks", 64, 256, 1024), growth=2.0),
    Rival("pydensecrf2", densecrf, swept("gaussians", 1, 2, 4, 8), CPU, gradients=False),
)


def named(name: str) -> Rival:
    """Returns the rival of a name."""
    return next(rival for rival in RIVALS if rival.name == name)


def choose(device: str, dim: int) -> list[Rival]:
    """Selects the rivals for a kind of device and a dimension."""
    return [rival for rival in RIVALS if device in rival.devices and dim in rival.dims]


def shown(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())

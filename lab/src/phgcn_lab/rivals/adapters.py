r"""All rivals, each with the settings that it is swept over, the cheap ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from phgcn.functional import global_attention

from .hashed import hashed
from .low_rank import nystroem, random_features
from .packages import Sampled, densecrf, flex, fourier, keops, tree
from .sliced import sliced

Setting = dict[str, Any]


@dataclass(frozen=True)
class Rival:
    name: str
    # Takes points, values and a setting, and returns the output.  If `sampled`, it takes the
    # numbers of the sampled points too, and returns `Sampled`.
    attend: Callable[..., Tensor | Sampled]
    settings: tuple[Setting, ...] = ({},)  # what it is swept over, the cheap ones first
    devices: tuple[str, ...] = ("cpu", "cuda")
    gradients: bool = True
    dims: range = range(1, 17)  # dimensions that it is for
    sampled: bool = False  # it answers query by query
    growth: float = 1.0  # a setting takes at least so many times longer than the one before
    any_cloud: bool = False  # it takes as long for every cloud, and is timed on the first
    ours: bool = False


def attend_with(method: Any, points: Tensor, values: Tensor) -> Tensor:
    """Calls this library's attention; a lattice is one, however few the points."""
    return global_attention(points, values, decay=1.0, method=method)


def ours(method: str, any_cloud: bool = False) -> Rival:
    return Rival(method, partial(attend_with, method), any_cloud=any_cloud, ours=True)


def on_cpu(
    name: str, attend: Callable[..., Any], settings: Iterable[Setting], **about: Any
) -> Rival:
    """A package that runs on the CPU only and has no gradients."""
    return Rival(name, attend, tuple(settings), ("cpu",), gradients=False, **about)


def swept(name: str, *numbers: float) -> tuple[Setting, ...]:
    return tuple({name: number} for number in numbers)


def pairs(first: str, second: str, *numbers: tuple[int, int]) -> tuple[Setting, ...]:
    return tuple({first: a, second: b} for a, b in numbers)


TOLERANCES = swept("rtol", 0.3, 0.1, 0.01)
NFFT_2D = pairs("expansion", "near", (64, 0), (256, 0), (1024, 0), (1024, 2))
NFFT_3D = pairs("expansion", "near", (32, 0), (64, 0), (128, 0), (128, 2))
BUCKETS = pairs("rounds", "bucket", (1, 64), (4, 64), (4, 256), (8, 512))
FEATURES = swept("features", 64, 256, 1024, 4096)
RIVALS = (
    ours("separable"),
    ours("lattice"),
    ours("lattice-fine"),
    ours("exact", any_cloud=True),
    Rival("pykeops", keops, any_cloud=True),
    Rival("FlexAttention", flex, devices=("cuda",), any_cloud=True),
    on_cpu("KD-tree", partial(tree, algorithm="kd_tree"), TOLERANCES, sampled=True),
    on_cpu("ball tree", partial(tree, algorithm="ball_tree"), TOLERANCES, sampled=True),
    on_cpu("NFFT, 2-D", fourier, NFFT_2D, dims=range(2, 3)),
    on_cpu("NFFT, 3-D", fourier, NFFT_3D, dims=range(3, 4)),
    Rival("slicing", sliced, swept("slices", 16, 64, 256, 1024), growth=3.0),
    Rival("LSH", hashed, BUCKETS, growth=1.5),
    Rival("random features", random_features, FEATURES, growth=3.0),
    Rival("Nyström", nystroem, swept("landmarks", 64, 256, 1024), growth=2.0),
    on_cpu("pydensecrf2", densecrf, swept("gaussians", 1, 2, 4, 8)),
)


def named(name: str) -> Rival:
    return next(rival for rival in RIVALS if rival.name == name)


def choose(device: str, dim: int) -> list[Rival]:
    return [rival for rival in RIVALS if device in rival.devices and dim in rival.dims]


def shown(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())

"""Splits nodes into training, validation and test nodes. Results under different protocols are not
comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .labels import labelled, task_of

if TYPE_CHECKING:
    from torch_geometric.data import Data

Protocol = Literal["paper", "geom", "balanced", "official", "final"]
PROTOCOLS = ("paper", "geom", "balanced", "official", "final")
"""The names of the protocols by which :func:`splits` divides nodes."""
MASKED = ("geom", "official")


@dataclass(frozen=True, eq=False)
class Split:
    """Masks of the training, validation and test nodes, bool of shape :math:`(N,)`. Some nodes may
    be in none."""

    train: Tensor
    val: Tensor
    test: Tensor


def splits(
    y: Tensor,
    protocol: Protocol,
    count: int = 10,
    seed: int = 0,
    *,
    masks: tuple[Tensor, Tensor, Tensor] | None = None,
) -> list[Split]:
    r"""Splits nodes into training, validation and test nodes.

    - ``"paper"``: at random within each class, 60 % train, 20 % test, 20 % validation. Of a class
      of :math:`n` nodes in random order, the first :math:`\lfloor 0.6n + 0.5 \rfloor` train, those
      up to :math:`\lfloor 0.8n + 0.5 \rfloor` test and the rest validate, so a class of one node is
      in training only, and of two in training and test.
    - ``"balanced"``: :math:`\mathrm{round}(0.6 N / C)` nodes of every class train, or all of a
      smaller class; :math:`\mathrm{round}(0.2 N)` of the rest validate and what remains tests.
    - ``"final"``: as ``"paper"``, but what would test trains too, for a model that is used
      afterwards: no node tests.
    - ``"geom"``, ``"official"``: the graph's own public masks, in their order; ``seed`` has no
      effect.

    Labels that are numbers, or several per node, count as one class: their nodes are split at
    random as a whole, by ``"paper"`` or by masks.

    Unlabelled nodes are in no set, whatever the masks say, and count neither in :math:`N` nor in
    :math:`n`. They, and nodes outside every mask, stay in the graph and take part in the
    aggregation.

    Args:
        y (torch.Tensor): The class of each node, -1 for an unlabelled one; or other labels, see
            :mod:`phgcn.data.labels`.
        protocol (str): One of the above.
        count (int, optional): The number of splits. (default: :obj:`10`)
        seed (int, optional): Split :math:`k` depends on the seed and on :math:`k`, not on
            ``count``. (default: :obj:`0`)
        masks (tuple of torch.Tensor, optional): Training, validation and test masks, needed for
            ``"geom"`` and ``"official"``; see :func:`public_masks`. (default: :obj:`None`)

    Shapes:
        - **y:** :math:`(N,)`, or :math:`(N, C)` of several labels per node
        - **masks:** :math:`(N, K)` each, or :math:`(N,)` for a single split
    """
    _check(y, protocol, count, seed)
    y = _classes_to_split(y)
    if protocol in MASKED:
        return _from_masks(y, protocol, count, masks)
    draw = {"paper": _draw_paper, "balanced": _draw_balanced, "final": _draw_final}[protocol]
    labels = y.detach().cpu().numpy()
    keys = [_random_keys(seed, number, len(labels)) for number in range(count)]
    return [_to_split(draw(labels, *pair), y, protocol) for pair in keys]


def _classes_to_split(y: Tensor) -> Tensor:
    """Returns the classes that are split one by one, (N,), -1 for unlabelled nodes."""
    return y if task_of(y) == "classification" else labelled(y).long() - 1


def public_masks(data: Data) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns the public masks of a graph, for :func:`splits`; :obj:`None` if it has none."""
    if "train_mask" not in data:
        return None
    return data.train_mask, data.val_mask, data.test_mask


TRAIN, VAL, TEST, NONE = 0, 1, 2, 3
ROLES = {"train": TRAIN, "val": VAL, "test": TEST}

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


def _random_keys(seed: int, number: int, count: int) -> Keys:
    """Draws two sort keys for each node, (2, N), for two random orders. Raw numbers of a bit
    generator stay the same over versions of numpy; shuffles may not."""
    raw: Keys = np.random.PCG64(np.random.SeedSequence((seed, number))).random_raw(2 * count)
    return raw.reshape(2, count)


def _rank_in_class(labels: Ints, keys: Keys) -> tuple[Ints, Ints]:
    """Ranks each node by its key within its class; returns ranks and class sizes, (N,) each.
    Unlabelled nodes are a class."""
    order = np.lexsort((keys, labels))
    sizes = np.unique(labels, return_counts=True)[1]
    class_start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranks, class_sizes = np.empty(len(labels), np.int64), np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - class_start
    class_sizes[order] = np.repeat(sizes, sizes)
    return ranks, class_sizes


def _draw_paper(labels: Ints, keys: Keys, _: Keys) -> Ints:
    ranks, size = _rank_in_class(labels, keys)
    trains, tests = ranks < (6 * size + 5) // 10, ranks < (8 * size + 5) // 10
    return np.select([labels < 0, trains, tests], [NONE, TRAIN, TEST], default=VAL)


def _draw_final(labels: Ints, keys: Keys, rest_keys: Keys) -> Ints:
    role = _draw_paper(labels, keys, rest_keys)
    return np.where(role == TEST, TRAIN, role)


def _draw_balanced(labels: Ints, keys: Keys, rest_keys: Keys) -> Ints:
    ranks, _ = _rank_in_class(labels, keys)
    labelled = labels >= 0
    total, classes = int(labelled.sum()), len(np.unique(labels[labelled]))
    trains = ranks < round(0.6 * total / max(classes, 1))
    role = np.select([~labelled, trains], [NONE, TRAIN], default=TEST)
    rest = np.flatnonzero(role == TEST)
    # By new keys: of the first ones, the nodes that are left have the largest of their class.
    role[rest[np.argsort(rest_keys[rest], kind="stable")[: round(0.2 * total)]]] = VAL
    return role


def _to_split(role: Ints, y: Tensor, protocol: str) -> Split:
    """Converts roles to masks. Refuses an empty one, except test nodes of ``"final"``."""
    parts = {name: torch.from_numpy(role == part).to(y.device) for name, part in ROLES.items()}
    for name, part in parts.items():
        if not part.any() and not (protocol == "final" and name == "test"):
            count, classes = int((y >= 0).sum()), len(y[y >= 0].unique())
            what = f"y has {count} labelled nodes, which leaves none to {name} under {protocol!r}"
            allowed = f"more, at least 3 of a class (classes: {classes})"
            raise ValueError(f"{what}; allowed: {allowed}")
    return Split(**parts)


def _from_masks(
    y: Tensor, protocol: str, count: int, masks: tuple[Tensor, Tensor, Tensor] | None
) -> list[Split]:
    """Takes the first splits of public masks, without unlabelled nodes."""
    if masks is None:
        needed = f"the graph's public masks, which the protocol {protocol!r} needs"
        raise ValueError(f"masks is None; allowed: {needed}")
    is_three = isinstance(masks, (tuple, list)) and len(masks) == 3
    if not is_three or not all(isinstance(mask, Tensor) for mask in masks):
        allowed = "three tensors, (train, val, test)"
        raise ValueError(f"masks is a {type(masks).__name__}; allowed: {allowed}")
    columns = [mask.unsqueeze(1) if mask.dim() == 1 else mask for mask in masks]
    shape = (len(y), *columns[0].shape[1:2])
    for name, mask in zip(("train", "val", "test"), columns, strict=True):
        if mask.dtype != torch.bool or mask.dim() != 2 or mask.shape != shape:
            what = f"masks has {mask.dtype} of shape {tuple(mask.shape)} for {name}"
            allowed = f"bool, ({len(y)}, K), the same K for all three"
            raise ValueError(f"{what}; allowed: {allowed}")
    available = columns[0].size(1)
    if count > available:
        raise ValueError(f"count is {count}; allowed: 1 to {available}, the graph's public splits")
    found = []
    for number in range(count):
        train, val, test = (mask[:, number].to(y.device) & (y >= 0) for mask in columns)
        if bool(((train & val) | (train & test) | (val & test)).any()):
            allowed = "one set per node and split"
            raise ValueError(f"masks has a node in two of the three sets; allowed: {allowed}")
        found.append(Split(train, val, test))
    return found


def _check(y: Tensor, protocol: str, count: int, seed: int) -> None:
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol is {protocol!r}; allowed: {', '.join(map(repr, PROTOCOLS))}")
    kinds = (
        "of integers (N,), one class per node, -1 for none; of floats (N,) or (N, C), NaN for none"
    )
    if not isinstance(y, Tensor):
        raise ValueError(f"y is {type(y).__name__}; allowed: a tensor {kinds}")
    dimensions = (1, 2) if y.is_floating_point() else (1,)
    if y.dtype == torch.bool or y.dim() not in dimensions:
        raise ValueError(f"y is {y.dtype} of shape {tuple(y.shape)}; allowed: a tensor {kinds}")
    if protocol == "balanced" and task_of(y) != "classification":
        others = f"for labels of {task_of(y)}: 'paper', 'geom', 'official'"
        raise ValueError(f"protocol is {protocol!r}; allowed {others}")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"count is {count!r}; allowed: 1, 2, 3, ...")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed is {seed!r}; allowed: 0, 1, 2, ...")

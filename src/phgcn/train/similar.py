r"""Finds the features by which some other node tells the label of a node: where attention to the inputs begins.

A gradient finds such features only among few others: as long as most of a distance is noise, the node that matters is not near.
So they are searched one by one: a set of features is good if the mean features of the nearest nodes by this set explain what a
node's own features leave unexplained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

NEAREST = (1, 4, 16)
"""Numbers of nearest nodes whose mean features are tried."""

MOST_FEATURES = 64
"""Graphs with more features are not searched: the time grows with the square of their number."""

MOST_QUERIES, LEAST_QUERIES, MOST_KEYS = 1024, 128, 8192
"""Training nodes that are looked at for single features, at least for sets of them, and nodes at most."""

BUDGET = 10**7
"""For sets of features as many training nodes are looked at as make this product with the nodes and the features."""

BEAM = 4
"""Sets of each size that are extended by one more feature."""

NEARLY = 0.9
"""A larger set is taken that is nearly as good: in a sample, a part of the features often tells as much as all of them."""

SIGNIFICANT = 6.0
"""The least t value of a correlation that is not taken for chance, among some hundred sets and features."""


class Similar(NamedTuple):
    """Features by which nodes are similar to the ones that tell their labels, features of these that tell them, the t value of
    the best correlation, and the median distance to the nearest node, in standard deviations of the features."""

    features: tuple[int, ...]
    telling: tuple[int, ...]
    strength: float
    distance: float


def find_similar(x: Tensor, targets: Tensor, train: Tensor) -> Similar | None:
    r"""Searches for a set of features; returns :obj:`None` if none is better than chance, or if there are too many features.

    Args:
        x (torch.Tensor): The features of all nodes, in any units.
        targets (torch.Tensor): The labels of the training nodes as numbers, such as 0 and 1 for each class.
        train (torch.Tensor): The training nodes.

    Shapes:
        - **x:** :math:`(N, F)`, **targets:** :math:`(N_{train}, C)`, **train:** :math:`(N_{train},)`
    """
    if x.layout != torch.strided or x.size(1) > MOST_FEATURES or len(train) < 2 * NEAREST[-1] or len(x) > MOST_KEYS:
        return None
    varying = (x.std(dim=0) > 0).nonzero().flatten()
    scaled = ((x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-12))[:, varying].float()
    chosen = torch.linspace(0, len(train) - 1, min(len(train), MOST_QUERIES)).long()
    queries = train[chosen]
    search = _Search(scaled, queries, _unexplained(scaled[queries], targets[chosen]))
    found = _extend(search, search.part(max(LEAST_QUERIES, BUDGET // scaled.numel())))
    if not found:
        return None
    features = [features for strength, features in found if strength >= NEARLY * max(found)[0]][-1]
    strength = search.strength(features)
    if strength < SIGNIFICANT:
        return None
    telling = (search.t_values(features) >= max(SIGNIFICANT, strength / 4)).nonzero().flatten()
    return Similar(
        tuple(varying[list(features)].tolist()), tuple(varying[telling].tolist()), strength, search.distance(features)
    )


_Set = tuple[float, tuple[int, ...]]


def _extend(search: _Search, part: _Search) -> list[_Set]:
    """Returns the best set of each size, up to the size from which on they get clearly worse.  All queries say which single
    features are extended, as these tell least, and a part of them the rest."""
    count = search.x.size(1)
    best: list[_Set] = []
    sets: set[tuple[int, ...]] = {(f,) for f in range(count)}
    frontier = _ordered(part, {features for _, features in _ordered(search, sets)[: 2 * BEAM]})
    while frontier and frontier[0][0] >= NEARLY * max((strength for strength, _ in best), default=0.0):
        best.append(frontier[0])
        sets = {tuple(sorted((*known, f))) for _, known in frontier for f in range(count) if f not in known}
        frontier = _ordered(part, sets)[:BEAM]
    return best


def _ordered(search: _Search, sets: set[tuple[int, ...]]) -> list[_Set]:
    """Returns sets of features with their strength, the best first."""
    return sorted(((search.strength(features), features) for features in sorted(sets)), reverse=True)


class _Search:
    """Sets of features and how well the nodes nearest by them explain what is left, (M, C), of the labels of the queries."""

    def __init__(self, x: Tensor, queries: Tensor, left: Tensor) -> None:
        self.x, self.queries, self.left = x, queries, left / left.norm(dim=0).clamp(min=1e-9)

    def part(self, count: int) -> _Search:
        """Returns the same search with every so many of its queries, about ``count`` of them."""
        some = torch.arange(0, len(self.queries), max(1, len(self.queries) // count))
        return _Search(self.x, self.queries[some], self.left[some])

    def strength(self, features: tuple[int, ...]) -> float:
        """Returns the largest t value of a correlation of what is left with a mean feature of the nearest nodes."""
        return float(self.t_values(features).max())

    def t_values(self, features: tuple[int, ...]) -> Tensor:
        """Returns the t value of each feature of the nearest nodes, for the best number of them, (F,)."""
        index = self._distances(features).topk(NEAREST[-1], largest=False, sorted=True).indices
        means = self.x[index].cumsum(dim=1)[:, [count - 1 for count in NEAREST]]  # (M, 3, F), up to a factor
        means = means - means.mean(dim=0)
        means = means / means.norm(dim=0).clamp(min=1e-9)
        correlation = torch.einsum("mkf,mc->fkc", means, self.left).abs().flatten(1).amax(dim=1).clamp(max=0.9999)
        found: Tensor = correlation / (1 - correlation**2).sqrt() * max(1, len(self.left) - 2) ** 0.5
        return found

    def distance(self, features: tuple[int, ...]) -> float:
        """Returns the median distance to the nearest node."""
        return float(self._distances(features).amin(dim=1).sqrt().median())

    def _distances(self, features: tuple[int, ...]) -> Tensor:
        """Returns squared distances of the queries to all nodes, (M, N); the node itself is infinitely far."""
        points = self.x[:, list(features)]
        squares = torch.cdist(points[self.queries], points, compute_mode="donot_use_mm_for_euclid_dist").square_()
        others: Tensor = squares.scatter_(1, self.queries.unsqueeze(1), torch.inf)
        return others


def _unexplained(x: Tensor, targets: Tensor) -> Tensor:
    """Returns what a ridge regression on a node's own features leaves of its targets, (M, C); nothing of one that it tells."""
    x, targets = x - x.mean(dim=0), targets - targets.mean(dim=0)
    ridge = 1e-3 * len(x) * torch.eye(x.size(1), device=x.device)
    left: Tensor = targets - x @ torch.linalg.solve(x.T @ x + ridge, x.T @ targets)
    kept: Tensor = left * (left.norm(dim=0) > 0.05 * targets.norm(dim=0))
    return kept


SHARPNESS = (1.0, 2.0, 4.0, 8.0)
"""The decays that heads begin with, over the distance to the nearest node, in turn."""


@torch.no_grad()
def point_heads(block: Any, x: Tensor, found: Similar) -> None:
    """Lets the heads of a global block read what was found: positions are the features by which nodes are similar, rotated
    where there are more of them than dimensions, values the features that tell.

    The weights of other features stay 0.  Steps of Adam are as large for noise as for gradients, and noise in a position hides
    the node that matters.
    """
    features, telling = list(found.features), list(found.telling)
    positions = torch.zeros(block.heads, block.embedding_dim, x.size(1))
    for head in positions:
        count = len(features)
        axes = torch.eye(count) if count <= len(head) else torch.linalg.qr(torch.randn(count, count))[0]
        head[: min(count, len(head)), features] = axes[: len(head)] / x[:, features].std(dim=0).cpu()
    scale = torch.zeros(x.size(1))  # of values: as large as those of all features, each of deviation 1, would be
    scale[telling] = (x.size(1) / len(telling)) ** 0.5 / x[:, telling].std(dim=0).cpu()
    block.lin_position.weight.copy_(positions.flatten(0, 1))
    block.lin_value.weight.mul_(scale.to(block.lin_value.weight))
    for weight in (block.lin_position.weight, block.lin_value.weight):
        read = (weight != 0).to(weight)
        weight.register_hook(read.mul)
    if block.decay.log is not None:
        decays = torch.tensor([SHARPNESS[head % len(SHARPNESS)] for head in range(block.heads)])
        block.decay.log.copy_((decays / max(found.distance, 1e-3)).log())

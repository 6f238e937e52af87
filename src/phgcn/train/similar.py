r"""Finds the features by which some other node tells the label of a node: where attention to the
inputs begins.

A gradient finds such features only among few others: as long as most of a distance is noise, the
node that matters is not near. So sets of features are searched: a set is good if the features of
the nearest nodes by this set, the squares of these features, or the labels of these nodes explain
what a node's own features leave unexplained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

NEAREST = (1, 4, 16)
"""Numbers of nearest nodes whose mean values are tried."""

MOST_FEATURES = 128
"""Graphs with more features are not searched: the time grows with their number."""

MOST_QUERIES, LEAST_QUERIES, MOST_KEYS = 1024, 128, 8192
"""Training nodes that are looked at for single features, at least for sets of them, and nodes at
most.
"""

BUDGET = 10**7
"""For sets of features as many training nodes are looked at as make this product with the nodes and
the features.
"""

BEAM, MOST_EXTENDED = 4, 8
"""Sets of each size that are extended by one more feature, and the largest size."""

LARGEST = 4.0
"""Features and labels are taken to be at most so many deviations from their mean, so that no single
node makes a correlation.
"""

NEARLY = 0.9
"""A larger set is taken that is nearly as good: in a sample, a part of the features often tells as
much as all of them.
"""

BETTER = 1.01
"""A feature is left out again if the set is better by this factor without it."""

SIGNIFICANT = 6.0
"""The least t value of a correlation that is not taken for chance, among some hundred sets and
values.
"""


class Similar(NamedTuple):
    """Features by which nodes are similar to the ones that tell their labels, features of these
    that tell them, whether their labels do, the t value of the best correlation, the median
    distance to the nearest node in standard deviations of the features, and these deviations, (F,).
    """

    features: tuple[int, ...]
    telling: tuple[int, ...]
    labels: bool
    strength: float
    distance: float
    deviations: Tensor


def find_similar(x: Tensor, targets: Tensor, train: Tensor) -> Similar | None:
    r"""Searches for a set of features; returns :obj:`None` if none is better than chance, or if
    there are too many features.

    Args:
        x (torch.Tensor): The features of all nodes, in any units.
        targets (torch.Tensor): The labels of the training nodes as numbers, such as 0 and 1 for
            each class.
        train (torch.Tensor): The training nodes.

    Shapes:
        - **x:** :math:`(N, F)`, **targets:** :math:`(N_{train}, C)`, **train:**
          :math:`(N_{train},)`
    """
    if (
        x.layout != torch.strided
        or x.size(1) > MOST_FEATURES
        or len(train) < 2 * NEAREST[-1]
        or len(x) > MOST_KEYS
    ):
        return None
    varying = (x.std(dim=0) > 0).nonzero().flatten()
    scaled = ((x - x.mean(dim=0)) / x.std(dim=0).clamp(min=1e-12))[:, varying].float()
    targets = targets - targets.mean(dim=0)
    of_train = targets.new_zeros(len(x), targets.size(1)).index_copy(0, train, targets)
    chosen = torch.linspace(0, len(train) - 1, min(len(train), MOST_QUERIES)).long()
    queries = train[chosen]
    known = scaled.clamp(-LARGEST, LARGEST)
    values = torch.cat([known, known.square(), of_train], dim=1)
    if scaled.size(1) == 0:
        return None
    search = _Search(scaled, values, queries, _unexplained(scaled[queries], targets[chosen]))
    part = search.part(max(LEAST_QUERIES, BUDGET // scaled.numel()))
    everything = tuple(range(scaled.size(1)))
    sets = [_shrink(part, features) for features in (*_extend(search, part), everything)]
    keys = [_without(known, set(search.telling(known).features)) for known in sets]
    features = max([*sets, *(_shrink(part, key) for key in keys if key)], key=search.strength)
    telling = search.telling(features)
    if telling.strength < SIGNIFICANT:
        return None
    return Similar(
        tuple(varying[list(features)].tolist()),
        tuple(varying[telling.features].tolist()),
        telling.labels,
        telling.strength,
        search.distance(features),
        x.std(dim=0),
    )


_Features = tuple[int, ...]


def _extend(search: _Search, part: _Search) -> list[_Features]:
    """Returns the best set of each size that is nearly as good as the best of all, as a list of
    one, up to the size from which on they get clearly worse.  All queries say which single features
    are extended, as these tell least, and a part of them the rest."""
    count = search.x.size(1)
    best: list[tuple[float, _Features]] = []
    single = _ordered(search, {(f,) for f in range(count)})[: 2 * BEAM]
    frontier = _ordered(part, {features for _, features in single})
    while frontier and len(best) < MOST_EXTENDED:
        if frontier[0][0] < NEARLY * max((strength for strength, _ in best), default=0.0):
            break
        best.append(frontier[0])
        sets = {
            tuple(sorted((*known, f)))
            for _, known in frontier
            for f in range(count)
            if f not in known
        }
        frontier = _ordered(part, sets)[:BEAM]
    good = [known for strength, known in best if strength >= NEARLY * max(best)[0]]
    return good[-1:]


def _shrink(search: _Search, features: _Features) -> _Features:
    """Leaves out features as long as the set is better without: in each round the half of those
    that are best left out, or one."""
    strength = search.strength(features)
    while len(features) > 1:
        without = _ordered(search, {_without(features, {f}) for f in features})
        better = [known for found, known in without if found > BETTER * strength]
        tried: list[_Features] = []
        for count in {max(1, len(better) // 2), 1} if better else ():
            dropped = {f for known in better[:count] for f in features if f not in known}
            tried.append(_without(features, dropped))
        if not tried:
            break
        strength, features = _ordered(search, set(tried))[0]
    return features


def _without(features: _Features, dropped: set[int]) -> _Features:
    return tuple(f for f in features if f not in dropped)


def _ordered(search: _Search, sets: set[_Features]) -> list[tuple[float, _Features]]:
    """Returns sets of features with their strength, the best first."""
    return sorted(
        ((search.strength(features), features) for features in sorted(sets)), reverse=True
    )


class _Telling(NamedTuple):
    features: list[int]
    labels: bool
    strength: float  # the largest t value


class _Search:
    """Sets of features of all nodes (N, F), and how well the values (N, V) of the nodes nearest by
    them explain what is left, (M, C), of the labels of the queries.
    """

    def __init__(self, x: Tensor, values: Tensor, queries: Tensor, left: Tensor) -> None:
        self.x, self.values, self.queries = x, values, queries
        self.left = left / left.norm(dim=0).clamp(min=1e-9)

    def part(self, count: int) -> _Search:
        """Returns the same search with every so many of its queries, about ``count`` of them."""
        some = torch.arange(0, len(self.queries), max(1, len(self.queries) // count))
        return _Search(self.x, self.values, self.queries[some], self.left[some])

    def strength(self, features: _Features) -> float:
        """Returns the root of the summed squares, over targets, of the largest t value."""
        return float(self.t_values(features).amax(dim=0).norm())

    def t_values(self, features: _Features) -> Tensor:
        """Returns the t value of each value of the nearest nodes for each target, for the best
        number of them, (V, C).
        """
        index = self._distances(features).topk(NEAREST[-1], largest=False, sorted=True).indices
        # (M, 3, V), up to a factor
        means = self.values[index].cumsum(dim=1)[:, [count - 1 for count in NEAREST]]
        means = means - means.mean(dim=0)
        means = means / means.norm(dim=0).clamp(min=1e-9)
        correlation = torch.einsum("mkv,mc->kvc", means, self.left).abs().amax(dim=0)
        correlation = correlation.clamp(max=0.9999)
        freedom = max(1, len(self.left) - 2)
        found: Tensor = correlation * (freedom / (1 - correlation**2)).sqrt()
        return found

    def telling(self, features: _Features) -> _Telling:
        """Returns what of the nearest nodes tells what is left."""
        found = self.t_values(features).amax(dim=1)
        of_features, of_labels = found[: -self.left.size(1)], found[-self.left.size(1) :]
        strength = float(found.max())
        tells = of_features.view(-1, self.x.size(1)).amax(dim=0) >= max(SIGNIFICANT, strength / 4)
        labels = bool(of_labels.max() >= max(SIGNIFICANT, strength / 4))
        return _Telling(tells.nonzero().flatten().tolist(), labels, strength)

    def distance(self, features: _Features) -> float:
        """Returns the median distance to the nearest node."""
        return float(self._distances(features).amin(dim=1).sqrt().median())

    def _distances(self, features: _Features) -> Tensor:
        """Returns squared distances of the queries to all nodes, (M, N); the node itself is
        infinitely far.
        """
        points = self.x[:, list(features)]
        squares = torch.cdist(
            points[self.queries], points, compute_mode="donot_use_mm_for_euclid_dist"
        ).square_()
        others: Tensor = squares.scatter_(1, self.queries.unsqueeze(1), torch.inf)
        return others


def _unexplained(x: Tensor, targets: Tensor) -> Tensor:
    """Returns what a ridge regression on a node's own features leaves of its targets, (M, C);
    nothing of one that it tells.
    """
    x, targets = x - x.mean(dim=0), targets - targets.mean(dim=0)
    ridge = 1e-3 * len(x) * torch.eye(x.size(1), device=x.device)
    left: Tensor = targets - x @ torch.linalg.solve(x.T @ x + ridge, x.T @ targets)
    kept: Tensor = left * (left.norm(dim=0) > 0.05 * targets.norm(dim=0))
    most = LARGEST * kept.std(dim=0)
    return kept.clamp(-most, most)


SHARPNESS = (1.0, 2.0, 4.0, 0.5)
"""The decays that heads begin with, over the distance to the nearest node, in turn."""


@torch.no_grad()
def point_heads(layer: Any, found: Similar) -> None:
    """Lets the heads of a layer that reads the input features read what was found: positions are
    the features by which nodes are similar, rotated where there are more of them than dimensions,
    and the values of a global block are the features that tell.

    The weights of other features stay 0.  Steps of Adam are as large for noise as for gradients,
    and noise in a position hides the node that matters."""
    features, width = list(found.features), len(found.deviations)
    positions = torch.zeros(layer.heads, layer.embedding_dim, width)
    for head in positions:
        count = len(features)
        axes = (
            torch.eye(count)
            if count <= len(head)
            else torch.linalg.qr(torch.randn(count, count))[0]
        )
        head[: min(count, len(head)), features] = axes[: len(head)] / found.deviations[features]
    layer.lin_position.weight.copy_(positions.flatten(0, 1))
    _keep_zeros(layer.lin_position.weight)
    if hasattr(layer, "lin_value"):
        _point_values(layer.lin_value.weight, found)
    if layer.decay.log is not None:
        decays = torch.tensor([SHARPNESS[head % len(SHARPNESS)] for head in range(layer.heads)])
        layer.decay.log.copy_((decays / max(found.distance, 1e-3)).log())


def _point_values(weight: Tensor, found: Similar) -> None:
    """Lets values read the features that tell, as large as all features of deviation 1 would be."""
    telling, width = list(found.telling), len(found.deviations)
    scale = torch.zeros(width)
    scale[telling] = (width / max(1, len(telling))) ** 0.5 / found.deviations[telling]
    weight.mul_(scale.to(weight))
    _keep_zeros(weight)


def _keep_zeros(weight: Tensor) -> None:
    """Lets a weight have no gradient where it is 0."""
    weight.register_hook((weight != 0).to(weight).mul)

"""Finds features whose nearest nodes explain labels: attention to the inputs begins there.

A gradient finds such features only among few others: as long as most of a distance is noise, the
node that matters is not near. So sets of features are searched. A set is good if features of the
nearest nodes by this set, their squares, or their labels explain the part of the labels that a
node's own features do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

NEAREST = (1, 4, 16)  # numbers of nearest nodes whose mean values are tried
MOST_FEATURES = 128  # graphs with more features are not searched: the time grows with their number

# training nodes that are looked at for single features, at least for sets of them, and nodes at
# most
MOST_QUERIES, LEAST_QUERIES, MOST_KEYS = 1024, 128, 8192

# for sets of features as many training nodes are looked at as make this product with the nodes and
# the features
BUDGET = 10**7

# sets of each size that are extended by one more feature, and the largest size
BEAM, MOST_EXTENDED = 4, 8

# features and labels are taken to be at most so many deviations from their mean, so that no single
# node makes a correlation
LARGEST = 4.0

# a larger set is taken that is nearly as good: in a sample, a part of the features often tells as
# much as all of them
NEARLY = 0.9

BETTER = 1.01  # a feature is left out again if the set is better by this factor without it

# the least t value of a correlation that is not taken for chance, among some hundred sets and
# values
SIGNIFICANT = 6.0


class Similar(NamedTuple):
    """Features by which nodes are similar to the ones that explain their labels; explaining
    features of these, and whether their labels explain; the t value of the best correlation; the
    median distance to the nearest node in standard deviations of the features; and these
    deviations, (F,)."""

    features: tuple[int, ...]
    telling: tuple[int, ...]
    labels: bool
    strength: float
    distance: float
    deviations: Tensor


def find_similar(x: Tensor, targets: Tensor, train: Tensor) -> Similar | None:
    """Searches for a set of features; :obj:`None` if none is better than chance, or if there are
    too many features.

    Args:
        x (torch.Tensor): The features of all nodes, in any units, :math:`(N, F)`.
        targets (torch.Tensor): The labels of the training nodes as numbers, such as 0 and 1 for
            each class, :math:`(N_{train}, C)`.
        train (torch.Tensor): The training nodes, :math:`(N_{train},)`.
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
    """Grows sets of features one by one until they get clearly worse. Returns a list with the
    largest set that is nearly as good as the best one. Single features are judged by all queries,
    larger sets by the queries of ``part``."""
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
    """Leaves out features while the set is better without, half of the candidates a round."""
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
    """Scores sets of features (N, F): how well values (N, V) of the nearest nodes explain the
    unexplained labels (M, C) of the queries."""

    def __init__(self, x: Tensor, values: Tensor, queries: Tensor, left: Tensor) -> None:
        self.x, self.values, self.queries = x, values, queries
        self.left = left / left.norm(dim=0).clamp(min=1e-9)

    def part(self, count: int) -> _Search:
        """Returns the same search with about ``count`` of its queries."""
        some = torch.arange(0, len(self.queries), max(1, len(self.queries) // count))
        return _Search(self.x, self.values, self.queries[some], self.left[some])

    def strength(self, features: _Features) -> float:
        """Returns the root of the summed squares, over targets, of the largest t value."""
        return float(self.t_values(features).amax(dim=0).norm())

    def t_values(self, features: _Features) -> Tensor:
        """Returns t values of the nearest nodes' values for each target, (V, C)."""
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
        """Returns the values of the nearest nodes that explain the rest."""
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
        """Returns squared distances of the queries to all other nodes, (M, N)."""
        points = self.x[:, list(features)]
        squares = torch.cdist(
            points[self.queries], points, compute_mode="donot_use_mm_for_euclid_dist"
        ).square_()
        others: Tensor = squares.scatter_(1, self.queries.unsqueeze(1), torch.inf)
        return others


def _unexplained(x: Tensor, targets: Tensor) -> Tensor:
    """Returns the residuals of a ridge regression of targets on a node's own features, (M, C);
    nothing of a target that it explains."""
    x, targets = x - x.mean(dim=0), targets - targets.mean(dim=0)
    ridge = 1e-3 * len(x) * torch.eye(x.size(1), device=x.device)
    left: Tensor = targets - x @ torch.linalg.solve(x.T @ x + ridge, x.T @ targets)
    kept: Tensor = left * (left.norm(dim=0) > 0.05 * targets.norm(dim=0))
    most = LARGEST * kept.std(dim=0)
    return kept.clamp(-most, most)


# the decays that heads begin with, over the distance to the nearest node, in turn
SHARPNESS = (1.0, 2.0, 4.0, 0.5)


@torch.no_grad()
def point_heads(layer: Any, found: Similar) -> None:
    """Starts the heads of a layer at the found features: positions are the features by which nodes
    are similar, rotated if they exceed the dimensions, and values of a global block are the
    explaining features.

    The weights of other features stay 0. Steps of Adam are as large for noise as for gradients, and
    noise in a position hides the node that matters."""
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
    """Lets values read the explaining features, in the size of all features together."""
    telling, width = list(found.telling), len(found.deviations)
    scale = torch.zeros(width)
    scale[telling] = (width / max(1, len(telling))) ** 0.5 / found.deviations[telling]
    weight.mul_(scale.to(weight))
    _keep_zeros(weight)


def _keep_zeros(weight: Tensor) -> None:
    """Removes the gradient of a weight where it is 0."""
    weight.register_hook((weight != 0).to(weight).mul)

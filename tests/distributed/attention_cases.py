"""Global attention of a cloud that is shared out among ranks, and of the whole, with all
gradients."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

import phgcn
from phgcn.crossings import EXACT_PAIRS
from phgcn.distributed import Ranks, attention
from phgcn.tolerance import Tolerance


class Case(NamedTuple):
    """A cloud, and how it is shared out.

    Args:
        method (str): The method.
        spread (float): How sparse the cloud is.
        by_head, by_graph (tuple): How many times as sparse each head and each graph is.
        keys, queries (int): How many; without queries the keys attend to themselves.
        graphs (int): Of how many graphs; their ids are not consecutive.
        heads (int): How many heads.
        share (str): ``"random"``: uneven parts. ``"last"``: all on the last rank. ``"apart"``: keys
            on rank 0, queries on the last one.
        dtype (str): The type.
        limit (int, optional): Up to how many pairs ``"auto"`` is exact.
        dim (int): The dimension.
        copies (bool): Whether many points lie in the same places.
        away (float): How far queries are from the keys.
        lone (int): How many points, the last, lie far from all others in each head.
        apart (float): How far two halves of the keys are apart; queries lie between them.
        twice (bool): Whether the gradients are those of a second backward pass, which has nothing
            kept of the forward pass.
        kernel (str): The kernel function.
        weighted (bool): Whether keys have weights; those of every third, and of the first graph if
            there are several, are 0.
        gathers (bool): Whether ranks may gather all points, as they do where they cannot meet at
            vertices.
    """

    method: Any
    spread: float = 2.0
    keys: int = 500
    queries: int = 0
    graphs: int = 1
    heads: int = 2
    share: str = "random"
    dtype: str = "float64"
    backend: str = "auto"
    limit: int | None = None
    dim: int = 3
    copies: bool = False
    away: float = 0.0
    gathers: bool = True
    kernel: str = "exponential"
    twice: bool = False
    lone: int = 0
    apart: float = 0.0
    by_head: tuple[float, ...] = ()
    by_graph: tuple[float, ...] = ()
    weighted: bool = False


class Cloud(NamedTuple):
    positions: Tensor
    values: Tensor
    queries: Tensor | None
    batch: Tensor | None
    query_batch: Tensor | None
    key_weights: Tensor | None
    loss_weights: Tensor
    mass_weights: Tensor


def make_cloud(case: Case) -> Cloud:
    generator = torch.Generator().manual_seed(7)
    dtype, heads, dim, channels = getattr(torch, case.dtype), case.heads, case.dim, 4
    targets = case.queries or case.keys

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def ids(count: int) -> Tensor | None:
        # The first graph has half of the points, the last has no keys.
        drawn = (
            (torch.rand(count, generator=generator) ** 2 * case.graphs)
            .long()
            .clamp(max=case.graphs - 1)
        )
        return 5 * drawn if case.graphs > 1 else None

    def widths(graph: Tensor | None) -> Tensor:
        """The spread of each point and head."""
        of_heads = torch.tensor(case.by_head or (1.0,), dtype=dtype)
        of_graphs = torch.ones(1, dtype=dtype)
        if case.by_graph and graph is not None:
            of_graphs = torch.tensor(case.by_graph, dtype=dtype)[graph // 5]
        return case.spread * of_graphs[:, None, None] * of_heads[:, None]

    positions = normal(case.keys, heads, dim)
    values = normal(case.keys, heads, channels) + 3
    queries = normal(case.queries, heads, dim) if case.queries else None
    batch, query_batch = ids(case.keys), ids(case.queries) if case.queries else None
    positions = widths(batch) * positions
    if case.lone > 0:
        far = normal(case.lone, heads, dim)
        positions[-case.lone :] = 7 * far / far.norm(dim=2, keepdim=True)
    if case.copies:
        positions[::2] = positions[torch.randint(0, 9, (len(positions[::2]),), generator=generator)]
    positions[::2] += case.apart
    asked = None if queries is None else widths(query_batch) * queries + case.away
    if asked is not None and case.apart > 0:
        asked = asked + case.apart * torch.rand(
            case.queries, 1, 1, generator=generator, dtype=torch.float64
        ).to(dtype)
    of_loss, key_weights = (normal(targets, heads, channels), normal(targets, heads)), None
    if case.weighted:
        key_weights = normal(case.keys, heads).abs() + 0.1
        key_weights[::3] = 0
        if batch is not None:
            key_weights[batch == 0] = 0
    return Cloud(positions, values, asked, batch, query_batch, key_weights, *of_loss)


def owners(case: Case, count: int, size: int, queries: bool) -> Tensor:
    """The rank of each point."""
    if case.share == "random":
        draw = torch.rand(count, generator=torch.Generator().manual_seed(3 + queries))
        return (size * draw**2).long()  # most on rank 0
    return torch.full((count,), size - 1 if case.share == "last" or queries else 0)


def attend(case: Case, cloud: Cloud, group: Any = None) -> dict[str, Tensor]:
    """Output, mass and all gradients."""
    inputs = {
        "positions": cloud.positions,
        "values": cloud.values,
        "queries": cloud.queries,
        "weights": cloud.key_weights,
    }
    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items() if t is not None}
    leaves["decay"] = cloud.positions.new_full((case.heads,), 1.3).requires_grad_()
    before = EXACT_PAIRS["cpu"]
    EXACT_PAIRS["cpu"] = before if case.limit is None else dict.fromkeys(range(1, 9), case.limit)
    try:
        out, mass = phgcn.global_attention(
            **leaves,
            batch=cloud.batch,
            query_batch=cloud.query_batch,
            kernel=case.kernel,
            method=case.method,
            backend=case.backend,
            group=group,
            return_mass=True,
        )
    finally:
        EXACT_PAIRS["cpu"] = before
    finite = mass.masked_fill(mass.isinf(), 0)
    loss = (out * cloud.loss_weights).sum() + (finite * cloud.mass_weights).sum()
    if case.twice:
        loss.backward(retain_graph=True)
        for leaf in leaves.values():
            leaf.grad = None
    loss.backward()
    if cloud.key_weights is not None:
        unseen = cloud.key_weights == 0
        assert not leaves["values"].grad[unseen].any(), "a point of weight 0 is attended to"
    return {
        "out": out.detach(),
        "mass": finite.detach(),
        **{f"grad {name}": leaf.grad for name, leaf in leaves.items()},
    }


def attend_on_rank(
    group: Any, case: Case, device: str = "cpu"
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The same for the points of this rank; also which keys and queries these are."""
    import torch.distributed as dist

    cloud, (rank, size) = (
        make_cloud(case),
        (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group)),
    )
    keys = (owners(case, case.keys, size, False) == rank).nonzero().flatten()
    queries = (
        (owners(case, case.queries, size, True) == rank).nonzero().flatten()
        if case.queries
        else keys
    )
    index = (keys, keys, queries, keys, queries, keys, queries, queries)
    here = Cloud(
        *(None if t is None else t[some].to(device) for t, some in zip(cloud, index, strict=True))
    )
    gather = attention._attend_gathered
    if not case.gathers:
        attention._attend_gathered = refuse_to_gather
    try:
        found = attend(case, here, group)
    finally:
        attention._attend_gathered = gather
    return {key: value.cpu() for key, value in found.items()}, keys, queries


def join_parts(whole: dict[str, Tensor], parts: Any) -> dict[str, Tensor]:
    """Puts what ranks return together, in the shapes of what one process returns."""
    joined = {key: torch.zeros_like(value) for key, value in whole.items()}
    for part, keys, queries in parts:
        for key, value in part.items():
            if key == "grad decay":
                joined[key] += value  # each rank's share
            else:
                joined[key][queries if key in ("out", "mass", "grad queries") else keys] = value
    return joined


def largest_error(found: Tensor, true: Tensor) -> float:
    """The largest error, in units of the largest number."""
    return float((found - true).abs().max() / true.abs().max().clamp(min=1e-30))


def refuse_to_gather(*_: Any) -> Any:
    raise AssertionError("all points are gathered")


class HostRanks(Ranks):
    """Ranks whose messages go by the CPU: so several of them can share a GPU, which nccl does not
    allow.
    """

    def __init__(self, group: Any) -> None:
        super().__init__(group)
        self.devices = ("cpu", "cuda")

    def gather_equal(self, tensor: Tensor) -> Tensor:
        return super().gather_equal(tensor.cpu()).to(tensor.device)

    def fill(self, parts: Any) -> None:
        held = [part.cpu() for part in parts]
        super().fill(held)
        for part, host in zip(parts, held, strict=True):
            part.copy_(host)

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(super().sum_in_place(tensor.cpu()))

    def max(self, tensor: Tensor) -> Tensor:
        return super().max(tensor.cpu()).to(tensor.device)

    def exchange(self, rows: Tensor, send: Any, receive: Any) -> Tensor:
        return super().exchange(rows.cpu(), send, receive).to(rows.device)

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        return tensor.copy_(super().broadcast(tensor.cpu(), source))


def attend_on_gpu(group: Any, case: Case) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """As :func:`attend_on_rank`, on a GPU that all ranks share; without a group, of all points."""
    before, attention.Ranks = attention.Ranks, HostRanks
    try:
        return attend_on_rank(group, case, "cuda")
    finally:
        attention.Ranks = before


TOLERANCES = (0.5, 0.09, 0.04, 1e-4)


def choose_within(group: Any, queries: bool) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """The methods that are chosen within :data:`TOLERANCES`, and their outputs, of this rank's
    points or of all; which these are."""
    import torch.distributed as dist

    case = Case(
        "auto", 1.0, keys=400, queries=300 if queries else 0, heads=2, dim=4, dtype="float32"
    )
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    cloud = make_cloud(case)
    keys = owners(case, case.keys, size, False) == rank
    targets = owners(case, case.queries, size, True) == rank if queries else keys
    asked = None if cloud.queries is None else cloud.queries[targets]
    before, EXACT_PAIRS["cpu"] = EXACT_PAIRS["cpu"], dict.fromkeys(range(1, 9), 100**2)
    chosen = []
    try:
        for error in TOLERANCES:
            kept = Tolerance(error, heads=2)
            for _ in range(2):  # the second time as chosen before
                out = phgcn.global_attention(
                    cloud.positions[keys],
                    cloud.values[keys],
                    decay=1.0,
                    queries=asked,
                    tolerance=kept,
                    group=group,
                )
            chosen.append((str(kept.chosen), out))
    finally:
        EXACT_PAIRS["cpu"] = before
    return chosen, targets


def attend_wrongly(group: Any, how: str) -> None:
    """Calls with arguments that do not fit together."""
    import torch.distributed as dist

    rank, method, tolerance, kernel = dist.get_rank(group), "lattice", None, "exponential"
    positions, values, decay = torch.randn(20, 3), torch.randn(20, 4), 1.0
    if how == "width" and rank == 1:
        values = torch.randn(20, 5)
    elif how == "dimensions" and rank == 1:
        positions = torch.randn(20, 2)
    elif how == "type" and rank == 1:
        positions, values = positions.double(), values.double()
    elif how == "method" and rank == 1:
        method = "exact"
    elif how == "kernel" and rank == 1:
        kernel = "gaussian"
    elif how == "not finite" and rank == 1:
        values[3, 1] = torch.nan
    elif how == "too far" and rank == 1:
        positions[7, 0] = 1e20
    elif how == "decay" and rank == 1:
        decay = -1.0
    elif how == "tolerance":
        method, tolerance = "auto", 0.1 if rank == 0 else 0.2
    elif how == "device":
        positions, values = positions.to("meta"), values.to("meta")
    weights = torch.ones(20) if how == "weights" and rank == 1 else None
    options = {"weights": weights, "kernel": kernel, "method": method, "tolerance": tolerance}
    phgcn.global_attention(positions, values, decay=decay, group=group, **options)


def leave_waiting(group: Any, seconds: float) -> str:
    """Rank 0 attends while the others do not; returns the error that it gets."""
    from datetime import timedelta

    import torch.distributed as dist

    impatient = dist.new_group(
        list(range(dist.get_world_size(group))), timeout=timedelta(seconds=seconds)
    )
    if dist.get_rank(group) > 0:
        return ""
    try:
        phgcn.global_attention(torch.randn(20, 3), torch.randn(20, 4), group=impatient)
    except phgcn.distributed.RankError as error:
        return str(error)
    return "no error"

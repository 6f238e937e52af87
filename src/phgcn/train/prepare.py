r"""From a plan and a graph to the tasks of its splits, the model, and a training before its first epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import public_masks, splits
from ..distributed.collectives import Ranks
from ..nn.models import NodeModel
from ..registry import find_model
from . import graph as graphs
from . import settings as config
from .features import FeatureTransform, fit_features
from .loop import Task, Training
from .plan import Plan
from .similar import point_heads
from .tasks import find_task


class HeldNodes(NamedTuple):
    """The nodes whose features a process has, :math:`(N_r,)`, ascending, and the processes that have the others."""

    nodes: Tensor
    ranks: Ranks


def prepare(plan: Plan, data: Data, held: HeldNodes | None = None) -> list[Task]:
    """Prepares the task of every split, on the plan's device; splits share features unless these are fitted to each.

    Args:
        plan (Plan): What to train.
        data (torch_geometric.data.Data): The graph.
        held (HeldNodes, optional): Which nodes the features in it are of; every process that has some must call this.
            (default: :obj:`None`, all)
    """
    graphs.check_task(data, plan.task)
    fit, shared = _any_needs_fit(plan, data, held), None
    y, (edge_index, *edge_inputs) = data.y.to(plan.device), edges(plan, data)
    classes, values, tasks = len(graphs.class_names(data)), edge_values(plan, data), []
    for split in splits(data.y, plan.protocol, plan.splits, plan.seed, masks=public_masks(data)):
        train, val, test = (mask.nonzero().flatten().to(plan.device) for mask in (split.train, split.val, split.test))
        kind = find_task(plan.task).fitted(y[train], classes, plan.settings)
        transform = _fit(plan, data, train.cpu(), held) if fit else None
        if transform is None or transform.changes_nothing:
            shared = x = _on_device(plan, data.x) if shared is None else shared
        else:
            x = _on_device(plan, transform.apply(data.x))
        parts = x, edge_index, y, train, val, test, classes, plan.metric, tuple(edge_inputs), kind, values, transform
        columns = graphs.column_kinds(data.to_dict(), data.x.size(1), plan.columns.coordinates)
        tasks.append(Task(*parts, ids=graphs.node_names(data), columns=columns))
    return tasks


def _any_needs_fit(plan: Plan, data: Data, held: HeldNodes | None) -> bool:
    """Tells whether features are to be fitted: those of this process, or of another."""
    fit = graphs.needs_fit(data, plan.settings)
    return fit if held is None else bool(held.ranks.max(torch.tensor([int(fit)])))


def _fit(plan: Plan, data: Data, train: Tensor, held: HeldNodes | None) -> FeatureTransform:
    """Fits features to training nodes, of which this process may have some alone."""
    if held is not None:
        train = torch.searchsorted(held.nodes, train[torch.isin(train, held.nodes)])
    return fit_features(data.x, train, plan.settings.scaling, graphs.indicators(data), None if held is None else held.ranks)


def _on_device(plan: Plan, x: Tensor) -> Tensor:
    return graphs.features_on_device(x, plan.settings.normalise, plan.device)


def edges(plan: Plan, data: Data) -> tuple[Tensor, ...]:
    """Computes what the plan's model takes after ``x``: the edges, then what else it takes of them."""
    inputs = find_model(plan.model).inputs(data, config.used(plan.settings, plan.model), plan.seed)
    return tuple(tensor.to(plan.device) for tensor in inputs)


def edge_values(plan: Plan, data: Data) -> dict[str, Tensor]:
    """Returns the weights and features of edges that the plan's model takes, by the names of its arguments."""
    check_edge_weights(plan, data)
    return {name: data[name].to(plan.device) for name in taken_edge_values(plan) if name in data}


def check_edge_weights(plan: Plan, data: Data) -> None:
    """Refuses negative weights of edges where the plan's model reads them."""
    if "edge_weight" in taken_edge_values(plan) and "edge_weight" in data and bool((data.edge_weight < 0).any()):
        least = float(data.edge_weight.min())
        allowed = f"weights from 0 on for {plan.model}, or --edge-weight none"
        raise ValueError(f"{data.name}: the smallest edge weight is {least:.6g}; allowed: {allowed}")


def taken_edge_values(plan: Plan) -> tuple[str, ...]:
    """Returns which of ``edge_attr`` and ``edge_weight`` the plan's model takes."""
    return find_model(plan.model).edge_values_of(config.used(plan.settings, plan.model))


def build_for_task(plan: Plan, task: Task, **more: Any) -> NodeModel:
    """Builds the plan's model for a task, on its device; ``more`` as in :func:`build_model`."""
    outputs, attributes = task.kind.out_channels(task.classes), task.edge_values.get("edge_attr")
    edge_dim = 0 if attributes is None else attributes.size(1)
    more = {"columns": task.columns, **more}
    return build_model(plan, task.x.size(1), outputs, task.x.size(0), edge_dim=edge_dim, **more).to(plan.device)


def build_model(
    plan: Plan,
    features: int,
    outputs: int,
    nodes: int,
    edge_dim: int = 0,
    columns: Mapping[str, Any] | None = None,
    **more: Any,
) -> NodeModel:
    """Builds the plan's model, with random weights.

    Args:
        plan (Plan): Model and settings.
        features, outputs (int): Its input and output channels.
        nodes (int): The nodes of the graph, for models of one graph alone.
        edge_dim (int, optional): How many features edges have, for models that take them. (default: :obj:`0`)
        columns (dict, optional): What :func:`phgcn.train.graph.column_kinds` says of the features, for models that read
            columns. (default: :obj:`None`)
        **more (optional): Arguments of its class that are no settings.
    """
    entry, used = find_model(plan.model), config.used(plan.settings, plan.model)
    arguments = {key: getattr(plan.settings, key) for key in entry.settings} | dict(entry.fixed) | more
    if edge_dim and "edge_attr" in entry.edge_values_of(used):
        arguments["edge_dim"] = edge_dim
    if entry.reads_columns:
        arguments |= {"task": plan.task, **(columns or {})}
    if arguments.get("labels"):
        arguments["task"] = plan.task
    if entry.takes_num_nodes:
        arguments["num_nodes"] = nodes
    if arguments.get("norm") == "none":
        arguments["norm"] = None
    model: NodeModel = entry.model_class()(features, out_channels=outputs, **arguments)
    return model


@contextmanager
def seeded(seed: int, task: Task) -> Iterator[None]:
    """Seeds torch's random number generators within the context, and restores them afterwards."""
    devices = [task.x.device] if task.x.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def start(plan: Plan, task: Task, sample_every: int = 0) -> Training:
    """Returns a training of the plan's model before its first epoch; its global path is sampled every so many epochs.

    Attention to the input features begins at those by which nodes are similar (:mod:`phgcn.train.similar`), and behind closed
    gates if there are none.
    """
    model: Any = build_for_task(plan, task)
    if getattr(model, "global_at", None) == "input":
        for block in model.global_blocks:
            if task.similar is not None:
                point_heads(block, task.x, task.similar)
            else:
                torch.nn.init.zeros_(block.gate)
    return Training(model, task, plan.settings, sample_every)

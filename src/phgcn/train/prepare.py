"""Prepares tasks, model, kernels and training from a plan and a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..calls import choose_method
from ..data import public_masks, splits
from ..data.labels import without_labels
from ..data.splits import Split
from ..distributed.collectives import Ranks
from ..nn.models import NodeModel
from ..registry import find_model
from ..runtime.warm import Compilation, find_missing
from . import graph as graphs
from . import settings as config
from .features import FeatureTransform, fit_features
from .loop import Task, Training
from .plan import Plan
from .processes import OneProcess
from .similar import Similar, point_heads
from .tasks import find_task


class HeldNodes(NamedTuple):
    """The ascending nodes :math:`(N_r,)` whose features a process has, and all processes."""

    nodes: Tensor
    ranks: Ranks


def prepare(
    plan: Plan, data: Data, held: HeldNodes | None = None, only: int | None = None
) -> list[Task]:
    """Prepares the task of every split, or of split ``only``, on the plan's device. Splits share
    unfitted features. Every process with ``held`` nodes must call it."""
    graphs.check_task(data, plan.task)
    coordinates = ", ".join(plan.columns.coordinates)
    if coordinates and "coordinates" not in find_model(plan.model).columns:
        problem = f"coordinates is {coordinates} beside the model {plan.model}"
        raise ValueError(f"{problem}; allowed: with the models table and global-gnn")
    drawn = splits(data.y, plan.protocol, plan.splits, plan.seed, masks=public_masks(data))
    chosen = range(len(drawn)) if only is None else (only,)
    if not plan.per_split:
        return _tasks(plan, data, held, [drawn[split] for split in chosen])
    return [_tasks(plan.of(split), data, held, [drawn[split]])[0] for split in chosen]


def _tasks(plan: Plan, data: Data, held: HeldNodes | None, drawn: Sequence[Split]) -> list[Task]:
    y, (edge_index, *edge_inputs) = data.y.to(plan.device), edges(plan, data)
    coordinates, classes = plan.columns.coordinates, len(graphs.class_names(data))
    common: dict[str, Any] = {
        "metric": plan.metric,
        "edge_inputs": tuple(edge_inputs),
        "edge_values": edge_values(plan, data),
        "ids": graphs.node_names(data),
        "columns": graphs.column_kinds(data.to_dict(), data.x.size(1), coordinates),
    }
    fit, unchanged, tasks = _any_needs_fit(plan, data, held), None, []
    for split in drawn:
        masks = (split.train, split.val, split.test)
        train, val, test = (mask.nonzero().flatten().to(plan.device) for mask in masks)
        kind = find_task(plan.task).fitted(y[train], classes, plan.settings)
        transform = _fit(plan, data, train.cpu(), held) if fit else None
        if transform is None or transform.changes_nothing:
            unchanged = x = _on_device(plan, data.x) if unchanged is None else unchanged
        else:
            x = _on_device(plan, transform.apply(data.x))
        common |= {"kind": kind, "transform": transform}
        tasks.append(Task(x, edge_index, y, train, val, test, classes, **common))
    return tasks


def without_test(task: Task) -> Task:
    """Removes the labels of the test nodes from a task, and makes its test set empty."""
    return replace(task, y=without_labels(task.y, task.test), test=task.test[:0])


def _any_needs_fit(plan: Plan, data: Data, held: HeldNodes | None) -> bool:
    """Returns whether any process has features that are to be fitted."""
    fit = graphs.needs_fit(data, plan.settings)
    return fit if held is None else bool(held.ranks.max(torch.tensor([int(fit)])))


def _fit(plan: Plan, data: Data, train: Tensor, held: HeldNodes | None) -> FeatureTransform:
    """Fits features to the training nodes of all processes."""
    scaling, indicators = plan.settings.scaling, graphs.indicators(data)
    if held is None:
        return fit_features(data.x, train, scaling, indicators)
    train = torch.searchsorted(held.nodes, train[torch.isin(train, held.nodes)])
    return fit_features(data.x, train, scaling, indicators, held.ranks)


def _on_device(plan: Plan, x: Tensor) -> Tensor:
    return graphs.features_on_device(x, plan.settings.normalise, plan.device)


def edges(plan: Plan, data: Data) -> tuple[Tensor, ...]:
    """Computes the arguments of the plan's model after ``x``, the edges first."""
    inputs = find_model(plan.model).inputs(data, plan.seed)
    return tuple(tensor.to(plan.device) for tensor in inputs)


def edge_values(plan: Plan, data: Data) -> dict[str, Tensor]:
    """Returns the weights and features of edges that the plan's model takes, by argument."""
    check_edge_weights(plan, data)
    return {name: data[name].to(plan.device) for name in taken_edge_values(plan) if name in data}


def check_edge_weights(plan: Plan, data: Data) -> None:
    """Refuses negative edge weights if the plan's model reads them."""
    if "edge_weight" not in taken_edge_values(plan) or "edge_weight" not in data:
        return
    if bool((data.edge_weight < 0).any()):
        problem = f"{data.name}: the smallest edge weight is {float(data.edge_weight.min()):.6g}"
        none = "--edge-weight none (Python: edge_weight='none')"
        allowed = f"weights from 0 on for {plan.model}, or {none}"
        raise ValueError(f"{problem}; allowed: {allowed}")


def taken_edge_values(plan: Plan) -> tuple[str, ...]:
    """Returns the arguments of the plan's model among ``edge_attr`` and ``edge_weight``."""
    return find_model(plan.model).edge_values_of(config.used(plan.settings, plan.model))


def build_for_task(plan: Plan, task: Task, **more: Any) -> NodeModel:
    """Builds the plan's model for a task, on its device."""
    outputs, attributes = task.kind.out_channels(task.classes), task.edge_values.get("edge_attr")
    edge_dim = 0 if attributes is None else attributes.size(1)
    sizes = (task.x.size(1), outputs, task.x.size(0), edge_dim)
    model = build_model(plan, *sizes, **{"columns": task.columns, **more})
    model.to(plan.device)
    return model


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
        nodes (int): The nodes of the graph, for models of one graph only.
        edge_dim (int, optional): The number of features of edges. (default: :obj:`0`)
        columns (dict, optional): The kinds of features, by :func:`phgcn.train.graph.column_kinds`.
        **more (optional): Arguments of its class that are no settings.
    """
    entry = find_model(plan.model)
    arguments: dict[str, Any] = {key: getattr(plan.settings, key) for key in entry.settings}
    arguments |= {**entry.fixed, **more}
    if edge_dim and "edge_attr" in taken_edge_values(plan):
        arguments["edge_dim"] = edge_dim
    if entry.columns:
        arguments |= {name: columns[name] for name in entry.columns if columns}
        arguments["task"] = plan.task
    if entry.takes_num_nodes:
        arguments["num_nodes"] = nodes
    if arguments.get("norm") == "none":
        arguments["norm"] = None
    model: NodeModel = entry.model_class()(features, out_channels=outputs, **arguments)
    return model


@contextmanager
def seeded(seed: int, task: Task) -> Iterator[None]:
    """Seeds torch's random number generators in a context, and restores them at its end."""
    devices = [task.x.device] if task.x.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def start(
    plan: Plan, task: Task, sample_every: int = 0, processes: OneProcess | None = None
) -> Training:
    """Returns the training of the plan's model before its first epoch. Attention to input features
    begins at similar ones (:mod:`phgcn.train.similar`), or with closed gates."""
    processes = processes or OneProcess()
    more = processes.model_arguments(find_model(plan.model).model_class())
    model: Any = build_for_task(plan, task, **more)
    if getattr(model, "global_at", None) == "input":
        _begin_at_similar(model, task.similar)
    processes.synchronise(model)
    return Training(model, task, plan.settings, sample_every, processes)


def _begin_at_similar(model: Any, found: Similar | None) -> None:
    """Points attention at the features by which nodes are similar, or closes its gates."""
    if found is None:
        for block in model.global_blocks:
            torch.nn.init.zeros_(block.gate)
        return
    path = model.label_path
    for layer in (*model.global_blocks, *([] if path is None else path.attentions[:1])):
        point_heads(layer, found)
    if path is not None and found.labels:
        torch.nn.init.ones_(path.outputs.scale)


# a model with one of these settings reads neighbours through kernels of its own
NEIGHBOURS = ("local", "decay_local")


def missing_kernels(plan: Plan, nodes: int) -> Compilation:
    """Finds the uncompiled CPU kernels of a training on a graph with ``nodes`` nodes."""
    return find_missing(_rooms(plan, nodes))


def _rooms(plan: Plan, nodes: int) -> list[str]:
    """Lists the packages of the kernels on a CPU; other devices compile at the first call."""
    settings = config.used(plan.settings, plan.model)
    if plan.device != "cpu":
        return []
    rooms = ["structural.numba"] if any(key in settings for key in NEIGHBOURS) else []
    if "method" in settings and settings.get("global_layers", 1):
        method = choose_method(settings["method"], nodes * nodes, settings["embedding_dim"], "cpu")
        if method == "exact" or settings["tolerance"]:
            rooms.append("exact.numba")
        if method != "exact" or settings["tolerance"]:
            rooms.append("lattice.numba")
    return ["runtime", *rooms] if rooms else []

r"""Draws all figures of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data.labels import labelled, task_of
from ..train import graph as graphs
from ..train.plan import Trial
from ..train.prediction import choose_trial, logits, trial_inputs, trial_values
from ..train.prepare import prepare
from ..train.run import Run
from .attention import STRONGEST, DrawnNode, draw_attention, neighbours_of, pick_node, strongest_anywhere, strongest_neighbours
from .curves import draw_curves
from .embeddings import MAX_DOTS, draw_distances, draw_embeddings
from .layers import LayerView, view_layers
from .predictions import draw_predictions
from .style import FORMATS, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(
    run: Run,
    load: Callable[[], Data],
    out: str | Path,
    split: int | None = None,
    node: str | None = None,
    layer: int = 0,
    kind: str = "png",
) -> list[Path]:
    """Draws a run: learning curves, predictions for test nodes beside the truth and, for models with an embedding, the
    embedding of a layer by label, its distances against those in the graph, and what one node attends to.

    Args:
        run (Run): A run with at least one trained split.
        load (callable): Loads the run's graph.
        out (str or Path): A folder.
        split (int, optional): The split whose model is drawn. (default: :obj:`None`, the best on validation nodes)
        node (str, optional): The id of the node whose attention is drawn. (default: :obj:`None`, a test node)
        layer (int, optional): Which layer's embedding; of ``global-gnn``, which of its global blocks. (default: :obj:`0`)
        kind (str, optional): ``"png"``, ``"svg"`` or ``"pdf"``. (default: :obj:`"png"`)

    Returns:
        The files.
    """
    if kind not in FORMATS:
        raise ValueError(f"format is {kind!r}; allowed: {', '.join(FORMATS)}")
    trial, data = choose_trial(run, split), load()
    task = prepare(run.plan, data)[trial.split]
    scored = (task.test if len(task.test) else task.val).cpu()
    number = pick_node(node, graphs.node_names(data), scored)  # before anything is drawn
    view = _choose_view(run, trial, data, layer)
    figures = {"curves": draw_curves(run), **_draw_predictions(run, trial, data, scored)}
    if view is not None:
        about = f"{run.plan.model} on {data.name}, {trial.name}, {view.name.replace('-', ' ')}"
        shown, by = _shown_labels(run, trial, data)
        figures |= _draw_layer(view, data, about, shown, by)
        figures |= _draw_attention(view, DrawnNode(number, neighbours_of(number, data.edge_index)), data, about)
    return [save(figure, Path(out) / f"{name}.{kind}") for name, figure in figures.items()]


def _choose_view(run: Run, trial: Trial, data: Data, layer: int) -> LayerView | None:
    """Returns what one layer with an embedding shows, or of ``global-gnn`` one global block; none if there is none."""
    model, values = run.model(trial).to(run.plan.device), trial_values(run, trial, data)
    views = view_layers(model, trial_inputs(run, trial, data), values)
    views = [view for view in views if view.positions is not None and not view.name.startswith("local")]
    if views and not 0 <= layer < len(views):
        blocks = ", the blocks of global attention" if views[0].name.startswith("global") else ""
        raise ValueError(f"layer is {layer}; allowed: 0 to {len(views) - 1}{blocks}")
    return views[layer] if views else None


def _draw_predictions(run: Run, trial: Trial, data: Data, nodes: Tensor) -> dict[str, Figure]:
    predicted = run.kind(trial).predict(logits(run, trial, data)[nodes])
    title = f"{run.plan.model} on {data.name}, {trial.name}: {len(nodes):,} nodes that were not trained on"
    name, figure = draw_predictions(run.plan.task, predicted, data.y[nodes], graphs.class_names(data), title)
    return {name: figure}


def _shown_labels(run: Run, trial: Trial, data: Data) -> tuple[Tensor, str]:
    """Returns what nodes are coloured by: their labels, or of many nodes what is predicted of them, and what that is.

    In a density nodes without a label would cover the others.
    """
    if int(data.num_nodes) <= MAX_DOTS:
        return data.y, "label"
    return run.kind(trial).predict(logits(run, trial, data)).to(data.y.dtype), "prediction"


def _draw_layer(view: LayerView, data: Data, about: str, shown: Tensor, by: str) -> dict[str, Figure]:
    assert view.positions is not None
    title = f"Embeddings, coloured by {by}: {about}"
    return {
        "embeddings": draw_embeddings(view.positions, shown, graphs.class_names(data), title),
        "distances": draw_distances(view.positions, data.edge_index, f"Distances: {about}"),
    }


def _draw_attention(view: LayerView, node: DrawnNode, data: Data, about: str) -> dict[str, Figure]:
    """Draws what a node attends to: of its neighbours, and of all nodes, where the layer does so."""
    ids, figures = graphs.node_names(data), {}
    strongest = {}
    if view.edges is not None and view.weights is not None:
        strongest["attention-neighbours"] = strongest_neighbours(view.edges, view.weights, node.number)
    if view.decay is not None:
        targets, weights = view.strongest(STRONGEST + 1, torch.tensor([node.number]))
        strongest["attention-global"] = strongest_anywhere(targets[0], weights[0])
    for name, heads in strongest.items():
        whom = "to neighbours" if name == "attention-neighbours" else "to all nodes (neighbours in bold)"
        title = f"Attention {whom} of node {ids[node.number]} ({_label_of(data, node.number)}): {about}"
        figures[name] = draw_attention(heads, node, data.y, ids, graphs.class_names(data), title)
    return figures


def _label_of(data: Data, node: int) -> str:
    """Returns the label of a node in words."""
    if not bool(labelled(data.y)[node]):
        return "unlabelled"
    if task_of(data.y) == "regression":
        return f"{float(data.y[node]):.4g}"
    names = graphs.class_names(data)
    if data.y.dim() == 1:
        return names[int(data.y[node])]
    return ", ".join(name for name, holds in zip(names, data.y[node].tolist(), strict=True) if holds) or "none"

"""Draws all figures of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor
from torch_geometric.data import Data

from ..data.labels import labelled
from ..train import graph as graphs
from ..train.prediction import TrialModel, choose_trial, split_of, trial_model
from ..train.run import Run
from .attention import draw_attention, label_of, strongest_anywhere, strongest_neighbours
from .curves import draw_curves
from .embeddings import MAX_DOTS, draw_distances, draw_embeddings
from .export import find_nodes
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
    layer: int | None = None,
    kind: str = "png",
) -> list[Path]:
    """Draws a run: learning curves and predictions beside the truth; with an embedding, also a
    layer's embedding by label, its distances against graph distances, and one node's attention.
    Returns the files.

    Args:
        run (Run): A run with at least one trained split.
        load (callable): Loads the run's graph.
        out (str or Path): A folder.
        split (int, optional): The split whose model is drawn. (default: :obj:`None`, the best on
            validation nodes)
        node (str, optional): The id of the node whose attention is drawn. (default: :obj:`None`, a
            test node)
        layer (int, optional): The layer of the embedding; of ``global-gnn`` the global block.
            (default: :obj:`None`, the first, and attention to labels)
        kind (str, optional): ``"png"``, ``"svg"`` or ``"pdf"``. (default: :obj:`"png"`)
    """
    if kind not in FORMATS:
        raise ValueError(f"format is {kind!r}; allowed: {', '.join(FORMATS)}")
    trial, data = choose_trial(run, split), load()
    nodes, names = split_of(run.plan, trial, data), graphs.class_names(data)
    scored = (nodes.test if nodes.test.any() else nodes.val).nonzero().flatten()
    number = int(scored[0] if node is None else find_nodes([node], data))
    trained = trial_model(run, trial, data)
    views = _choose_views(trained, layer)  # before anything is drawn
    predicted = run.kind(trial).predict(trained.logits())
    about = f"{trial.plan.model} on {data.name}, {trial.name}"
    title = f"{about}: {len(scored):,} nodes that were not trained on"
    name, drawn = draw_predictions(run.plan.task, predicted[scored], data.y[scored], names, title)
    figures = {"curves": draw_curves(run), name: drawn}
    for view in views:
        of_view = f"{about}, {view.name.replace('-', ' ')}"
        drawn_of_view = {
            **_draw_layer(view, data, of_view, predicted),
            **_draw_attention(view, number, data, of_view),
        }
        ending = "" if view is views[0] else f"-{view.name}"
        figures |= {f"{name}{ending}": figure for name, figure in drawn_of_view.items()}
    return [save(figure, Path(out) / f"{name}.{kind}") for name, figure in figures.items()]


def _choose_views(trained: TrialModel, layer: int | None) -> list[LayerView]:
    """Returns views of layers with an embedding, of ``global-gnn`` without local ones: one layer,
    or the first and attention to labels."""
    views = view_layers(trained.model, trained.inputs, trained.values)
    views = [view for view in views if not view.name.startswith("local")]
    views = [view for view in views if view.positions is not None]
    if layer is None or not views:
        return [view for view in views if view is views[0] or view.name.startswith("labels")]
    if not 0 <= layer < len(views):
        blocks = ", the blocks of global attention" if views[0].name.startswith("global") else ""
        raise ValueError(f"layer is {layer}; allowed: 0 to {len(views) - 1}{blocks}")
    return [views[layer]]


def _draw_layer(view: LayerView, data: Data, about: str, predicted: Tensor) -> dict[str, Figure]:
    assert view.positions is not None
    shown, by = data.y, "label"
    # a density mixes colours, and nodes without a label would be grey
    if len(predicted) > MAX_DOTS or not bool(labelled(data.y).all()):
        shown, by = predicted.to(data.y.dtype), "prediction"
    title = f"Embeddings, coloured by {by}: {about}"
    return {
        "embeddings": draw_embeddings(view.positions, shown, graphs.class_names(data), title),
        "distances": draw_distances(view.positions, data.edge_index, f"Distances: {about}"),
    }


def _draw_attention(view: LayerView, node: int, data: Data, about: str) -> dict[str, Figure]:
    """Draws a node's attention to its neighbours and to all nodes, where the layer has it."""
    of = f"of node {data.node_id[node]} ({label_of(data, node)}): {about}"
    figures = {}
    if view.edges is not None:
        found, title = strongest_neighbours(view, node), f"Attention to neighbours {of}"
        figures["attention-neighbours"] = draw_attention(found, node, data, title)
    if view.decay is not None:
        bold = " (neighbours in bold)" if data.edge_index.size(1) else ""
        title = f"Attention to all nodes{bold} {of}"
        found = strongest_anywhere(view, node)
        figures["attention-global"] = draw_attention(found, node, data, title)
    return figures

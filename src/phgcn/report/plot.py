r"""Draws all figures of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..train import graph as graphs
from ..train.prediction import choose_trial
from ..train.run import Run, prepare
from .attention import STRONGEST, draw_attention, neighbours_of, pick_node, strongest_anywhere, strongest_neighbours
from .curves import draw_curves
from .embeddings import draw_distances, draw_embeddings, layer_input
from .style import FORMATS, save


def plot(
    run: Run,
    load: Callable[[], Data],
    out: str | Path,
    split: int | None = None,
    node: str | None = None,
    layer: int = 0,
    kind: str = "png",
) -> list[Path]:
    """Draws a run: learning curves and, for models with an embedding, the embedding of a layer by class, its distances
    against those in the graph, and what one node attends to.

    Args:
        run (Run): A run with at least one trained split.
        load (callable): Loads the run's graph; called only if a figure needs it.
        out (str or Path): A folder.
        split (int, optional): The split whose model is drawn. (default: :obj:`None`, the one with the smallest validation
            loss)
        node (str, optional): The id of the node whose attention is drawn. (default: :obj:`None`, a test node)
        layer (int, optional): Which layer's embedding. (default: :obj:`0`)
        kind (str, optional): ``"png"``, ``"svg"`` or ``"pdf"``. (default: :obj:`"png"`)

    Returns:
        The files.
    """
    out = Path(out)
    if kind not in FORMATS:
        raise ValueError(f"format is {kind!r}; allowed: {', '.join(FORMATS)}")
    trial = choose_trial(run, split)
    files = [save(draw_curves(run), out / f"curves.{kind}")]
    model = run.model(trial)
    if not hasattr(model.convs[0], "project"):  # layers without an embedding
        return files
    data = load()
    x = graphs.scale_features(data.x, run.plan.settings.normalise)
    names, ids = graphs.class_names(data), graphs.node_names(data)
    hidden = layer_input(model, layer, x, data.edge_index)
    conv: Any = model.convs[layer]
    with torch.no_grad():
        positions, _ = conv.project(hidden)
        _, (edges, weights) = conv(hidden, data.edge_index, return_attention_weights=True)
    about = f"{run.plan.model} on {data.name}, {trial.name}, layer {layer}"
    files.append(save(draw_embeddings(positions, data.y, names, f"Embeddings: {about}"), out / f"embeddings.{kind}"))
    files.append(save(draw_distances(positions, data.edge_index, f"Distances: {about}"), out / f"distances.{kind}"))
    chosen = pick_node(node, ids, prepare(run.plan, data)[trial.split].test)
    neighbours = neighbours_of(chosen, data.edge_index)
    strongest = {"attention-neighbours": strongest_neighbours(edges, weights, chosen)}
    if hasattr(conv, "top_attention"):
        targets, strengths = conv.top_attention(hidden, data.edge_index, STRONGEST, torch.tensor([chosen]))
        strongest["attention-global"] = strongest_anywhere(targets[0], strengths[0])
    for name, heads in strongest.items():
        whom = "to neighbours" if name == "attention-neighbours" else "to all nodes (neighbours in bold)"
        figure = draw_attention(heads, data.y, ids, names, neighbours, f"Attention {whom} of node {ids[chosen]}: {about}")
        files.append(save(figure, out / f"{name}.{kind}"))
    return files

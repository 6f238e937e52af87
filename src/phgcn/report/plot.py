r"""Draws all figures of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch_geometric.data import Data

from ..train import graph as graphs
from ..train.prediction import choose_trial
from ..train.run import Run, prepare
from .attention import STRONGEST, draw_attention, neighbours_of, pick_node, strongest_anywhere, strongest_neighbours
from .curves import draw_curves
from .embeddings import draw_distances, draw_embeddings
from .layers import has_embedding, view_layer
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
        split (int, optional): The split whose model is drawn. (default: :obj:`None`, the best on validation nodes)
        node (str, optional): The id of the node whose attention is drawn. (default: :obj:`None`, a test node)
        layer (int, optional): Which layer's embedding; of ``global-gnn``, which of its global blocks. (default: :obj:`0`)
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
    if not has_embedding(model):
        return files
    data = load()
    x = graphs.scale_features(data.x, run.plan.settings.normalise)
    names, ids = graphs.class_names(data), graphs.node_names(data)
    view = view_layer(model, layer, x, data.edge_index)
    about = f"{run.plan.model} on {data.name}, {trial.name}, layer {layer}"
    files.append(save(draw_embeddings(view.positions, data.y, names, f"Embeddings: {about}"), out / f"embeddings.{kind}"))
    files.append(save(draw_distances(view.positions, data.edge_index, f"Distances: {about}"), out / f"distances.{kind}"))
    chosen = pick_node(node, ids, prepare(run.plan, data)[trial.split].test)
    neighbours = neighbours_of(chosen, data.edge_index)
    strongest = {}
    if view.edges is not None and view.weights is not None:
        strongest["attention-neighbours"] = strongest_neighbours(view.edges, view.weights, chosen)
    if view.decay is not None:
        strongest["attention-global"] = strongest_anywhere(*view.strongest(chosen, STRONGEST))
    for name, heads in strongest.items():
        whom = "to neighbours" if name == "attention-neighbours" else "to all nodes (neighbours in bold)"
        figure = draw_attention(heads, data.y, ids, names, neighbours, f"Attention {whom} of node {ids[chosen]}: {about}")
        files.append(save(figure, out / f"{name}.{kind}"))
    return files

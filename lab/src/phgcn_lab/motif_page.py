r"""The explorer's page of a network of :mod:`phgcn_lab.motif`, on fresh chains."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from phgcn.explore import Column, Content, Side, gather_graph, gather_views, write_page
from phgcn.explore.gather import prediction_columns
from phgcn.files import read_tensors

from .motif import Plan, Trial, start
from .motif_graphs import COLOURS, motif_graphs

GRAPHS = 12  # Chains on a page

LABELS = ("motif is rare", "motif is frequent")


def write_motif_page(plan: Plan, folder: Path) -> Path | None:
    """Writes ``explore.html`` of the first PH-GCN whose weights are there, if any."""
    trials = [
        Trial(case, 0, plan[case], folder / "trials") for case in plan if case.model == "phgcn"
    ]
    trained = [trial for trial in trials if trial.weights.is_file() and trial.result() is not None]
    if not trained or importlib.util.find_spec("plotly") is None:
        return None
    path = folder / "explore.html"
    write_page(motif_content(trained[0]), path)
    return path


@torch.no_grad()
def motif_content(trial: Trial) -> Content:
    model = start(trial)
    model.load_state_dict(read_tensors(trial.weights)[0])
    data = chains(trial)
    inputs = data.x, data.edge_index, data.batch
    output: Tensor = model(*inputs)
    said = prediction_columns(output.argmax(dim=1), output.softmax(dim=1), data.y, LABELS)
    result = trial.result() or {}
    ids, starts, sources, columns = gather_graph(data)
    about = {"accuracy in the end": f"{result['accuracy'][-1]:.3f}", "chains": str(GRAPHS)}
    about["red nodes"] = str(int((data.y >= 0).sum()))
    side = Side(
        f"{trial.case.title}, trial {trial.number}",
        gather_views(model, inputs, output),
        [_of_red_nodes(column, data.y) for column in said],
        about,
        {"epoch": result["iterations"], "accuracy": result["accuracy"]},
    )
    colour = Column("colour", data.x.argmax(dim=1).numpy().astype(np.int32), COLOURS)
    of_chains = [f"chain {number}" for number in range(GRAPHS)]
    chain = Column("chain", data.batch.numpy().astype(np.int32), of_chains)
    named = [column for column in columns if not column.name.startswith("feature")]
    title = "Which motif is frequent? What the network attends to"
    return Content(title, ids, starts, sources, [colour, *named, chain], [side], data.batch.numpy())


def chains(trial: Trial) -> Data:
    seed = (trial.number, trial.effort.iterations, 2)
    data = motif_graphs(GRAPHS, trial.case.elements, trial.case.variant, seed)
    index = torch.arange(len(data.batch)) - torch.searchsorted(data.batch, data.batch)
    nodes = zip(data.batch.tolist(), index.tolist(), strict=True)
    data.num_nodes, data.classes = len(data.batch), list(LABELS)
    data.node_id = [f"chain {chain}, node {node}" for chain, node in nodes]
    return data


def _of_red_nodes(column: Column, labels: Tensor) -> Column:
    """Keeps what is said of red nodes: the others are not asked."""
    asked = labels.numpy() >= 0
    nothing = -1 if column.categories is not None else np.nan
    values = np.where(asked, column.values, nothing).astype(column.values.dtype)
    return Column(column.name, values, column.categories)

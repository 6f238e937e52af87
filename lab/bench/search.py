r"""The marks of the search of ``phgcn train``: does it find what only a far node tells, and does it
lose nothing elsewhere?

    python lab/bench search                       # everything, an hour and a half on two cores
    python lab/bench search --only songs far      # the tutorial's graph and made-up tasks
    python lab/bench search --only graphs --rows texas cora

- ``songs``: the tutorial's graph, drawn from five seeds, three splits, no options. Mark: 90 % of
  test nodes.
- ``far``: made-up tasks (:mod:`phgcn_lab.when.far`), the fixed ones and some that are drawn at
  random, three splits. Mark: 90 %, of numbers R² .9.
- ``graphs``: the chosen model against each candidate that the search begins with, trained in full
  on the same splits: three where validation nodes are few, else the first. Mark: validation at
  most half a point below the best, and search and training on three splits take at most three
  times as long as training alone. Generated graphs are among them.
- ``recipes``: ways to let ``global-gnn`` find the songs, three seeds, one split each.

Parts and rows that are there and not asked for stay. Ratios are of processor time, as the machine
may be shared.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common
import torch
from registry import measurement
from torch import Tensor
from torch_geometric.data import Data

from phgcn.files import read_json
from phgcn.train import Plan, Run, find
from phgcn.train import search as search_settings
from phgcn.train.candidates import candidates, start_settings
from phgcn.train.graph import default_metric
from phgcn.train.loop import Training
from phgcn.train.prepare import prepare, seeded, start
from phgcn.train.search import FEW_NODES
from phgcn.train.settings import Settings, change
from phgcn_lab.markdown import table
from phgcn_lab.when.far import FarTask

SEEDS = range(1, 6)
FAR = (
    FarTask(200, distractors=4),
    FarTask(400, classes=3, key=3, distractors=8),
    FarTask(600, classes=0, distractors=4),
    FarTask(1000, classes=4, distractors=12),
    FarTask(2000, classes=0, key=5, distractors=6),
    FarTask(5000, distractors=8),
)
DRAWS = 5  # Made-up tasks that are drawn at random
# Generated graphs: whether edges tell the class, the number of features, whether these tell it
NEAR = {
    "blocks, random features": (True, 8, False),
    "blocks, a feature for each node": (True, 0, False),
    "classes in features, random edges": (False, 8, True),
}
GRAPHS = ("texas", "wisconsin", *NEAR, "cora", "actor", "minesweeper")
PARTS = ("songs", "far", "recipes", "graphs")

_FIRST = {"local": "none", "num_layers": 1, "norm": "none"}
_NO_DROPOUT = {"dropout": 0.0, "input_dropout": 0.0}
_TOP = {"global_at": "top", **_NO_DROPOUT}
FIRST_EPOCHS = 100


def with_open_gates(training: Training) -> None:
    """Lets the gates of global attention begin at .1."""
    for block in training.model.global_blocks:
        torch.nn.init.constant_(block.gate, 0.1)


def with_own_loss(training: Training) -> None:
    """Adds the loss of predictions from the global path, by the network's last linear map."""
    model, loss, added = training.model, training._loss, []
    model.global_blocks[0].lin_out.register_forward_hook(lambda *call: added.append(call[2]))

    def both(logits: Tensor, *rest: Any) -> Tensor:
        return loss(logits, *rest) + loss(model.lin_out(added[-1]), *rest)

    training._loss = both


def with_global_path_first(training: Training) -> None:
    """Trains without the local layers changing, then all."""
    training.model.local_blocks.requires_grad_(False)
    while training.state.epoch < FIRST_EPOCHS:
        training.epoch()
    training.model.local_blocks.requires_grad_(True)


BEGINNINGS = {
    "on top, gate from .1": with_open_gates,
    "on top, own loss on the global path": with_own_loss,
    "on top, global path first": with_global_path_first,
}
"""What is done before the first epoch of some recipes."""

RECIPES: dict[str, tuple[str, dict]] = {
    "the local network only": ("global-gnn", {"global_layers": 0}),
    "attention on top, gate from 0": ("global-gnn", {"global_at": "top", "decay": 1.0}),
    "on top, no dropout, decay 10": ("global-gnn", _TOP),
    "on top, dropout .8 of the body, decay 10": (
        "global-gnn",
        {"global_at": "top", "dropout": 0.8, "input_dropout": 0.0},
    ),
    "on top, gate from .1": ("global-gnn", _TOP),
    "on top, own loss on the global path": ("global-gnn", _TOP),
    "on top, global path first": ("global-gnn", _TOP),
    "on top, after the local network is trained": (
        "global-gnn",
        {"global_at": "top", "local_epochs": 100},
    ),
    "in each layer, no dropout, decay 10": ("global-gnn", {"global_at": "each", **_NO_DROPOUT}),
    "in the only layer, no local one, no dropout": (
        "global-gnn",
        {"global_at": "each", **_FIRST, **_NO_DROPOUT},
    ),
    "labels as values": ("global-gnn", {"global_layers": 0, "labels": True}),
    "at the input, by features that tell (the default)": ("global-gnn", {}),
    "the paper's network": ("phgcn", {}),
    "the paper's, no dropout, rate .03": ("phgcn", {"dropout": 0.0, "learning_rate": 0.03}),
}
"""Ways to train on the songs: a model, and its settings beside those that it starts from."""


def draw_songs(seed: int) -> Data:
    """Draws the tutorial's graph from a seed."""
    text = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("songs", "settings.toml"):
            code = code.replace(f'"{name}', f'"{folder}/{name}')
        exec(code.replace("random.seed(1)", f"random.seed({seed})"), {})
        return find(f"{folder}/songs")[1]


def draw_near(name: str, nodes: int = 1000, classes: int = 4, degree: int = 5) -> Data:
    """Draws a graph of :data:`NEAR`: edges lead to a node of the same class more often than by
    chance, or features are near the centre of their class. Without features each node has one of
    its own.
    """
    edges_tell, features, features_tell = NEAR[name]
    random = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % classes
    source = torch.arange(nodes).repeat(degree)
    target = torch.randint(nodes, source.shape, generator=random)
    if edges_tell:  # half of them lead to the class of their source
        same = torch.rand(source.shape, generator=random) < 0.5
        target = torch.where(same, (target - target % classes + y[source]) % nodes, target)
    x = torch.randn(nodes, features, generator=random) if features else torch.eye(nodes)
    if features_tell:
        x += torch.randn(classes, features, generator=random)[y]
    edges = torch.stack([source, target])[:, source != target]
    data = Data(x=x, y=y, edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    data.num_nodes, data.name, data.num_classes = nodes, name, classes
    data.node_id = [f"n{number}" for number in range(nodes)]
    data.classes = [f"c{number}" for number in range(classes)]
    return data


def draw_task(seed: int) -> FarTask:
    """Draws a made-up task of 200 to 5,000 nodes."""
    chance = random.Random(seed)
    return FarTask(
        int(200 * 25 ** chance.random()),
        classes=chance.choice((0, 2, 3, 5)),
        key=chance.randint(4, 6),
        distractors=chance.randint(0, 16),
        noise=chance.choice((0.02, 0.05)),
    )


def train(data: Data, splits: int = 3, yardsticks: str = "all") -> dict:
    """Searches and trains as `phgcn train` does without options; returns scores and times. The
    ratio is of three splits, each of which takes as long as the trained ones.
    """
    plan = Plan(str(data.name), "global-gnn", splits=splits, metric=metric_of(data), task=data.task)
    plan = replace(plan, yardsticks=yardsticks)
    begin = time.perf_counter(), time.process_time()
    chosen, seen = search_settings(plan, data)
    searched = time.process_time() - begin[1]
    with tempfile.TemporaryDirectory() as folder:
        result = Run.create(Path(folder) / "run", chosen, data, search=seen).train(data)
    whole = time.process_time() - begin[1]
    return {
        "chosen": seen["chosen"],
        "metric": plan.metric,
        "test": result["test"]["mean"],
        "val": result["val_metric"]["mean"],
        "val_splits": [row["val_metric"] for row in result["splits"]],
        "test_splits": [row["test"] for row in result["splits"]],
        "sentence": seen["sentence"],
        "epochs": seen["epochs"],
        "seconds": time.perf_counter() - begin[0],
        "processor_seconds": whole,
        "search_processor_seconds": searched,
        "ratio": 1 + searched / (whole - searched) * splits / 3,
    }


def metric_of(data) -> str:
    return "r2" if data.task == "regression" else default_metric(data)


def graph_row(name: str) -> dict:
    """Compares the chosen model with all candidates that the search begins with, each trained in
    full on the same splits.
    """
    data = draw_near(name) if name in NEAR else find(name)[1]
    data.task = "classification"
    plan = Plan(name, "global-gnn", splits=3, metric=metric_of(data))
    splits = 3 if len(prepare(plan, data)[0].val) < FEW_NODES else 1
    row = {"graph": name, **train(data, splits, "none"), "splits": splits, "candidates": {}}
    for candidate in candidates(data, "cpu"):
        if candidate.name == row["chosen"]:  # the same bits
            row["candidates"][candidate.name] = {"val": row["val"], "test": row["test"]}
            continue
        trained = replace(plan, model=candidate.model, settings=candidate.settings)
        tasks = prepare(trained, data)[:splits]
        if candidate.settings.global_at == "input" and tasks[0].similar is None:
            continue  # not tried by the search either
        scores = []
        for trial, task in zip(trained.trials(), tasks, strict=False):
            with seeded(trial.seed, task):
                training = start(trained, task)
                while not training.done:
                    training.epoch()
            best = training.best
            scores.append((best.val_metric, best.test_metric))
        val, test = (statistics.mean(column) for column in zip(*scores, strict=True))
        row["candidates"][candidate.name] = {"val": val, "test": test}
        print(name, candidate.name, row["candidates"][candidate.name], flush=True)
    return row


def recipe_row(name: str, seeds: Sequence[int]) -> dict:
    """Trains one recipe on the songs of each seed; returns the test accuracies."""
    model, changes = RECIPES[name]
    tests = []
    for seed in seeds:
        data = draw_songs(seed)
        values = start_settings(data, model, "cpu")
        settings = change(Settings(), {**(values.values if values else {}), **changes}, model, name)
        plan = Plan("songs", model, splits=1, settings=settings)
        task = prepare(plan, data)[0]
        with seeded(plan.trials()[0].seed, task):
            training = start(plan, task)
            BEGINNINGS.get(name, lambda training: None)(training)
            while not training.done:
                training.epoch()
        tests.append(training.best.test_metric)
    return {"recipe": name, "model": model, "settings": changes, "tests": tests}


def jobs(part: str) -> dict[str, Callable[[], dict]]:
    """Returns what measures each row of a part, by its name."""
    if part == "songs":
        return {
            f"songs, seed {seed}": lambda s=seed: {"seed": s, **train(draw_songs(s))}
            for seed in SEEDS
        }
    if part == "far":
        tasks = [*FAR, *map(draw_task, range(DRAWS))]
        return {t.name: lambda t=t: {"task": t.name, **train(t.draw(0))} for t in tasks}
    if part == "recipes":
        return {name: partial(recipe_row, name, range(1, 4)) for name in RECIPES}
    return {name: partial(graph_row, name) for name in GRAPHS}


def name_of(row: dict) -> str:
    names = [row[key] for key in ("graph", "task", "recipe") if key in row]
    return names[0] if names else f"songs, seed {row['seed']}"


def search_marks(measured: dict) -> list[str]:
    """What `phgcn train` chose and scored without options, by kind of task, and on each graph the
    best candidate trained in full.
    """
    songs = {"songs of the tutorial": measured["songs"]}
    numbers = {False: "made-up tasks of classes", True: "made-up tasks of numbers"}
    far = {
        title: [row for row in measured["far"] if (row["metric"] == "r2") == is_number]
        for is_number, title in numbers.items()
    }
    rows = []
    for title, found in {**songs, **far}.items():
        picks = Counter(row["chosen"] for row in found).most_common()
        chosen = ", ".join(f"{name} ({count})" for name, count in picks)
        tests = [row["test"] for row in found]
        cells = [title, str(len(found)), chosen, found[0]["metric"], f"{min(tests):.3f}"]
        rows.append([*cells, f"{max(tests):.3f}", f"{max(row['ratio'] for row in found):.1f}"])
    heading = ["tasks", "number", "chosen", "test", "least", "most", "longest search"]
    lines = [*_commits(measured, ("songs", "far", "graphs")), "", *table(heading, rows)]
    graphs = [_graph_cells(row) for row in measured.get("graphs", ())]
    heading = ["graph", "chosen", "metric", "test", "validation", "best candidate", "its name"]
    return [*lines, "", *table([*heading, "times training alone"], graphs)] if graphs else lines


def _graph_cells(row: dict) -> list[str]:
    best = max(row["candidates"], key=lambda name: row["candidates"][name]["val"])
    values = (row["test"], row["val"], row["candidates"][best]["val"])
    scores = [f"{value:.3f}" for value in values]
    return [name_of(row), row["chosen"], row["metric"], *scores, best, f"{row['ratio']:.1f}"]


def _commits(measured: dict, parts: Sequence[str]) -> list[str]:
    """Says at which commits the rows of each part were measured, and when the last of all were."""
    commits = [
        f"{part} at commit {', '.join(dict.fromkeys(row['commit'][:7] for row in measured[part]))}"
        for part in parts
        if measured.get(part)
    ]
    return [f"{'; '.join(commits)}; {measured['provenance']['date'][:10]}:"]


def search_recipes(measured: dict) -> list[str]:
    """Test accuracy of ways to train on the tutorial's graph: the mean over seeds."""
    rows = [
        [row["recipe"], row["model"], f"{100 * statistics.mean(row['tests']):.1f}"]
        for row in measured["recipes"]
    ]
    heading = ["recipe", "model", "test"]
    return [*_commits(measured, ("recipes",)), "", *table(heading, rows)]


@measurement(
    only={"nargs": "+", "choices": PARTS, "default": PARTS},
    rows={"nargs": "+", "default": None},
)
def search(options: argparse.Namespace) -> Iterator[dict]:
    """Marks of the search of phgcn train, on songs, made-up tasks and graphs."""
    search_settings(Plan("far", "global-gnn"), FarTask(200).draw(0))  # loads kernels, not measured
    content = read_json(options.kept) if options.kept.is_file() else {}
    content = {part: content[part] for part in PARTS if part in content}
    commit = common.provenance()["commit"]
    for part in options.only:
        tasks = jobs(part)
        rows = {name_of(row): row for row in content.get(part, []) if name_of(row) in tasks}
        for name in (name for name in tasks if not options.rows or name in options.rows):
            rows[name] = {**tasks[name](), "commit": commit}
            print(rows[name], flush=True)
            content[part] = [rows[name] for name in tasks if name in rows]
            yield content

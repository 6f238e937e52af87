r"""``phgcn train`` and ``phgcn tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ..registry import DEFAULT_MODEL, TABLE_MODEL, find_model, model_names
from ..text import printable
from . import options
from .reading import Reading, flag_of, reads_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..train.plan import Plan
    from ..train.run import Run
    from ..train.settings import Resolved

TIMEOUT = 300.0
"""Seconds that a process waits for the others."""

NO_SEARCH = "none"
EFFORTS = (NO_SEARCH, "short", "long")

DEFAULTS = {"model": DEFAULT_MODEL, "protocol": "paper", "repeats": 1, "seed": 0}

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"One of the models below. \\[default: {DEFAULT_MODEL}]",
        show_default=False,
        autocompletion=options.complete_model,
    ),
]
Searching = Annotated[
    str | None,
    typer.Option(
        "--search",
        help="How long models and settings are tried, if no --model is named: none, short, long. \\[default: short]",
        show_default=False,
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="How nodes are split: paper, geom, balanced, official, final. \\[default: paper]", show_default=False
    ),
]


class ListsModels(TyperCommand):
    """A command whose help ends with the names of all registered models."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.epilog = f"Models: {', '.join(model_names())}."
        super().format_help(ctx, formatter)


@reads_graph
def train(
    graph: options.Graph,
    model: Model = None,
    search: Searching = None,
    protocol: Protocol = None,
    splits: Annotated[
        int | None,
        typer.Option(
            help="How many splits. \\[default: 3; 1 of a very large graph on a CPU]; papers take 10", show_default=False
        ),
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Trainings per split. \\[default: 1]", show_default=False)] = None,
    seed: Annotated[
        int | None, typer.Option(help="What all randomness follows from. \\[default: 0]", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder of the run. \\[default: runs/GRAPH-MODEL-PROTOCOL]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that is there.")] = False,
    config: options.Config = None,
    changes: options.Changes = None,
    neighbourhood: Annotated[
        str | None, typer.Option(help="For geom-gcn-*: computed or published, as --set neighbourhood=...", show_default=False)
    ] = None,
    metric: options.Metric = None,
    directed: options.Directed = False,
    device: options.Device = "cpu",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard, into RUN/tensorboard.")
    ] = False,
    division: options.Division = "auto",
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Train a model on several splits of a graph.

    Without `--model`, a search tries networks with and without attention to all nodes on the training and validation nodes of
    the first split. The best is trained. A table shows what the search saw, and a sentence says whether attention helps.
    Of a table without edges it is `table`, whose parts are chosen by validation.

    Says what is in the graph and what is predicted of its nodes, prints the settings and where each comes from, then the test
    metric of the epoch with the smallest validation loss or the best validation metric (`--set select=...`). Writes weights,
    curves, settings and `result.json` into a folder. A run that was cut off continues with `--resume`, to the same result; a
    finished one with `--resume` and more epochs or patience.

    Started by `torchrun`, several processes train on one graph, each with some of its nodes; `--division` and `--timeout` are
    for them.

    Examples:

    - `phgcn train my-graph/`

    - `phgcn train texas --model phgcn --protocol paper --splits 10 --out runs/texas`

    - `phgcn train texas --out runs/texas --resume`

    - `phgcn train texas --out runs/texas --resume --set epochs=2000`

    - `phgcn train houses.csv --label price --coordinates lat,lon`

    - `phgcn train houses/ --task regression --id house --label price --features area,rooms,city`

    - `phgcn train my-graph/ --model gat --splits 3 --set heads=4 --set learning_rate=0.01`

    - `torchrun --nproc-per-node=4 -m phgcn train my-graph/ --out runs/my-graph`
    """
    from ..distributed.launch import joined_group, launched
    from ..train.compiling import missing_kernels
    from .display import show_result
    from .over_ranks import train_on_ranks
    from .progress import TrainingDisplay

    effort = _effort(search, model, config)
    options_given = {
        "model": model, "protocol": protocol, "splits": splits, "repeats": repeats, "seed": seed, "metric": metric,
    }  # fmt: skip
    asked = {key: value for key, value in options_given.items() if value is not None}
    changes = list(changes or [])
    if neighbourhood is not None:
        changes.append(f"neighbourhood={neighbourhood}")
    if reading.given.get("split"):
        asked = {"protocol": "official", "splits": len(reading.columns().split), **asked}
    if launched():

        def open_run(lead: bool) -> tuple[Run, Data, str]:
            changed = (config, changes) if lead else (None, [])
            return _open(graph, out, resume or not lead, asked, *changed, directed, device, reading, NO_SEARCH)

        with joined_group(device, timeout) as ranks:
            train_on_ranks(open_run, ranks, division, tensorboard, as_json)
        return
    run, data, heading = _open(graph, out, resume, asked, config, changes, directed, device, reading, effort)
    with TrainingDisplay(run.plan) as display:
        display.say(heading)
        try:
            display.compile(missing_kernels(run.plan, int(data.num_nodes)))
            result = run.train(data, display.on_epoch, tensorboard)
            display.trial_ended()
        except KeyboardInterrupt:
            display.say(f"the same command with --out {run.folder} --resume continues")
            raise
    show_result(result, run.folder, as_json)


def _open(
    graph: str, out: Path | None, resume: bool, asked: dict[str, Any], config: Path | None, changes: list[str],
    directed: bool, device: str, reading: Reading, effort: str,
) -> tuple[Run, Data, str]:  # fmt: skip
    """Opens the run that is there, or makes one; returns its graph, and what is said before training."""
    from ..distributed.launch import launched
    from ..train import Run, find
    from ..train.over_ranks import check_plan
    from ..train.run import check_new
    from ..train.settings import Resolved, keys

    options.check_folder(out)
    if resume:
        found = out or _default_folder(find(graph, directed, reading.task, reading.columns())[1], asked)
        run, data = _continued(found, graph, asked, config, changes, reading)
        resolved = Resolved(run.plan.settings, dict.fromkeys(keys(run.plan.model), str(run.folder / "run.json")))
    else:
        plan, data, resolved = _plan(graph, asked, config, changes, directed, device, reading)
        if launched():
            check_plan(plan)  # before a folder is made
        folder, seen = out or _default_folder(data, asked), None
        if effort != NO_SEARCH and not launched():
            check_new(folder)
            if plan.model == TABLE_MODEL:
                plan, resolved, seen = _search_table(plan, data, resolved, asked)
            else:
                plan, resolved, seen = _search(plan, data, effort, changes)
        run = Run.create(folder, plan, data, _heading(plan, data, resolved), seen)
    return run, data, f"{_describe(run.plan, data)}\n{_heading(run.plan, data, resolved)}"


def _effort(search: str | None, model: str | None, config: Path | None) -> str:
    """Returns how long to search: not at all where a model is named."""
    if search not in (None, *EFFORTS):
        raise ValueError(f"--search is {search!r}; allowed: {', '.join(EFFORTS)}")
    named = "--model" if model is not None else "--config" if config is not None else None
    if named and search not in (None, NO_SEARCH):
        raise ValueError(f"--search is {search!r} beside {named}; allowed: {NO_SEARCH}, as the model is named")
    return NO_SEARCH if named else search or "short"


def _search(plan: Plan, data: Data, effort: str, changes: list[str]) -> tuple[Plan, Resolved, dict[str, Any]]:
    """Searches for a model and settings; returns the plan with them, their sources, and what was seen."""
    from dataclasses import replace

    from ..train import search
    from ..train.compiling import missing_kernels
    from ..train.settings import Resolved, keys, parse
    from .display import Display

    changed = dict(map(parse, changes))
    with Display(total=1) as display:
        display.say(_describe(plan, data))
        display.compile(missing_kernels(replace(plan, model="phgcn"), int(data.num_nodes)))
        plan, seen = search(plan, data, effort, changed, display.say)
    sources = dict.fromkeys(keys(plan.model), "search") | dict.fromkeys(changed, "--set")
    return plan, Resolved(plan.settings, sources), seen


def _search_table(
    plan: Plan, data: Data, resolved: Resolved, asked: dict[str, Any]
) -> tuple[Plan, Resolved, dict[str, Any] | None]:
    """Chooses by validation what predicts the rows of a table, unless a model or its parts are asked for."""
    from ..train.settings import DEFAULT
    from ..train.table_search import choose_parts
    from .display import say

    if plan.model != TABLE_MODEL or "model" in asked or resolved.sources["parts"] != DEFAULT:
        return plan, resolved, None
    say("which predicts best: a network on the columns, the labels of other rows, or both?")
    plan, seen = choose_parts(plan, data, say)
    sources = {**resolved.sources, "parts": "chosen by validation"}
    return plan, resolved._replace(settings=plan.settings, sources=sources), seen


def _describe(plan: Plan, data: Data) -> str:
    """Says what is in the graph, and what of it the model does not read."""
    from ..data import describe_graph, known_graph
    from ..data.summary import is_uneven
    from ..train.prepare import taken_edge_values

    lines, names = describe_graph(data), {"edge_weight": "edge weights", "edge_attr": "edge features"}
    for key, name in names.items():
        if key in data and key not in taken_edge_values(plan):
            local = "; --set local=eda does" if plan.model == DEFAULT_MODEL else ""
            lines.append(f"{plan.model} does not read {name} with these settings{local}")
    if plan.settings.scaling == "none" and not known_graph(str(data.name)) and is_uneven(data):
        lines.append("columns of features differ much in size: --set scaling=standard may help")
    return "\n".join(map(printable, lines))


def _heading(plan: Plan, data: Data, resolved: Resolved) -> str:
    """Says what is trained, in one line per source which settings come from it, and what ``method = "auto"`` picks."""
    from ..functional import explain_method
    from ..train.settings import describe_sources, used

    lines = [f"{plan.model} on {data.name}; settings by source", *describe_sources(resolved, plan.model)]
    trainings = f"{plan.splits} split{'s' * (plan.splits != 1)}" + (f" x {plan.repeats} trainings" if plan.repeats > 1 else "")
    lines.append(f"{trainings} of protocol {plan.protocol}, at most {plan.settings.epochs:,} epochs each")
    if used(plan.settings, plan.model).get("method") == "auto":
        choice = explain_method(int(data.num_nodes), plan.settings.embedding_dim, plan.device)
        lines.append(f"method = auto picks {choice}")
    return "\n".join(lines)


def _plan(
    graph: str,
    asked: dict[str, Any],
    config: Path | None,
    changes: list[str],
    directed: bool,
    device: str,
    reading: Reading,
) -> tuple[Plan, Data, Resolved]:
    """Makes the plan of a new run; returns its graph and its settings with their sources too."""
    from ..data import known_graph, public_masks, splits
    from ..train import Plan, find, resolve
    from ..train.candidates import SPLITS, size_class, start_settings
    from ..train.graph import check_task, default_metric
    from ..train.leaks import describe_leaks
    from ..train.prepare import check_edge_weights
    from ..train.settings import read

    wanted = {**DEFAULTS, **asked}
    if config is not None and "model" not in asked:
        wanted["model"] = read(config)[0] or wanted["model"]
    find_model(wanted["model"])  # before the graph is loaded
    source, data = find(graph, directed, reading.task, reading.columns())
    if given := [key for key in reading.given if key != "task"]:
        _refuse_columns(graph, data, given[0])
    check_task(data, data.task)
    if "model" not in asked and config is None:
        wanted["model"] = _default_model(data)
    wanted |= {"metric": wanted.get("metric", default_metric(data)), "task": data.task, "columns": reading.columns()}
    wanted.setdefault("splits", SPLITS[size_class(data, device)])
    resolved = resolve(wanted["model"], str(data.name), config, changes, start_settings(data, wanted["model"], device))
    plan = Plan(source, directed=directed, device=device, settings=resolved.settings, yardsticks=True, **wanted)
    # Refused here, before a folder is made.
    check_edge_weights(plan, data)
    drawn = splits(data.y, plan.protocol, plan.splits, plan.seed, masks=public_masks(data))
    if "description" not in data and not known_graph(str(data.name)):
        data.notes = [*data.notes, *describe_leaks(data, drawn[0].train.nonzero().flatten())]
    return plan, data, resolved


def _refuse_columns(graph: str, data: Data, key: str) -> None:
    """Refuses an option that names a column of a graph that is not in tables, or no longer."""
    from ..distributed.part_files import is_partition

    flag = flag_of(key)
    if is_partition(graph):
        raise ValueError(f"{flag} is given for {graph}, which has no columns; allowed: for `phgcn partition`, which made it")
    if "feature_columns" not in data:
        raise ValueError(f"{flag} is given for {data.name}, which has no columns; allowed: for CSV and Parquet files")


EXTENDED = ("epochs", "patience")
"""Settings that a run may be given more of."""


def _continued(
    folder: Path, graph: str, asked: dict[str, Any], config: Path | None, changes: list[str], reading: Reading
) -> tuple[Run, Data]:
    """Opens the run that is there, and its graph; what is asked for must be what it was begun with, or more epochs."""
    from ..train import Run, resolve
    from ..train.graph import find_source
    from ..train.settings import used

    run = Run.open(folder)
    data = run.read(graph)
    if not run.is_own(data):
        same = find_source(graph) == run.plan.source
        what = (
            f"{graph} has changed since {folder} was begun"
            if same
            else f"{folder}: was begun on another graph, {run.plan.source}"
        )
        raise ValueError(f"{what}: {run.changes(data)}")
    if reading.task is not None:
        asked = {**asked, "task": reading.task}
    columns = reading.columns()
    pairs = {key: (getattr(run.plan, key), value) for key, value in asked.items()}
    pairs |= {key: (getattr(run.plan.columns, key), getattr(columns, key)) for key in reading.given if key != "task"}
    for key, (begun, value) in pairs.items():
        if begun != value:
            raise ValueError(f"{folder}: was begun with {key} {begun!r}, not {value!r}")
    if config is not None or changes:
        source = config if config is not None else folder / "config.toml"
        settings = resolve(run.plan.model, None, source, changes).settings
        changed = {k: v for k, v in used(settings, run.plan.model).items() if getattr(run.plan.settings, k) != v}
        for key, value in changed.items():
            if key not in EXTENDED:
                raise ValueError(f"{folder}: was begun with {key} {getattr(run.plan.settings, key)!r}, not {value!r}")
        if changed:
            run.extend(**changed)
    return run, data


def _default_folder(data: Data, asked: dict[str, Any]) -> Path:
    found = "auto" if _default_model(data) == DEFAULT_MODEL else TABLE_MODEL
    model, protocol = asked.get("model", found), asked.get("protocol", DEFAULTS["protocol"])
    return Path("runs") / f"{data.name}-{model}-{protocol}"


def _default_model(data: Data) -> str:
    """Returns the model that is trained where none is named."""
    from ..train.graph import count_edges

    return DEFAULT_MODEL if count_edges(data) else TABLE_MODEL


@reads_graph
def tune(
    graph: options.Graph,
    model: Model = None,
    trials: Annotated[int, typer.Option(help="How many trials the study shall have, earlier ones included.")] = 50,
    also: Annotated[
        list[str] | None,
        typer.Option(
            help="Vary this too: hidden_channels, num_layers, local, global_layers, weight_decay, decay_local, decay_global, "
            "embedding_dim. May be repeated."
        ),
    ] = None,
    protocol: Protocol = None,
    splits: Annotated[int, typer.Option(help="Splits per trial.")] = 3,
    seed: Annotated[int, typer.Option(help="What splits, weights and dropout follow from.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder of the study. \\[default: tune/GRAPH-MODEL-PROTOCOL]")
    ] = None,
    config: options.Config = None,
    changes: options.Changes = None,
    directed: options.Directed = False,
    device: options.Device = "cpu",
    as_json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Look for good settings: heads, dropouts and learning rate.

    Trials are compared by validation loss; test nodes are never seen. The study is a SQLite file: run the command in
    several terminals at once, or again another day, and all of them work on the same study. Writes `config.toml`, all settings
    but `epochs`: trials may be shorter than the training that follows.

    Examples:

    - `phgcn tune texas --model phgcn --trials 50 --out tune/texas`

    - `phgcn tune texas --also weight_decay --also hidden_channels --out tune/texas-wide`

    - `phgcn train texas --config tune/texas/config.toml`
    """
    from ..train import tune as search
    from ..train.compiling import missing_kernels
    from ..train.tuning import check_trials, space
    from .display import show_tuning
    from .progress import TuningDisplay

    options_given = {"model": model, "protocol": protocol, "splits": splits, "seed": seed}
    asked = {key: value for key, value in options_given.items() if value is not None}
    if reading.given.get("split"):
        asked = {"protocol": "official", **asked, "splits": len(reading.columns().split)}
    options.check_folder(out)
    plan, data, _ = _plan(graph, asked, config, changes or [], directed, device, reading)
    check_trials(trials)
    space(plan.model, also or [])
    folder = out or Path("tune") / f"{data.name}-{plan.model}-{plan.protocol}"
    with TuningDisplay(trials) as display:
        display.say(_describe(plan, data))
        display.compile(missing_kernels(plan, int(data.num_nodes)))
        result = search(folder, plan, data, trials, also or [], display.update, without=("epochs",))
    show_tuning(result, reading.words() + ["--directed"] * directed, as_json)

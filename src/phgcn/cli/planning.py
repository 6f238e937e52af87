"""The plan of ``phgcn train`` and ``phgcn tune`` from options, or the run to continue, and their
description."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..registry import DEFAULT_MODEL, TABLE_MODEL, find_model
from ..text import printable
from .reading import Reading, flag_of

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..train.plan import Plan
    from ..train.run import Run
    from ..train.settings import Resolved

DEFAULTS = {"model": DEFAULT_MODEL, "protocol": "paper", "repeats": 1, "seed": 0}


class Request(NamedTuple):
    """The options of ``phgcn train`` or ``phgcn tune``. ``asked`` are the given ones of model,
    protocol, splits, repeats, seed and metric."""

    graph: str
    asked: dict[str, Any]
    config: Path | None
    changes: list[str]
    directed: bool
    device: str
    reading: Reading

    def find(self) -> tuple[str, Data]:
        """Loads the graph, see :func:`phgcn.train.find`."""
        from ..train import find

        return find(self.graph, self.directed, self.reading.task, self.reading.columns())


def make_plan(request: Request, searches: bool = False) -> tuple[Plan, Data, Resolved]:
    """Makes the plan of a new run; returns its graph and its settings with their sources too. If a
    search chooses the model, the request's changes are checked and left to it."""
    from ..data import known_graph, public_masks, splits
    from ..train import Plan, resolve
    from ..train.candidates import candidates, default_splits, start_settings
    from ..train.graph import check_task, default_metric
    from ..train.leaks import describe_leaks
    from ..train.prepare import check_edge_weights
    from ..train.settings import parse, read

    asked, config, device, reading = request.asked, request.config, request.device, request.reading
    wanted = {**DEFAULTS, **asked}
    if config is not None and "model" not in asked:
        wanted["model"] = read(config)[0] or wanted["model"]
    find_model(wanted["model"])  # before the graph is loaded
    source, data = request.find()
    if given := [key for key in reading.given if key != "task"]:
        refuse_columns(request.graph, data, given[0])
    check_task(data, data.task)
    if "model" not in asked and config is None:
        wanted["model"] = default_model(data)
    wanted.setdefault("metric", default_metric(data))
    start = start_settings(data, wanted["model"], device)
    changes, on_map = request.changes, ",".join(reading.columns().coordinates)
    searches = searches and wanted["model"] == DEFAULT_MODEL
    if searches:  # refuses what no candidate takes
        candidates(data, device, dict(map(parse, changes)), bool(on_map))
        changes = []
    resolved = resolve(wanted["model"], str(data.name), config, changes, start)
    if on_map and wanted["model"] == DEFAULT_MODEL and not (searches or resolved.settings.labels):
        allowed = "with --set labels=true, or without --model, which tries that"
        raise ValueError(f"--coordinates is {on_map} beside labels=false; allowed: {allowed}")
    most = default_splits(data, wanted["model"], resolved.settings, device)
    wanted.setdefault("splits", most)
    plan = Plan(
        source,
        directed=request.directed,
        device=device,
        settings=resolved.settings,
        task=data.task,
        columns=reading.columns(),
        yardsticks="all",
        **wanted,
    )
    # Refused here, before a folder is made.
    check_edge_weights(plan, data)
    drawn = splits(data.y, plan.protocol, plan.splits, plan.seed, masks=public_masks(data))
    if "description" not in data and not known_graph(str(data.name)):
        leaks = describe_leaks(data, drawn[0].train.nonzero().flatten())
        data.notes = [*data.notes, *(f"warning: {leak} (by --features)" for leak in leaks)]
    return plan, data, resolved


def refuse_columns(graph: str, data: Data, key: str) -> None:
    """Refuses an option for table columns of a graph that has none, or no longer."""
    from ..distributed.part_files import is_partition

    flag = flag_of(key)
    if is_partition(graph):
        allowed = "for `phgcn partition`, which made it"
        raise ValueError(f"{flag} is given for {graph}, which has no columns; allowed: {allowed}")
    if "feature_columns" not in data:
        what = f"{flag} is given for {data.name}, which has no columns"
        raise ValueError(f"{what}; allowed: for CSV and Parquet files")


EXTENDED = ("epochs", "patience")  # settings that a run may be given more of


def continue_run(folder: Path, request: Request) -> tuple[Run, Data]:
    """Opens a run and its graph. The request must agree with the run, or ask for more epochs."""
    from ..train import Run, resolve
    from ..train.graph import find_source
    from ..train.settings import used

    run = Run.open(folder)
    plan, graph, given = run.plan, request.graph, request.reading.given
    data = run.read(graph)
    if changes := run.changes(data):
        if find_source(graph) == plan.source:
            raise run.changed(graph, changes, data)
        raise ValueError(f"{folder}: was begun on another graph, {plan.source}: {changes}")

    def check_same(key: str, begun: object, value: object) -> None:
        if begun != value:
            raise ValueError(f"{folder}: was begun with {key} {begun!r}, not {value!r}")

    for key, value in request.asked.items():
        check_same(key, getattr(plan, key), value)
    columns = request.reading.columns()
    for key in given:
        begun, asked = (plan, request.reading) if key == "task" else (plan.columns, columns)
        check_same(key, getattr(begun, key), getattr(asked, key))
    if request.config is not None or request.changes:
        source = request.config or folder / "config.toml"
        settings = used(resolve(plan.model, None, source, request.changes).settings, plan.model)
        changed = {k: v for k, v in settings.items() if getattr(plan.settings, k) != v}
        for key, value in changed.items():
            if key not in EXTENDED:
                check_same(key, getattr(plan.settings, key), value)
        if changed:
            run.extend(**changed)
    return run, data


def default_folder(data: Data, asked: dict[str, Any]) -> Path:
    found = "auto" if default_model(data) == DEFAULT_MODEL else TABLE_MODEL
    model, protocol = asked.get("model", found), asked.get("protocol", DEFAULTS["protocol"])
    return Path("runs") / f"{data.name}-{model}-{protocol}"


def default_model(data: Data) -> str:
    """Returns the model of a training that names none."""
    from ..train.graph import count_edges

    return DEFAULT_MODEL if count_edges(data) else TABLE_MODEL


def describe_plan(plan: Plan, data: Data) -> str:
    """Describes the graph, and its parts that the model does not read."""
    from ..data import describe_graph

    return "\n".join(map(printable, [*describe_graph(data), *describe_unread(plan, data)]))


def describe_unread(plan: Plan, data: Data) -> list[str]:
    """Describes parts of the graph that the model does not read, or reads badly."""
    from ..data import known_graph
    from ..data.summary import is_uneven
    from ..train.prepare import taken_edge_values

    lines, names = [], {"edge_weight": "edge weights", "edge_attr": "edge features"}
    for key, name in names.items():
        if key in data and key not in taken_edge_values(plan):
            local = "; --set local=eda does" if plan.model == DEFAULT_MODEL else ""
            lines.append(f"{plan.model} does not read {name} with these settings{local}")
    if plan.settings.scaling == "none" and not known_graph(str(data.name)) and is_uneven(data):
        lines.append("columns of features differ much in size: --set scaling=standard may help")
    return lines


def describe_settings(plan: Plan, data: Data, resolved: Resolved) -> str:
    """Describes the training, the settings by their sources, and the choice of ``"auto"``."""
    from ..functional import explain_method
    from ..train.settings import describe_sources, used

    lines = [f"{plan.model} on {data.name}; settings by source"]
    lines += describe_sources(resolved, plan.model)
    if plan.per_split:
        models = ", ".join(f"split {split}: {row.name}" for split, row in enumerate(plan.per_split))
        lines.append(f"each split has the model that the search in it chose, {models}")
    repeats = f" x {plan.repeats} trainings" if plan.repeats > 1 else ""
    trainings = f"{plan.splits} split{'s' * (plan.splits != 1)}{repeats}"
    most = f"at most {plan.settings.epochs:,} epochs each"
    lines.append(f"{trainings} of protocol {plan.protocol}, {most}")
    if used(plan.settings, plan.model).get("method") == "auto":
        choice = explain_method(int(data.num_nodes), plan.settings.embedding_dim, plan.device)
        lines.append(f"method = auto picks {choice}")
    return "\n".join(lines)

"""``phgcn train``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option
from typer.core import TyperCommand

from ..registry import TABLE_MODEL, model_names
from . import options
from .planning import (
    Request,
    continue_run,
    default_folder,
    describe_settings,
    describe_unread,
    make_plan,
)
from .reading import Reading, reads_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..train.plan import Plan
    from ..train.run import Run
    from ..train.settings import Resolved

TIMEOUT = 300.0  # seconds that a process waits for the others

NO_SEARCH = "none"
EFFORTS = (NO_SEARCH, "short", "long")

_search_help = (
    "How long models and settings are tried, if no --model is named: none, short, long. "
    "\\[default: short]"
)
Searching = Annotated[str | None, Option("--search", help=_search_help)]
_splits = "How many splits. \\[default: 3; 1 where an epoch takes very long]; papers take 10"
Splits = Annotated[int | None, Option(help=_splits)]
Repeats = Annotated[int | None, Option(help="Trainings per split. \\[default: 1]")]
Seed = Annotated[int | None, Option(help="What all randomness follows from. \\[default: 0]")]
_out = "The folder of the run. \\[default: runs/GRAPH-MODEL-PROTOCOL]"
Out = Annotated[Path | None, Option("--out", help=_out)]
Resume = Annotated[bool, Option("--resume", help="Continue the run that is there.")]
_tensorboard = "Also write curves for TensorBoard, into RUN/tensorboard."
Tensorboard = Annotated[bool, Option("--tensorboard", help=_tensorboard)]


class ListsModels(TyperCommand):
    """A command whose help ends with the names of all registered models."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.epilog = f"Models: {', '.join(model_names())}."
        super().format_help(ctx, formatter)


@reads_graph
def train(
    graph: options.Graph,
    model: options.Model = None,
    search: Searching = None,
    protocol: options.Protocol = None,
    splits: Splits = None,
    repeats: Repeats = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = False,
    config: options.Config = None,
    changes: options.Changes = None,
    metric: options.Metric = None,
    directed: options.Directed = False,
    device: options.Device = "cpu",
    tensorboard: Tensorboard = False,
    division: options.Division = "auto",
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Train a model on several splits of a graph.

    Without `--model`, a search tries networks with and without attention to all nodes on the
    training and validation nodes of the first split. The best is trained. A table shows the
    candidates, and a sentence says whether attention helps. Of a table without edges it is `table`,
    whose parts are chosen by validation.

    Prints the contents of the graph, the task, and the settings with their sources, then the test
    metric of the epoch with the smallest validation loss or the best validation metric
    (`--set select=...`). Writes weights, curves, settings and `result.json` into a folder. A run
    that was cut off continues with `--resume`, to the same result; a finished one with `--resume`
    and more epochs or patience.

    Started by `torchrun`, several processes train on one graph, each with some of its nodes;
    `--division` and `--timeout` are for them.

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
    from .over_ranks import train_on_ranks
    from .progress import show_training

    effort = _effort(search, model, config)
    asked = {"model": model, "protocol": protocol, "splits": splits, "repeats": repeats}
    asked |= {"seed": seed, "metric": metric}
    asked = {key: value for key, value in asked.items() if value is not None}
    if reading.given.get("split"):
        asked = {"protocol": "official", "splits": len(reading.columns().split), **asked}
    request = Request(graph, asked, config, changes or [], directed, device, reading)
    if launched():

        def open_run(lead: bool) -> tuple[Run, Data, str]:
            if lead:
                return _open(request, out, resume, NO_SEARCH)
            return _open(request._replace(config=None, changes=[]), out, True, NO_SEARCH)

        with joined_group(device, timeout) as ranks:
            train_on_ranks(open_run, ranks, division, tensorboard, as_json)
        return
    run, data, heading = _open(request, out, resume, effort)
    train_run = partial(run.train, data, tensorboard=tensorboard)
    show_training(run, data, heading, train_run, as_json)


def _open(request: Request, out: Path | None, resume: bool, effort: str) -> tuple[Run, Data, str]:
    """Opens or makes the run; returns its graph, and the text before training."""
    from ..data import describe_graph
    from ..distributed.launch import launched
    from ..train import Run
    from ..train.over_ranks import check_plan
    from ..train.run import check_new
    from ..train.settings import Resolved, keys
    from .display import say_notes

    options.check_folder(out)
    searches = False
    if resume:
        folder = out or default_folder(request.find()[1], request.asked)
        run, data = continue_run(folder, request)
        source = str(run.folder / "run.json")
        resolved = Resolved(run.plan.settings, dict.fromkeys(keys(run.plan.model), source))
    else:
        searches = effort != NO_SEARCH and not launched()
        plan, data, resolved = make_plan(request, searches)
        if effort == "long" and plan.model == TABLE_MODEL:
            raise ValueError(f"--search is 'long'; allowed for the model table: {NO_SEARCH}, short")
        if launched():
            check_plan(plan)  # before a folder is made
        folder, seen = out or default_folder(data, request.asked), None
        if searches:
            check_new(folder)
            say_notes(describe_graph(data))
            if plan.model == TABLE_MODEL:
                plan, resolved, seen = _search_table(plan, data, resolved, request.asked)
            else:
                plan, resolved, seen = _search(plan, data, effort, request.changes)
        run = Run.create(folder, plan, data, describe_settings(plan, data, resolved), seen)
    lines = [] if searches else describe_graph(data)
    lines += [*describe_unread(run.plan, data), describe_settings(run.plan, data, resolved)]
    return run, data, "\n".join(lines)


def _effort(search: str | None, model: str | None, config: Path | None) -> str:
    """Returns the length of the search: none where a model is named."""
    if search not in (None, *EFFORTS):
        raise ValueError(f"--search is {search!r}; allowed: {', '.join(EFFORTS)}")
    named = "--model" if model is not None else "--config" if config is not None else None
    if named and search not in (None, NO_SEARCH):
        allowed = f"{NO_SEARCH}, as the model is named"
        raise ValueError(f"--search is {search!r} beside {named}; allowed: {allowed}")
    return NO_SEARCH if named else search or "short"


def _search(
    plan: Plan, data: Data, effort: str, changes: list[str]
) -> tuple[Plan, Resolved, dict[str, Any]]:
    from dataclasses import replace

    from ..train.prepare import missing_kernels
    from ..train.search import search, search_each
    from ..train.settings import Resolved, keys, parse
    from .progress import SearchDisplay

    changed = dict(map(parse, changes))
    with SearchDisplay() as display:
        display.compile(missing_kernels(replace(plan, model="phgcn"), int(data.num_nodes)))
        find = search_each if effort == "long" and plan.splits > 1 else search
        plan, seen = find(
            plan, data, effort, changed, report=display.say, on_epoch=display.on_epoch
        )
    sources = dict.fromkeys(keys(plan.model), "search") | dict.fromkeys(changed, "--set")
    return plan, Resolved(plan.settings, sources), seen


def _search_table(
    plan: Plan, data: Data, resolved: Resolved, asked: dict[str, Any]
) -> tuple[Plan, Resolved, dict[str, Any] | None]:
    """Chooses the parts of a network for tables by validation, unless they are asked for."""
    from ..train.search import choose_parts
    from ..train.settings import DEFAULT
    from .progress import SearchDisplay

    if plan.model != TABLE_MODEL or "model" in asked or resolved.sources["parts"] != DEFAULT:
        return plan, resolved, None
    with SearchDisplay() as display:
        display.say("which predicts best: a network on columns, labels of other rows, or both?")
        plan, seen = choose_parts(plan, data, display.say, display.on_epoch)
    sources = {**resolved.sources, "parts": "chosen by validation"}
    return plan, resolved._replace(settings=plan.settings, sources=sources), seen

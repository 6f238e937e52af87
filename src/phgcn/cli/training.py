r"""``phgcn train`` and ``phgcn tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..train.run import Plan, Run

DEFAULTS = {"model": "phgcn", "protocol": "paper", "splits": 10, "repeats": 1, "seed": 0}

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="phgcn, phgcn-residual, gat-eda, gat, gcn, mlp, geom-gcn-i, -p or -s. \\[default: phgcn]",
        show_default=False,
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="How nodes are split: paper, geom, balanced, official. \\[default: paper]", show_default=False
    ),
]


def train(
    graph: options.Graph,
    model: Model = None,
    protocol: Protocol = None,
    splits: Annotated[int | None, typer.Option(help="How many splits. \\[default: 10]", show_default=False)] = None,
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
    as_json: options.Json = False,
) -> None:
    """Train a model on several splits of a graph.

    Reports the test metric of the epoch with the smallest validation loss. Writes weights, curves, settings and
    `result.json` into a folder. A run that was cut off continues with `--resume`, to the same result.

    Examples:

    - `phgcn train texas --model phgcn --protocol paper --splits 10 --out runs/texas`

    - `phgcn train texas --out runs/texas --resume`

    - `phgcn train my-graph/ --model gat --splits 3 --set heads=4 --set learning_rate=0.01`
    """
    from ..train import Run, find
    from .display import TrainingDisplay, show_result

    asked = {"model": model, "protocol": protocol, "splits": splits, "repeats": repeats, "seed": seed, "metric": metric}
    given = {key: value for key, value in asked.items() if value is not None}
    changes = list(changes or [])
    if neighbourhood is not None:
        changes.append(f"neighbourhood={neighbourhood}")
    if resume:
        run, data = _continued(out or _default_folder(find(graph, directed)[1], given), graph, given, config, changes)
    else:
        plan, data, heading = _plan(graph, given, config, changes, directed, device)
        run = Run.create(out or _default_folder(data, given), plan, data, heading)
    with TrainingDisplay(run.plan) as display:
        try:
            result = run.train(data, display.on_epoch, tensorboard)
        except KeyboardInterrupt:
            display.say(f"the same command with --out {run.folder} --resume continues")
            raise
    show_result(result, run.folder, as_json)


def _plan(
    graph: str, given: dict[str, Any], config: Path | None, changes: list[str], directed: bool, device: str
) -> tuple[Plan, Data, str]:
    """The plan of a new run, its graph, and the heading of its settings."""
    from ..train import Plan, find, resolve
    from ..train.graph import default_metric
    from ..train.settings import check_model

    wanted = {**DEFAULTS, **given}
    if config is not None and "model" not in given:
        from ..train.settings import read

        wanted["model"] = read(config)[0] or wanted["model"]
    check_model(wanted["model"])
    source, data = find(graph, directed)
    settings, path = resolve(wanted["model"], str(data.name), config, changes)
    wanted.setdefault("metric", default_metric(data))
    heading = f"{wanted['model']} on {data.name}; settings from {path or 'the defaults'}"
    return Plan(source, directed=directed, device=device, settings=settings, **wanted), data, heading


def _continued(folder: Path, graph: str, given: dict[str, Any], config: Path | None, changes: list[str]) -> tuple[Run, Data]:
    """The run that is there, and its graph; what is asked for must be what it was begun with."""
    from ..train import Run, find, resolve
    from ..train.graph import digest
    from ..train.settings import used

    run = Run.open(folder)
    _, data = find(graph, run.plan.directed)
    if digest(data) != run.about["graph"]["digest"]:
        raise ValueError(f"{folder}: was begun on another graph, {run.plan.source}")
    for key, value in given.items():
        if getattr(run.plan, key) != value:
            raise ValueError(f"{folder}: was begun with {key} {getattr(run.plan, key)!r}, not {value!r}")
    if config is not None or changes:
        source = config if config is not None else folder / "config.toml"
        settings, _ = resolve(run.plan.model, None, source, changes)
        for key, value in used(settings, run.plan.model).items():
            if getattr(run.plan.settings, key) != value:
                raise ValueError(f"{folder}: was begun with {key} {getattr(run.plan.settings, key)!r}, not {value!r}")
    return run, data


def _default_folder(data: Data, given: dict[str, Any]) -> Path:
    wanted = {**DEFAULTS, **given}
    return Path("runs") / f"{data.name}-{wanted['model']}-{wanted['protocol']}"


def tune(
    graph: options.Graph,
    model: Model = None,
    trials: Annotated[int, typer.Option(help="How many trials the study shall have, earlier ones included.")] = 50,
    also: Annotated[
        list[str] | None,
        typer.Option(
            help="Vary this too: hidden_channels, weight_decay, decay_local, decay_global, embedding_dim. May be repeated."
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
) -> None:
    """Look for good settings: heads, dropouts and learning rate.

    Trials are compared by validation loss; test nodes are never seen. The study is a SQLite file: run the command in
    several terminals at once, or again another day, and all of them work on the same study. Writes `config.toml`.

    Examples:

    - `phgcn tune texas --model phgcn --trials 50 --out tune/texas`

    - `phgcn tune texas --also weight_decay --also hidden_channels --out tune/texas-wide`

    - `phgcn train texas --config tune/texas/config.toml`
    """
    from ..train import tune as search
    from .display import TuningDisplay, show_tuning

    named = {"model": model, "protocol": protocol, "splits": splits, "seed": seed}
    given = {key: value for key, value in named.items() if value is not None}
    plan, data, _ = _plan(graph, given, config, changes or [], directed, device)
    folder = out or Path("tune") / f"{data.name}-{plan.model}-{plan.protocol}"
    with TuningDisplay(trials) as display:
        result = search(folder, plan, data, trials, also or [], display.told)
    show_tuning(result, as_json)

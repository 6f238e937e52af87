"""``phgcn tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from . import options
from .planning import Request, describe_plan, make_plan
from .reading import Reading, reads_graph

Trials = Annotated[int, Option(help="How many trials the study shall have, earlier ones included.")]
_also = (
    "Vary this too: hidden_channels, num_layers, local, global_layers, global_at, labels, "
    "key_share, decay, weight_decay, decay_local, decay_global, embedding_dim. May be repeated."
)
Also = Annotated[list[str] | None, Option(help=_also)]
Splits = Annotated[int, Option(help="Splits per trial.")]
Seed = Annotated[int, Option(help="What splits, weights and dropout follow from.")]
_out = "The folder of the study. \\[default: tune/GRAPH-MODEL-PROTOCOL]"
Out = Annotated[Path | None, Option("--out", help=_out)]


@reads_graph
def tune(
    graph: options.Graph,
    model: options.TunedModel = None,
    trials: Trials = 50,
    also: Also = None,
    protocol: options.Protocol = None,
    splits: Splits = 3,
    seed: Seed = 0,
    out: Out = None,
    config: options.Config = None,
    changes: options.Changes = None,
    directed: options.Directed = False,
    device: options.Device = "cpu",
    as_json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Look for good settings: heads, dropouts and learning rate.

    Trials are compared by validation loss; test nodes are never seen. The study is a SQLite file:
    run the command in several terminals at once, or again another day, and all of them work on the
    same study. Writes `config.toml`, all settings but `epochs`: trials may be shorter than the
    training that follows.

    Examples:

    - `phgcn tune texas --model phgcn --trials 50 --out tune/texas`

    - `phgcn tune texas --also weight_decay --also hidden_channels --out tune/texas-wide`

    - `phgcn train texas --config tune/texas/config.toml`
    """
    from ..train import tune as search
    from ..train.prepare import missing_kernels
    from ..train.tuning import check_trials, space
    from .display import show_tuning
    from .progress import TuningDisplay

    options_given = {"model": model, "protocol": protocol, "splits": splits, "seed": seed}
    asked = {key: value for key, value in options_given.items() if value is not None}
    if reading.given.get("split"):
        asked = {"protocol": "official", **asked, "splits": len(reading.columns().split)}
    options.check_folder(out)
    request = Request(graph, asked, config, changes or [], directed, device, reading)
    plan, data, _ = make_plan(request)
    check_trials(trials)
    space(plan.model, also or [])
    folder = out or Path("tune") / f"{data.name}-{plan.model}-{plan.protocol}"
    with TuningDisplay(trials) as display:
        display.say(describe_plan(plan, data))
        display.compile(missing_kernels(plan, int(data.num_nodes)))
        result = search(folder, plan, data, trials, also or [], display.update, without=("epochs",))
    show_tuning(result, reading.words() + ["--directed"] * directed, as_json)

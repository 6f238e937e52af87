r"""Commands of ``phgcn reproduce`` that compare models or methods with their rivals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from phgcn.cli import options

from .display import (
    Jobs,
    JobsDisplay,
    LimitSeconds,
    Note,
    Stage,
    finish,
    listed,
    names,
    number,
    only_report,
    run,
    small,
)

if TYPE_CHECKING:
    from ..trainings import Comparison, Job

Epochs = Annotated[int | None, number("Epochs of our networks, for a quick version.", "300")]


def benchmark(
    out: options.ResultsFolder = Path("results/benchmark"),
    quick: Annotated[
        bool, small("2 trials, 3 epochs, 3 splits: the form, not the results.")
    ] = False,
    graphs: Annotated[str | None, names("all ten")] = None,
    models: Annotated[str | None, names("all")] = None,
    stage: Annotated[str, typer.Option(help="all, or only one of: search, train, report.")] = "all",
    trials: Annotated[
        int, typer.Option(help="Trials of each search, the same for all models.")
    ] = 30,
    seconds: Annotated[
        float, typer.Option(help="Seconds of each search, times the effort of the graph.")
    ] = 60.0,
    limit_seconds: LimitSeconds = None,
    jobs: Jobs = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Search for settings of GlobalGNN and its rivals with equal effort, and train all on ten
    splits of ten graphs.

    Settings are chosen by the validation metric on splits 0 to 2; benchmark-search.json has every
    trial. Several commands on one GPU share it best through NVIDIA's MPS.

    Examples:

    - `phgcn reproduce benchmark --quick --graphs texas --models global-gnn,strong-mlp`

    - `phgcn reproduce benchmark --device cuda --jobs 14 --trials 30 --seconds 45 --limit-seconds
      560`

    - `phgcn reproduce benchmark --stage report`
    """
    from ..benchmark import run as experiment
    from ..benchmark.report import accuracy_table
    from ..experiment import deadline_in

    asked: dict[str, Any] = {"trials": trials, "seconds": seconds, "device": device}
    if quick:
        asked |= {"trials": min(trials, 2), "epochs": 3, "splits": 3}
    request = experiment.Request(**asked, **listed(graphs=graphs, models=models))
    cells = experiment.Benchmark(out, request, stage, deadline_in(limit_seconds))
    content = run(cells, jobs, stage == "report")
    finish(content, as_json, "GlobalGNN and its rivals", accuracy_table(content))


def when(
    out: options.ResultsFolder = Path("results/when"),
    benchmark: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The results of phgcn reproduce benchmark, for settings."
        ),
    ] = Path("results/benchmark/benchmark.json"),
    quick: Annotated[
        bool, small("3 epochs, 2 splits, 2 networks of 3 steps: the form, not the results.")
    ] = False,
    graphs: Annotated[str | None, names("cora,citeseer,wisconsin")] = None,
    parts: Annotated[str | None, names("edges,labels,motif,tree,ring")] = None,
    networks: Annotated[int, typer.Option(help="Networks of each generated task.")] = 5,
    steps: Annotated[
        int | None, number("Batches that these are trained on.", "600 to 1500")
    ] = None,
    limit_seconds: LimitSeconds = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Compare GlobalGNN with itself without its global path, where edges or labels are few, and
    where far nodes matter.

    Settings are those of the benchmark, for both.

    Examples:

    - `phgcn reproduce when --quick --parts ring`

    - `phgcn reproduce when --device cuda --jobs 14 --limit-seconds 560`
    """
    from ..experiment import deadline_in
    from ..when import run as experiment
    from ..when.report import table_lines

    asked: dict[str, Any] = {"networks": networks, "steps": steps, "device": device}
    if quick:
        asked |= {"networks": min(networks, 2), "steps": min(steps or 3, 3)}
        asked |= {"epochs": 3, "splits": 2}
    request = experiment.Request(benchmark, **asked, **listed(graphs=graphs, parts=parts))
    conditions = experiment.When(out, request, deadline_in(limit_seconds))
    content = run(conditions, jobs, only_report(stage))
    finish(content, as_json, "When does global attention help?", table_lines(content))


def rivals(
    out: options.ResultsFolder = Path("results/rivals"),
    quick: Annotated[
        bool, small("2,000 points in four dimensions, one round: about a minute.")
    ] = False,
    device: options.Device = "cpu",
    sizes: Annotated[str | None, names("20000,200000; on a GPU to 10000000")] = None,
    dims: Annotated[str | None, names("4,2,8,3,6")] = None,
    clouds: Annotated[
        str | None, names("dense,sparse,clusters,shell,heavy tail,copies,cora,actor,pubmed")
    ] = None,
    limit_seconds: LimitSeconds = None,
    stage: Stage = "all",
    note: Note = "",
    as_json: options.Json = False,
) -> None:
    """Compare ways to sum the kernel of attention: error, time and memory of each, swept over its
    settings.

    This library's methods beside pykeops, scikit-learn's trees, pyNFFT3, slicing, LSH, random
    features, Nyström and pydensecrf2, those that are installed. Results of a GPU are called
    rivals-gpu.

    Examples:

    - `phgcn reproduce rivals --quick`

    - `phgcn reproduce rivals --device cuda --dims 2,4 --limit-seconds 100`
    """
    from ..experiment import deadline_in
    from ..rivals import run as experiment
    from ..rivals.report import choice_table

    standard = (experiment.quick if quick else experiment.full)(device)
    effort = experiment.change(standard, **listed(sizes=sizes, dims=dims, clouds=clouds))
    clouds_to_measure = experiment.Rivals(out, effort, device, note, deadline_in(limit_seconds))
    content = run(clouds_to_measure, only_report=only_report(stage))
    finish(content, as_json, "The fastest at an error", choice_table(content))


def tables(
    out: options.ResultsFolder = Path("results/tables"),
    tables: Annotated[
        str | None, names("california,diamonds, ten that are made or come with scikit-learn")
    ] = None,
    models: Annotated[str | None, names("all but exact")] = None,
    splits: Annotated[int, typer.Option(help="Random splits of each table.")] = 5,
    epochs: Epochs = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
    as_json: options.Json = False,
) -> None:
    """Compare attention to labels on tables with boosted trees, nearest rows, and the same network
    without attention.

    Two tables are files below $PHGCN_DATA/tables: models are attention and exact. On the other
    tables the model is automatic, the estimator as it is. Beside them network, which has no
    attention, mean, nearest, hist-boosting, catboost and lightgbm; the last two come with `pip
    install './lab[tables]'`. Models with several settings are tried with all on the first split.

    Examples:

    - `phgcn reproduce tables --tables friedman1 --splits 1 --epochs 20`

    - `phgcn reproduce tables --tables california --models network,attention`
    """
    from ..tables.run import EXPERIMENT

    asked = EXPERIMENT.jobs(splits=splits, epochs=epochs, **listed(data=tables, models=models))
    _train(EXPERIMENT, asked, stage, out, jobs, as_json)


def city(
    out: options.ResultsFolder = Path("results/city"),
    models: Annotated[str | None, names("all")] = None,
    splits: Annotated[
        int, typer.Option(help="Of ten splits: 10 % of nodes train, 10 % validate, 80 % test.")
    ] = 5,
    epochs: Epochs = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
    as_json: options.Json = False,
) -> None:
    """Compare attention on the map with local networks and label propagation, on streets with few
    labels.

    The street network is $PHGCN_DATA/city/huangpu.npz. Models: label-propagation,
    correct-and-smooth, sage-2 to sage-16, sgformer, map (attention by coordinates), hops (attention
    by hop positions), map+sage-8 and hops+sage-8, the sum of two, and "sage-8 on hops", hop
    positions as features. sage-8 makes correct-and-smooth too.

    Examples:

    - `phgcn reproduce city --models map,sage-16 --splits 2`
    """
    from ..city.run import EXPERIMENT

    asked = EXPERIMENT.jobs(splits=splits, epochs=epochs, **listed(models=models))
    _train(EXPERIMENT, asked, stage, out, jobs, as_json)


def labels(
    out: options.ResultsFolder = Path("results/labels"),
    graphs: Annotated[str | None, names("all ten")] = None,
    models: Annotated[str | None, names("all")] = None,
    splits: Annotated[int, typer.Option(help="Of the ten public splits.")] = 10,
    epochs: Epochs = None,
    stage: Stage = "all",
    jobs: Jobs = 1,
    as_json: options.Json = False,
) -> None:
    """Compare a local network with and without the labels of other nodes, on ten graphs.

    Models: off (the local network), part (its loss on a random part of the training nodes in each
    step), labels (other nodes' labels as values of attention), nearest and correct-and-smooth,
    which off makes too, and propagation.

    Examples:

    - `phgcn reproduce labels --jobs 2`

    - `phgcn reproduce labels --graphs texas,wisconsin --splits 3`
    """
    from ..labels import EXPERIMENT

    asked = EXPERIMENT.jobs(splits=splits, epochs=epochs, **listed(data=graphs, models=models))
    _train(EXPERIMENT, asked, stage, out, jobs, as_json)


def _train(
    comparison: Comparison, tasks: list[Job], stage: str, out: Path, jobs: int, as_json: bool
) -> NoReturn:
    from ..trainings import run as train_all
    from ..trainings_report import markdown

    tasks = [] if only_report(stage) else tasks
    with JobsDisplay() as display:
        content = train_all(comparison, out, tasks, jobs, display.update)
    finish(content, as_json, comparison.name, markdown(content))

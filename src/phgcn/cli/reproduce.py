r"""``phgcn reproduce``: the paper's experiments, one command each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .display import Display, console, duration, print_json, table
from .reproduce_table import reproduce_table

if TYPE_CHECKING:
    from ..experiments.motif import Progress

app = typer.Typer(help="Repeat the paper's experiments.", no_args_is_help=True, rich_markup_mode="markdown")
app.command("table")(reproduce_table)

Out = Annotated[Path, typer.Option("--out", "-o", help="The folder for results; a run that was cut off continues there.")]
Quick = Annotated[bool, typer.Option("--quick", help="A small version that takes minutes on two cores.")]


@app.command("motif")
def motif(
    out: Out = Path("results/motif"),
    quick: Quick = False,
    trials: Annotated[int | None, typer.Option(help="Networks of each kind. \\[default: 10, quick: 3]", min=1)] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Batches of graphs to train on. \\[default: 1500, quick: 250]", min=1)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train networks to say which motif is frequent: only those with global attention can.

    Writes motif.json, motif.md and the figure motif.png and motif.svg.

    Examples:

    - `phgcn reproduce motif --quick`

    - `phgcn reproduce motif --out results/motif --trials 10`
    """
    from ..experiments import motif as experiment

    cases = experiment.quick_cases() if quick else experiment.full_cases()
    standard = experiment.QUICK if quick else experiment.FULL
    effort = replace(standard, trials=trials or standard.trials, iterations=iterations or standard.iterations)
    with MotifDisplay(len(cases) * effort.trials, effort.iterations) as display:
        content = experiment.run(cases, effort, out, display.told)
    if as_json:
        print_json({"files": [str(out / f"motif.{kind}") for kind in ("json", "md", "png", "svg")], **content})
        return
    console().print(table("Which motif is frequent?", experiment.headings(), experiment.rows(content)))
    print(f"{duration(content['seconds'])}; written to {out}: motif.json, motif.md, motif.png, motif.svg")


class MotifDisplay(Display):
    """The trial that runs, and its accuracy."""

    def __init__(self, trials: int, iterations: int) -> None:
        super().__init__(total=trials)
        self.iterations = iterations
        self.seen: set[Any] = set()

    def told(self, moment: Progress) -> None:
        self.seen.add((moment.case, moment.trial))
        text = f"{moment.case.name}, trial {moment.trial}: iteration {moment.iteration}, accuracy {moment.accuracy:.3f}"
        if moment.iteration == self.iterations:
            self.say(text)
        elif self.due():
            self.show(len(self.seen) - 1 + moment.iteration / self.iterations, text, "")

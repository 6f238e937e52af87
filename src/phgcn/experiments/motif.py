r"""The paper's first experiment: only a network with global attention can tell which motif is frequent in its graph.

Three-layer networks are trained on a fresh batch of random chains in every iteration (:mod:`phgcn.data.motif`) and tested on
100 fresh ones along the way, on one red node of each motif in each: chance is 50 %.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.nn.functional import cross_entropy

from ..data.motif import COLOURS, motif_graphs
from ..nn import MODELS
from ..report.style import COLOURS as LINE_COLOURS
from ..report.style import panels, save
from ..train.files import read_json, read_tensors, remove_leftovers, write_json, write_tensors, write_text
from .provenance import provenance

TEST_GRAPHS = 100
TITLES = {"phgcn": "PH-GCN", "gat-eda": "GAT-EDA", "gat": "GAT"}


@dataclass(frozen=True)
class Case:
    """One curve of the figure: a model on chains of one length, over all trials."""

    model: str
    elements: int
    variant: str = "colour"
    method: str = "exact"

    @property
    def name(self) -> str:
        return "-".join([self.model, str(self.elements), self.variant] + ([self.method] if self.model == "phgcn" else []))

    @property
    def title(self) -> str:
        return TITLES[self.model] + (f", {self.method}" if self.model == "phgcn" else "")


@dataclass(frozen=True)
class Effort:
    """How much is computed.  Settings that change a trial are part of its file; the number of trials is not."""

    trials: int = 10
    iterations: int = 1500
    every: int = 50
    graphs: int = 16
    heads: int = 4
    hidden: int = 16
    learning_rate: float = 3e-3

    def of_one_trial(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "trials"}


FULL = Effort()
QUICK = Effort(trials=3, iterations=250, every=25)


@dataclass(frozen=True)
class Progress:
    """What is told after every test: the trial, how far it is, and its accuracy."""

    case: Case
    trial: int
    iteration: int
    accuracy: float


def full_cases() -> list[Case]:
    """The paper's figure, longer chains, the lattice beside the exact sum, and the harder motifs."""
    local = ("gat", "gat-eda")
    return [
        *(Case(model, 10) for model in ("phgcn", *local)),
        Case("phgcn", 10, method="lattice"),
        *(Case(model, 100) for model in ("phgcn", *local)),
        Case("phgcn", 100, method="lattice"),
        *(Case(model, 10, "wiring") for model in ("phgcn", *local)),
    ]


def quick_cases() -> list[Case]:
    return [Case(model, 10) for model in ("phgcn", "gat", "gat-eda")]


def run(cases: list[Case], effort: Effort, folder: Path, told: Callable[[Progress], None]) -> dict[str, Any]:
    """Runs all trials that are not done yet, then writes ``motif.json``, ``motif.md`` and ``motif.png`` and ``.svg``."""
    trials = folder / "trials"
    trials.mkdir(parents=True, exist_ok=True)
    remove_leftovers(trials)
    begin = time.perf_counter()
    curves = []
    for case in cases:
        found = [run_trial(case, trial, effort, trials, told) for trial in range(effort.trials)]
        curves.append({**asdict(case), "iterations": found[0]["iterations"], "trials": [t["accuracy"] for t in found]})
    seconds = time.perf_counter() - begin
    content = {"provenance": provenance(), "effort": asdict(effort), "seconds": seconds, "curves": curves}
    content["summary"] = [summary(curve) for curve in curves]
    write_json(folder / "motif.json", content)
    write_text(folder / "motif.md", markdown(content))
    figure = draw(content)
    for kind in ("png", "svg"):
        save(figure, folder / f"motif.{kind}")
    return content


# One trial


def run_trial(case: Case, trial: int, effort: Effort, folder: Path, told: Callable[[Progress], None]) -> dict[str, Any]:
    """Trains and tests one network; continues from its last test if it was cut off, and does nothing if it is done."""
    done, checkpoint = folder / f"{case.name}-{trial}.json", folder / f"{case.name}-{trial}.safetensors"
    asked = {"case": asdict(case), "trial": trial, **effort.of_one_trial()}
    if done.is_file():
        result = read_json(done)
        if result["asked"] != asked:
            raise ValueError(f"{done} was made with other settings ({result['asked']}); allowed: the same, or another folder")
        return result
    model, optimiser = _start(case, trial, effort)
    iterations, accuracy = _continue(checkpoint, asked, model, optimiser)
    for iteration in range(iterations[-1] if iterations else 0, effort.iterations + 1):
        if iteration % effort.every == 0 and iteration not in iterations:
            iterations.append(iteration)
            accuracy.append(test(model, case, seed=(trial, iteration, 1)))
            _save(checkpoint, asked, model, optimiser, iterations, accuracy)
            told(Progress(case, trial, iteration, accuracy[-1]))
        if iteration < effort.iterations:
            step(model, optimiser, case, effort.graphs, seed=(trial, iteration, 0))
    result = {"asked": asked, "iterations": iterations, "accuracy": accuracy}
    write_json(done, result)
    checkpoint.unlink(missing_ok=True)
    return result


def _start(case: Case, trial: int, effort: Effort) -> tuple[Module, torch.optim.Optimizer]:
    settings: dict[str, Any] = {"method": case.method} if case.model == "phgcn" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial)
        model = MODELS[case.model](
            len(COLOURS), effort.hidden, 2, num_layers=3, heads=effort.heads, dropout=0.0, **settings
        )  # fmt: skip
    return model, torch.optim.Adam(model.parameters(), lr=effort.learning_rate)


def step(model: Module, optimiser: torch.optim.Optimizer, case: Case, graphs: int, seed: tuple[int, ...]) -> float:
    """One iteration on a fresh batch of graphs: the loss on a red node of each motif of each graph."""
    data = motif_graphs(graphs, case.elements, case.variant, seed)
    optimiser.zero_grad()
    loss = cross_entropy(model(data.x, data.edge_index, data.batch)[data.asked], data.y[data.asked])
    loss.backward()
    optimiser.step()
    return loss.item()


@torch.no_grad()
def test(model: Module, case: Case, seed: tuple[int, ...], graphs: int = TEST_GRAPHS) -> float:
    """The accuracy on fresh graphs, on one red node of each motif in each."""
    data = motif_graphs(graphs, case.elements, case.variant, seed)
    said = model(data.x, data.edge_index, data.batch)[data.asked].argmax(dim=1)
    return float((said == data.y[data.asked]).double().mean())


def _save(path: Path, asked: dict, model: Module, optimiser: torch.optim.Optimizer, iterations: list, accuracy: list) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": tensor for name, tensor in state.items()}
    write_tensors(path, tensors, {"asked": asked, "iterations": iterations, "accuracy": accuracy})


def _continue(path: Path, asked: dict, model: Module, optimiser: torch.optim.Optimizer) -> tuple[list[int], list[float]]:
    """Takes up a trial where it was cut off; nothing is told where it has not begun."""
    if not path.is_file():
        return [], []
    tensors, about = read_tensors(path)
    if about["asked"] != asked:
        raise ValueError(f"{path} was made with other settings ({about['asked']}); allowed: the same, or another folder")
    model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    return about["iterations"], about["accuracy"]


# Results


def summary(curve: dict[str, Any]) -> dict[str, Any]:
    """The accuracy in the end: mean, standard error and the worst trial."""
    last = [trial[-1] for trial in curve["trials"]]
    error = statistics.stdev(last) / math.sqrt(len(last)) if len(last) > 1 else math.nan
    case = {key: curve[key] for key in ("model", "elements", "variant", "method")}
    return {**case, "mean": statistics.mean(last), "standard_error": error, "worst": min(last)}


def _rows(content: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in content["summary"]:
        case = Case(*(row[key] for key in ("model", "elements", "variant", "method")))
        error = "" if math.isnan(row["standard_error"]) else f" ± {100 * row['standard_error']:.1f}"
        yield case.title, str(case.elements), case.variant, f"{100 * row['mean']:.1f}{error}", f"{100 * row['worst']:.1f}"


def headings() -> tuple[str, ...]:
    return ("model", "elements", "motifs differ in", "test accuracy %, mean ± standard error", "worst trial")


def markdown(content: dict[str, Any]) -> str:
    lines = [headings(), ("---",) * 5, *_rows(content)]
    effort = content["effort"]
    text = (
        f"{effort['trials']} trials of {effort['iterations']:,} iterations on {effort['graphs']} fresh graphs each; tested on "
        f"{TEST_GRAPHS} fresh graphs, one red node of each motif in each (chance: 50 %)."
    )
    return "\n".join(["# Which motif is frequent?", "", text, ""] + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def rows(content: dict[str, Any]) -> list[tuple[str, ...]]:
    """The cells of the results table."""
    return list(_rows(content))


def draw(content: dict[str, Any]) -> Any:
    """Accuracy along training, a panel for each length and variant: the mean, and its standard error as a band."""
    shown = list(dict.fromkeys((curve["elements"], curve["variant"]) for curve in content["curves"]))
    figure, axes = panels(len(shown), columns=3, width=4.2, height=3.2)
    names = list(dict.fromkeys(_case(curve).title for curve in content["curves"]))
    for axis, (elements, variant) in zip(axes, shown, strict=True):
        for curve in content["curves"]:
            if (curve["elements"], curve["variant"]) != (elements, variant):
                continue
            trials = 100 * torch.tensor(curve["trials"], dtype=torch.float64)
            mean = trials.mean(dim=0)
            error = trials.std(dim=0) / math.sqrt(len(trials)) if len(trials) > 1 else torch.zeros_like(mean)
            colour = LINE_COLOURS[names.index(_case(curve).title)]
            axis.plot(curve["iterations"], mean, color=colour, label=_case(curve).title)
            axis.fill_between(curve["iterations"], mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
        axis.axhline(50, color="#999999", linewidth=0.8, linestyle=":")
        axis.set(title=f"{elements} elements, {variant}", xlabel="iteration", ylabel="test accuracy %", ylim=(35, 102))
        axis.legend(frameon=False, fontsize=8)
    return figure


def _case(curve: dict[str, Any]) -> Case:
    return Case(curve["model"], curve["elements"], curve["variant"], curve["method"])

r"""The paper's first experiment: only a network with global attention can tell which motif is
frequent in its graph.

Three-layer networks are trained on a fresh batch of random chains in every iteration
(:mod:`phgcn_lab.motif_graphs`) and tested on 100 fresh ones along the way, on one red node of each
motif in each: chance is 50 %.  An :class:`~phgcn_lab.experiment.Experiment` whose cells are trials,
one network each.  A trial computes on one thread and writes a file of its own, so that its result
does not depend on what runs beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.nn.functional import cross_entropy

from phgcn.devices import check_device
from phgcn.files import locked, write_json, write_tensors
from phgcn.provenance import provenance
from phgcn.registry import find_model

from . import motif_report
from .experiment import journal
from .motif_graphs import COLOURS, motif_graphs
from .workers import Report

TEST_GRAPHS = 100
CLOSE = 2  # The motifs of a close graph differ by at most so many elements
MEASURES = ("accuracy", "leaning", "close_mistakes")


@dataclass(frozen=True)
class Case:
    """A curve of the figure: a model on chains of one length, over all trials."""

    model: str
    elements: int  # of a chain
    variant: str = "colour"  # what the motifs differ in
    method: str = "exact"  # of PH-GCN's global attention; a lattice is one, however small the graph
    decay: float = 10.0  # of PH-GCN's global attention

    @property
    def name(self) -> str:
        attention = [self.method, f"{self.decay:g}"] if self.model == "phgcn" else []
        return "-".join([self.model, str(self.elements), self.variant, *attention])

    @property
    def title(self) -> str:
        attention = f", {self.method}, λ = {self.decay:g}" if self.model == "phgcn" else ""
        return find_model(self.model).title + attention


@dataclass(frozen=True)
class Effort:
    """How much is computed.  All but the number of trials is part of the file of a trial."""

    trials: int = 10  # networks
    iterations: int = 600  # batches to train on
    every: int = 25  # iterations between two tests
    graphs: int = 16  # of a batch
    heads: int = 4
    hidden: int = 16  # channels of a head
    learning_rate: float = 3e-3  # in the beginning; it falls to 0 along half a cosine

    def of_one_trial(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "trials"}

    def rate(self, iteration: int) -> float:
        return self.learning_rate * (1 + math.cos(math.pi * iteration / self.iterations)) / 2


Plan = dict[Case, Effort]  # The cases of an experiment, each with its own effort


def full_plan() -> Plan:
    """The paper's figure, longer chains, the lattice beside the exact sum, and harder motifs."""
    every, local = Effort(), ("gat", "gat-eda")
    paper, slow = replace(every, iterations=300), replace(every, iterations=300, every=50, graphs=4)
    # In a long chain the more frequent motif is ahead by a smaller share: softer attention, which
    # averages more nodes.
    long = replace(every, iterations=1000, every=50, learning_rate=1e-2)
    return {
        **{Case(model, 10): paper for model in ("phgcn", *local)},
        Case("phgcn", 10, method="lattice"): slow,
        **{Case("phgcn", 100, method=method, decay=1.0): long for method in ("exact", "lattice")},
        **{Case(model, 100): long for model in local},
        **{Case(model, 10, "wiring"): every for model in ("phgcn", *local)},
        Case("phgcn", 10, "wiring", decay=1.0): every,
    }


def quick_plan() -> Plan:
    effort = Effort(trials=3, iterations=250)
    return {Case(model, 10): effort for model in ("phgcn", "gat", "gat-eda")}


def change(plan: Plan, **settings: int | None) -> Plan:
    changed = {key: value for key, value in settings.items() if value is not None}
    return {case: replace(effort, **changed) for case, effort in plan.items()}


def choose(plan: Plan, patterns: Sequence[str]) -> list[Case]:
    """Selects the cases whose names match one of the patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in plan):
            allowed = ", ".join(case.name for case in plan)
            raise ValueError(f"cases is {pattern!r}; allowed: {allowed}, or patterns of them")
    return [case for case in plan if any(fnmatchcase(case.name, pattern) for pattern in patterns)]


@dataclass(frozen=True)
class Trial:
    case: Case
    number: int
    effort: Effort
    folder: Path
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"{self.case.name}-{self.number}"

    @property
    def cost(self) -> float:
        of_phgcn = {"exact": 3.0, "lattice": 6.0}.get(self.case.method, 4.0)
        factor = of_phgcn if self.case.model == "phgcn" else 1.0
        return factor * self.case.elements * self.effort.iterations

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def weights(self) -> Path:
        return self.folder / f"{self.name}.weights.safetensors"

    @property
    def asked(self) -> dict[str, Any]:
        return {"case": asdict(self.case), "trial": self.number, **self.effort.of_one_trial()}

    def result(self) -> dict[str, Any] | None:
        """Reads the result, if it is done; refuses one of other settings."""
        result = journal(self.file, {"asked": self.asked}, "accuracy", refuse=True)
        return result if result["accuracy"] else None


@dataclass(frozen=True)
class Motif:
    """Writes ``motif.json``, ``motif.md`` and figures of all cases whose trials are done."""

    out: Path
    plan: Plan
    chosen: Sequence[Case] | None = None  # those that are run now; None: all
    device: str = "cpu"  # where networks are trained; graphs are made on the CPU

    def __post_init__(self) -> None:
        check_device(self.device)

    def trials(self, case: Case) -> list[Trial]:
        effort, folder = self.plan[case], self.out / "trials"
        return [Trial(case, n, effort, folder, self.device) for n in range(effort.trials)]

    def cells(self) -> list[Trial]:
        (self.out / "trials").mkdir(parents=True, exist_ok=True)
        cases = self.plan if self.chosen is None else self.chosen
        waiting = [t for case in cases for t in self.trials(case) if t.result() is None]
        return sorted(waiting, key=lambda trial: (-trial.cost, trial.name))

    def run(self, trial: Trial, report: Report) -> None:
        run_trial(trial, report)

    def report(self) -> dict[str, Any]:
        with locked(self.out / ".motif.lock"):
            content = gather({case: self.trials(case) for case in self.plan})
            files = motif_report.write(self.out, content) if content["curves"] else []
        return {**content, "files": files}


def gather(trials: dict[Case, list[Trial]]) -> dict[str, Any]:
    """Collects the curves of all cases whose trials are done, and what is missing of the others."""
    curves, missing = [], {}
    for case, wanted in trials.items():
        results = {trial.name: trial.result() for trial in wanted}
        done = [result for result in results.values() if result is not None]
        if len(done) < len(results):
            missing[case.name] = [name for name, result in results.items() if result is None]
            continue
        about = {**asdict(case), "name": case.name, "title": case.title}
        curve = {
            **about,
            "effort": asdict(wanted[0].effort),
            "made": motif_report.made([result["made"] for result in done]),
            "iterations": done[0]["iterations"],
            "trials": [result["accuracy"] for result in done],
        }
        curves.append(curve | {"summary": motif_report.summary(done)})
    about = {"provenance": provenance(), "test_graphs": TEST_GRAPHS}
    return {**about, "missing": missing, "curves": curves}


# One trial


def run_trial(trial: Trial, report: Report = lambda text, share: None) -> None:
    with locked(trial.folder / f".{trial.name}.lock"), one_thread():
        if trial.result() is not None:
            return
        begin = time.perf_counter()
        model, iterations, tests = train(trial, report)
        made = provenance(trial.number, trial.device) | {"seconds": time.perf_counter() - begin}
        weights = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
        write_tensors(trial.weights, weights, trial.asked)
        content = {"asked": trial.asked, "iterations": iterations, **tests, "made": made}
        write_json(trial.file, content)


def train(trial: Trial, report: Report) -> tuple[Module, list[int], dict[str, list[float]]]:
    """Returns the network, the iterations of its tests and their measures."""
    effort, model = trial.effort, start(trial)
    optimiser = torch.optim.Adam(model.parameters(), lr=effort.learning_rate)
    iterations: list[int] = []
    tests: dict[str, list[float]] = {name: [] for name in MEASURES}
    for iteration in range(effort.iterations + 1):
        last = iteration == effort.iterations
        if iteration % effort.every == 0 or last:
            seed = (trial.number, iteration, 1)
            iterations.append(iteration)
            for name, value in test(model, trial.case, seed=seed, device=trial.device).items():
                tests[name].append(value)
        if not last:
            for group in optimiser.param_groups:
                group["lr"] = effort.rate(iteration)
            seed = (trial.number, iteration, 0)
            step(model, optimiser, trial.case, effort.graphs, seed, trial.device)
        text = f"iteration {iteration}, accuracy {tests['accuracy'][-1]:.3f}"
        report(text, iteration / effort.iterations)
    return model, iterations, tests


def start(trial: Trial) -> Module:
    case, effort = trial.case, trial.effort
    settings: dict[str, Any] = {"heads": effort.heads, "dropout": 0.0, "num_layers": 3}
    if case.model == "phgcn":
        settings |= {"decay_global": case.decay, "embedding_dim": 4, "method": case.method}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.number)
        build = find_model(case.model).model_class()
        model: Module = build(len(COLOURS), effort.hidden, 2, **settings)
    return model.to(trial.device)


def step(
    model: Module,
    optimiser: torch.optim.Optimizer,
    case: Case,
    graphs: int,
    seed: tuple[int, ...],
    device: str = "cpu",
) -> None:
    """Trains on a fresh batch: the loss on a red node of each motif of each graph."""
    data = motif_graphs(graphs, case.elements, case.variant, seed).to(device)
    optimiser.zero_grad()
    output = model(data.x, data.edge_index, data.batch)
    cross_entropy(output[data.asked], data.y[data.asked]).backward()
    optimiser.step()


@torch.no_grad()
def test(
    model: Module, case: Case, seed: tuple[int, ...], graphs: int = TEST_GRAPHS, device: str = "cpu"
) -> dict[str, float]:
    """Tests a network on fresh graphs, on one red node of each motif in each.

    Returns ``accuracy``; ``leaning``, how much more often motif_1 is said to be the frequent one
    than it is; and ``close_mistakes``, the share of wrong answers in graphs whose motifs differ by
    at most two elements.
    """
    data = motif_graphs(graphs, case.elements, case.variant, seed).to(device)
    said = model(data.x, data.edge_index, data.batch)[data.asked].argmax(dim=1).reshape(-1, 2).cpu()
    true = data.y[data.asked].reshape(-1, 2).cpu()
    wrong, close = (said != true).double(), data.lead.cpu().abs() <= CLOSE
    sign = torch.tensor([1, -1])  # to call a node of motif_2 positive speaks against motif_1
    leaning = ((said - true) * sign).double().mean()
    measures = (1 - wrong.mean(), leaning, wrong[close].sum() / wrong.numel())
    return {name: round(float(x), 6) for name, x in zip(MEASURES, measures, strict=True)}


@contextmanager
def one_thread() -> Iterator[None]:
    """Computes on one thread: sums in other orders would give other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

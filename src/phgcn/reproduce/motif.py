r"""The paper's first experiment: only a network with global attention can tell which motif is frequent in its graph.

Three-layer networks are trained on a fresh batch of random chains in every iteration (:mod:`phgcn.reproduce.motif_graphs`)
and tested on 100 fresh ones along the way, on one red node of each motif in each: chance is 50 %.  A trial is one network;
it computes on one thread and writes a file of its own, so that its result does not depend on what runs beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.nn.functional import cross_entropy

from ..devices import check_device
from ..files import locked, read_json, read_tensors, write_json, write_tensors
from ..provenance import provenance
from ..registry import find_model
from . import motif_report
from .motif_graphs import COLOURS, motif_graphs
from .workers import Progress, Report, run_all

TEST_GRAPHS = 100
CLOSE = 2
"""The motifs of a close graph differ by at most so many elements."""
MEASURES = ("accuracy", "leaning", "close_mistakes")


@dataclass(frozen=True)
class Case:
    """One curve of the figure: a model on chains of one length, over all trials.

    Args:
        model (str): ``"phgcn"``, ``"gat-eda"`` or ``"gat"``.
        elements (int): The length of the chains.
        variant (str): What the motifs differ in. (default: :obj:`"colour"`)
        method (str): How PH-GCN attends to all nodes; a lattice is one, however small the graph. (default: :obj:`"exact"`)
        decay (float): The coefficient of PH-GCN's global attention. (default: :obj:`10.0`, the paper's)
    """

    model: str
    elements: int
    variant: str = "colour"
    method: str = "exact"
    decay: float = 10.0

    @property
    def name(self) -> str:
        attention = [self.method, f"{self.decay:g}"] if self.model == "phgcn" else []
        return "-".join([self.model, str(self.elements), self.variant, *attention])

    @property
    def title(self) -> str:
        return find_model(self.model).title + (f", {self.method}, λ = {self.decay:g}" if self.model == "phgcn" else "")


@dataclass(frozen=True)
class Effort:
    """How much is computed.  Settings that change a trial are part of its file; the number of trials is not.

    Args:
        trials (int): Networks. (default: :obj:`10`)
        iterations (int): Batches to train on. (default: :obj:`600`)
        every (int): Iterations between two tests. (default: :obj:`25`)
        graphs (int): Graphs in a batch. (default: :obj:`16`)
        heads (int): Attention heads. (default: :obj:`4`)
        hidden (int): Channels of a head. (default: :obj:`16`)
        learning_rate (float): Adam's in the beginning; it falls to 0 along half a cosine. (default: :obj:`3e-3`)
    """

    trials: int = 10
    iterations: int = 600
    every: int = 25
    graphs: int = 16
    heads: int = 4
    hidden: int = 16
    learning_rate: float = 3e-3

    def of_one_trial(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "trials"}

    def rate(self, iteration: int) -> float:
        return self.learning_rate * (1 + math.cos(math.pi * iteration / self.iterations)) / 2


Plan = dict[Case, Effort]
"""The cases of an experiment, each with its own effort."""


def full_plan() -> Plan:
    """Plans the paper's figure, longer chains, the lattice beside the exact sum, and the harder motifs."""
    every, local = Effort(), ("gat", "gat-eda")
    paper, slow = replace(every, iterations=300), replace(every, iterations=300, every=50, graphs=4)
    # In a long chain the more frequent motif is ahead by a smaller share: softer attention, which averages more nodes.
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
    return {Case(model, 10): Effort(trials=3, iterations=250) for model in ("phgcn", "gat", "gat-eda")}


def change(plan: Plan, **settings: int | None) -> Plan:
    """Replaces some settings in every effort of a plan; those that are :obj:`None` stay."""
    changed = {key: value for key, value in settings.items() if value is not None}
    return {case: replace(effort, **changed) for case, effort in plan.items()}


def choose(plan: Plan, patterns: Sequence[str]) -> list[Case]:
    """Selects the cases whose names match one of the patterns, as file names do."""
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in plan):
            raise ValueError(f"cases is {pattern!r}; allowed: {', '.join(case.name for case in plan)}, or patterns of them")
    return [case for case in plan if any(fnmatchcase(case.name, pattern) for pattern in patterns)]


@dataclass(frozen=True)
class Trial:
    """A network to be trained: its case, its number, and where."""

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
        factor = {"exact": 3.0, "lattice": 6.0}.get(self.case.method, 4.0) if self.case.model == "phgcn" else 1.0
        return factor * self.case.elements * self.effort.iterations

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def weights(self) -> Path:
        """The weights of the trained network."""
        return self.folder / f"{self.name}.weights.safetensors"

    @property
    def asked(self) -> dict[str, Any]:
        return {"case": asdict(self.case), "trial": self.number, **self.effort.of_one_trial()}

    def result(self) -> dict[str, Any] | None:
        """Reads the result of the trial, if it is done; one that was made with other settings is refused."""
        if not self.file.is_file():
            return None
        result: dict[str, Any] = read_json(self.file)
        check_same(self.file, result["asked"], self.asked)
        return result


def run(
    plan: Plan,
    folder: Path,
    on_progress: Callable[[Progress], None],
    *,
    only: Sequence[Case] | None = None,
    jobs: int = 1,
    device: str = "cpu",
) -> dict[str, Any]:
    """Runs the trials that are not done yet, then writes ``motif.json``, ``motif.md`` and the figures ``motif`` and
    ``motif-graphs`` as PNG and SVG, of all cases whose trials are done.

    Several processes can work into one folder; a trial is run by one of them, and the last one finds all trials done.

    Args:
        plan (dict of Case and Effort): The cases of the results, and how much is computed for each.
        folder (Path): Where results go, and trials into ``trials`` below it.
        on_progress (callable): Called with every :class:`phgcn.reproduce.workers.Progress`.
        only (list of Case, optional): Those that are run now. (default: :obj:`None`, all)
        jobs (int, optional): How many processes. (default: :obj:`1`)
        device (str, optional): Where networks are trained; graphs are made on the CPU. (default: :obj:`"cpu"`)

    Returns:
        What ``motif.json`` holds; and ``failures``, the names of trials that failed, and why.
    """
    check_device(device)
    begin = time.perf_counter()

    def trials(case: Case) -> list[Trial]:
        return [Trial(case, number, plan[case], folder / "trials", device) for number in range(plan[case].trials)]

    chosen = plan if only is None else only
    waiting = [trial for case in chosen for trial in trials(case) if trial.result() is None]
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    failures = run_all(waiting, run_trial, jobs, on_progress)
    with locked(folder / ".motif.lock"):
        content = gather({case: trials(case) for case in plan}) | {"seconds": time.perf_counter() - begin}
        if content["curves"]:
            motif_report.write(folder, content)
    return {**content, "failures": failures}


def gather(trials: dict[Case, list[Trial]]) -> dict[str, Any]:
    """Collects the curves of all cases whose trials are done, and the names of trials that are missing in the others."""
    curves, missing = [], {}
    for case, wanted in trials.items():
        results = {trial.name: trial.result() for trial in wanted}
        done = [result for result in results.values() if result is not None]
        if len(done) < len(results):
            missing[case.name] = [name for name, result in results.items() if result is None]
            continue
        about = {**asdict(case), "name": case.name, "title": case.title, "effort": asdict(wanted[0].effort)}
        about["made"] = motif_report.made([result["made"] for result in done])
        curve = {**about, "iterations": done[0]["iterations"], "trials": [result["accuracy"] for result in done]}
        curves.append(curve | {"summary": motif_report.summary(done)})
    return {"provenance": provenance(), "test_graphs": TEST_GRAPHS, "missing": missing, "curves": curves}


# One trial


@dataclass
class State:
    """A network in training: its weights and optimiser, and the tests so far."""

    model: Module
    optimiser: torch.optim.Optimizer
    iterations: list[int] = field(default_factory=list)
    tests: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    seconds: float = 0.0


def run_trial(trial: Trial, report: Report = lambda text, share: None) -> None:
    """Trains and tests one network; continues from its last test if it was cut off, and does nothing if it is done."""
    with locked(trial.folder / f".{trial.name}.lock"), one_thread():
        if trial.result() is not None:
            return
        for leftover in trial.folder.glob(f".{trial.name}.*.tmp"):
            leftover.unlink()
        checkpoint = trial.file.with_suffix(".safetensors")
        state = start(trial)
        if checkpoint.is_file():
            load(checkpoint, trial, state)
        train(trial, state, checkpoint, report)
        made = {**provenance(trial.number, trial.device), "seconds": state.seconds}
        write_tensors(trial.weights, {name: tensor.cpu() for name, tensor in state.model.state_dict().items()}, trial.asked)
        write_json(trial.file, {"asked": trial.asked, "iterations": state.iterations, **state.tests, "made": made})
        checkpoint.unlink(missing_ok=True)


def train(trial: Trial, state: State, checkpoint: Path, report: Report) -> None:
    effort, begin = trial.effort, time.perf_counter() - state.seconds
    for iteration in range(state.iterations[-1] if state.iterations else 0, effort.iterations + 1):
        last = iteration == effort.iterations
        if (iteration % effort.every == 0 or last) and iteration not in state.iterations:
            measures = test(state.model, trial.case, seed=(trial.number, iteration, 1), device=trial.device)
            state.iterations.append(iteration)
            for name, value in measures.items():
                state.tests[name].append(value)
            state.seconds = time.perf_counter() - begin
            save(checkpoint, trial, state)
        if not last:
            for group in state.optimiser.param_groups:
                group["lr"] = effort.rate(iteration)
            step(state.model, state.optimiser, trial.case, effort.graphs, (trial.number, iteration, 0), trial.device)
        report(f"iteration {iteration}, accuracy {state.tests['accuracy'][-1]:.3f}", iteration / effort.iterations)


def start(trial: Trial) -> State:
    """Builds a network with random weights, which follow from the trial's number, whatever the device."""
    case, effort = trial.case, trial.effort
    settings: dict[str, Any] = {}
    if case.model == "phgcn":
        settings = {"decay_global": case.decay, "embedding_dim": 4, "method": case.method}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.number)
        model = find_model(case.model).model_class()(
            len(COLOURS), effort.hidden, 2, num_layers=3, heads=effort.heads, dropout=0.0, **settings
        ).to(trial.device)  # fmt: skip
    return State(model, torch.optim.Adam(model.parameters(), lr=effort.learning_rate))


def step(
    model: Module, optimiser: torch.optim.Optimizer, case: Case, graphs: int, seed: tuple[int, ...], device: str = "cpu"
) -> None:
    """Trains for one iteration on a fresh batch of graphs: the loss on a red node of each motif of each graph."""
    data = motif_graphs(graphs, case.elements, case.variant, seed).to(device)
    optimiser.zero_grad()
    cross_entropy(model(data.x, data.edge_index, data.batch)[data.asked], data.y[data.asked]).backward()
    optimiser.step()


@torch.no_grad()
def test(model: Module, case: Case, seed: tuple[int, ...], graphs: int = TEST_GRAPHS, device: str = "cpu") -> dict[str, float]:
    """Tests a network on fresh graphs, on one red node of each motif in each.

    Returns:
        ``accuracy``; ``leaning``, how much more often motif_1 is said to be the frequent one than it is, so that this is the
        share of mistakes if all are to its advantage; and ``close_mistakes``, the share of answers that are wrong and in
        graphs whose motifs differ by at most two elements.
    """
    data = motif_graphs(graphs, case.elements, case.variant, seed).to(device)
    said = model(data.x, data.edge_index, data.batch)[data.asked].argmax(dim=1).reshape(-1, 2).cpu()
    true = data.y[data.asked].reshape(-1, 2).cpu()
    wrong, close = (said != true).double(), data.lead.cpu().abs() <= CLOSE
    sign = torch.tensor([1, -1])  # to call a node of motif_2 positive speaks against motif_1
    measures = {"leaning": ((said - true) * sign).double().mean(), "close_mistakes": wrong[close].sum() / wrong.numel()}
    return {name: round(float(value), 6) for name, value in {"accuracy": 1 - wrong.mean(), **measures}.items()}


# Files, locks and devices


def save(path: Path, trial: Trial, state: State) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    for number, moments in state.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": tensor for name, tensor in moments.items()}
    about = {"asked": trial.asked, "iterations": state.iterations, "tests": state.tests, "seconds": state.seconds}
    write_tensors(path, tensors, about)


def load(path: Path, trial: Trial, state: State) -> None:
    """Continues a trial from its checkpoint."""
    tensors, about = read_tensors(path)
    check_same(path, about["asked"], trial.asked)
    state.model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, number, key = name.split(".", 2)
            moments.setdefault(int(number), {})[key] = tensor
    state.optimiser.load_state_dict({**state.optimiser.state_dict(), "state": moments})
    state.iterations, state.tests, state.seconds = about["iterations"], about["tests"], about["seconds"]


def check_same(path: Path, recorded: dict[str, Any], asked: dict[str, Any]) -> None:
    if recorded != asked:
        raise ValueError(f"{path} was made with other settings ({recorded}); allowed: the same, or another folder")


@contextmanager
def one_thread() -> Iterator[None]:
    """Computes on one thread: sums in other orders would give other bits, and small graphs gain nothing from a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

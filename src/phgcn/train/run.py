r"""A run: one model trained on several splits of one graph, and the folder that keeps it.

::

    RUN/run.json                    what was asked for, written first
    RUN/config.toml                 the settings, each with its meaning
    RUN/split-00.safetensors        the weights of the best epoch, by validation loss or metric, and the split's result
    RUN/split-00.csv                its curves
    RUN/attention-split-00.csv      samples of what its global path attends to, if the model has one
    RUN/split-00.state-000042.safetensors   the latest two checkpoints, until the split is trained
    RUN/last-split-00.safetensors   its state after the last epoch, for more epochs
    RUN/result.json                 the result, written last

With several trainings per split the files are called ``split-00-repeat-0`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from ..data import Columns
from ..data.load import PAIR
from ..files import read_json, read_tensors, remove_leftovers, write_csv, write_json, write_tensors, write_text
from ..nn.models import NodeModel
from ..provenance import provenance, versions
from . import graph as graphs
from . import settings as config
from .checkpoints import Checkpoints, CheckpointSchedule, DelayedInterrupt, checkpoint_files, last_state
from .features import FeatureTransform
from .global_path import ATTENTION, switch_global
from .labels import KeptKeys, Labels, keep_keys
from .loop import Task, Training, TrainingError
from .plan import EpochProgress, OnEpoch, Plan, Trial
from .prepare import build_model, prepare, seeded, start, taken_edge_values
from .result import run_result, split_result
from .settings import Settings
from .state import CURVES, with_prefix
from .tasks import TaskKind, find_task
from .yardsticks import LOCAL, commonest_answer, plan_without_global, simple_scores

FORMAT = 1
ADDED = ("task", "columns", "yardsticks")
"""Fields of :class:`Plan` that runs of earlier versions do not have; their defaults are what those did."""

SAMPLE_EVERY = 25
"""Epochs between two samples of the global path: one costs about a forward pass, so that all cost about a hundredth."""

KEPT = "prepared."
"""The names of tensors in a file of weights that are no weights, but what was fitted to the training nodes, begin so."""


class Run:
    """A run and its folder; opened by :meth:`create` or :meth:`open`."""

    def __init__(self, folder: Path, plan: Plan, about: dict[str, Any]) -> None:
        self.folder, self.plan, self.about = folder, plan, about

    @classmethod
    def create(cls, folder: str | Path, plan: Plan, data: Data, heading: str = "", search: dict[str, Any] | None = None) -> Run:
        """Makes the folder of a new run; one that holds something already is refused.

        Args:
            folder (str or Path): The folder.
            plan (Plan): What to train.
            data (torch_geometric.data.Data): The graph.
            heading (str, optional): The comment of ``config.toml``. (default: model and graph)
            search (dict, optional): What :func:`phgcn.train.search` saw before it chose the model. (default: :obj:`None`)
        """
        folder = Path(folder)
        check_new(folder)
        origin = provenance(plan.seed, plan.device)
        about = {"format": FORMAT, **asdict(plan), "graph": graphs.describe(data), "versions": versions(origin)}
        about["provenance"] = origin
        about["commonest"] = commonest_answer(plan.task, data.y, graphs.class_names(data))
        about["settings"] = config.used(plan.settings, plan.model)
        about["search"] = search
        heading = heading or f"{plan.model} on {data.name}"
        try:
            write_json(folder / "run.json", about)
            write_text(folder / "config.toml", config.as_toml(plan.settings, plan.model, heading))
        except OSError:
            if folder.is_dir():
                (folder / "run.json").unlink(missing_ok=True)  # a run is there whole or not at all
            raise
        return cls(folder, plan, about)

    @classmethod
    def open(cls, folder: str | Path, device: str | None = None) -> Run:
        """The run in a folder, finished or not.

        Args:
            folder (str or Path): The folder.
            device (str, optional): Where to compute. (default: :obj:`None`, where the run was trained)
        """
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise ValueError(f"{folder}: no run here (run.json is missing); `phgcn train ... --out {folder}` makes one")
        about = read_json(folder / "run.json")
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"{folder / 'run.json'}: not a run of this version of phgcn")
        try:
            given = {entry.name: about[entry.name] for entry in fields(Plan) if entry.name not in ADDED or entry.name in about}
            source = str(folder / "run.json")
            settings = config.change(Settings(), about["settings"], given["model"], source)
            given["columns"] = Columns(**given.get("columns", {}))
            given["device"] = device or given["device"]
            given["settings"] = replace(settings, amp=settings.amp and given["device"].startswith("cuda"))
            return cls(folder, Plan(**given), about)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder / 'run.json'}: not a run ({error})") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing the same run; the lock ends with the process, however that ends."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{self.folder}: another process is training this run") from None
        try:
            remove_leftovers(self.folder)
            yield
        finally:
            lock.release()

    def data(self, source: str | None = None) -> Data:
        """The graph that the run was trained on, refused if it has changed since."""
        where = source or self.plan.source
        gone = [path for path in map(Path, where.split(PAIR)) if path.is_absolute() and not path.exists()]
        if source is None and gone:
            raise ValueError(f"{gone[0]}: the graph that {self.folder} was trained on is gone; `--graph` says where it is now")
        data = self.read(where)
        if not self.is_own(data):
            raise ValueError(f"{where} has changed since {self.folder} was begun: {self.changes(data)}")
        return data

    def is_own(self, data: Data) -> bool:
        """Whether a graph is the one that the run was trained on."""
        return bool(graphs.digest(data) == self.about["graph"]["digest"])

    def changes(self, data: Data) -> str:
        """Says in which way a graph is not the one that the run was trained on."""
        return graphs.describe_changes(self.about["graph"], graphs.describe(data))

    def read(self, source: str, labels: bool = True) -> Data:
        """Reads any graph as this run takes it: columns by their names, categories and classes by theirs.

        Args:
            source (str): A known name or a path.
            labels (bool, optional): Whether labels are read, which must be there then. (default: :obj:`True`)
        """
        about, columns = self.about["graph"], self.plan.columns
        if "feature_columns" in about:
            levels = about.get("feature_levels", {})
            columns = replace(columns, features=about["feature_columns"], categorical=(), levels=levels)
        if "edge_table" in about:
            columns = replace(columns, edge_features=about["edge_table"]["columns"], edge_levels=about["edge_table"]["levels"])
        if not labels:
            columns = replace(columns, label=None, split=())
        _, data = graphs.find(source, self.plan.directed, self.plan.task if labels else None, columns)
        graphs.match_features(data, about)
        graphs.match_edges(data, about, taken_edge_values(self.plan))
        if labels:
            graphs.match_classes(data, about["classes"])
        return data

    def extend(self, epochs: int | None = None, patience: int | None = None) -> None:
        """Gives the run more epochs, or more patience; :meth:`train` then continues each split after its last epoch.

        Under a constant learning rate the result has the bits of a run that was begun so.  A rate that falls over all epochs
        begins to fall anew from where the longer schedule has it.

        Args:
            epochs (int, optional): How many epochs each split may have in all. (default: :obj:`None`, as before)
            patience (int, optional): Epochs without a better one before training stops. (default: :obj:`None`, as before)
        """
        before = self.plan.settings
        wanted = {"epochs": epochs, "patience": patience}
        changes = {key: value for key, value in wanted.items() if value is not None}
        for key, value in changes.items():
            if value < getattr(before, key):
                raise ValueError(f"{key} is {value}; allowed: {getattr(before, key)} or more, as {self.folder} was begun with")
        settings = config.change(before, changes, self.plan.model, "the extension")
        with self.locked():
            finished = [trial for trial in self.plan.trials() if self.finished(trial)]
            for trial in finished:
                last = last_state(self.folder, trial.name)
                if not last.is_file():
                    raise ValueError(f"{self.folder}: {trial.name} cannot have more epochs, as {last} is missing")
            # Killed between any two of these steps, the run is one that is not finished, with its old plan or the new one.
            (self.folder / "result.json").unlink(missing_ok=True)
            for trial in finished:
                self._weights(trial).unlink()
            self.plan = replace(self.plan, settings=settings)
            self.about["settings"] = config.used(settings, self.plan.model)
            write_text(self.folder / "config.toml", config.as_toml(settings, self.plan.model, f"extended: {changes}"))
            write_json(self.folder / "run.json", self.about)

    def finished(self, trial: Trial) -> bool:
        return self._weights(trial).is_file()

    def trial_result(self, trial: Trial) -> dict[str, Any]:
        return read_tensors(self._weights(trial))[1]

    def model(self, trial: Trial) -> NodeModel:
        """The trained model of a trial, for predicting; without its global path if its best epoch was a local one."""
        about, kind = self.about["graph"], find_task(self.plan.task)
        features = self.transform(trial).width
        edge_dim = about.get("edge_features", 0)
        columns = graphs.column_kinds(about, about["features"], self.plan.columns.coordinates)
        outputs = kind.out_channels(len(about["classes"]))
        model = build_model(self.plan, features, outputs, about["nodes"], edge_dim=edge_dim, columns=columns)
        tensors, result = read_tensors(self._weights(trial))
        weights = {name: value for name, value in tensors.items() if not name.startswith(KEPT)}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"{self._weights(trial)}: not the weights of this run ({str(error).splitlines()[0]})") from None
        if result["best_epoch"] <= result.get("local_epochs", 0):
            switch_global(model, False)
        kept = self.kept_keys(trial)
        if kept is not None:
            kept.set(model)
        return model.eval()

    def kept_keys(self, trial: Trial) -> KeptKeys | None:
        """The training nodes that a trained model attends to; :obj:`None` for a model that takes no labels."""
        return KeptKeys.restored(self._kept(trial, "labels."))

    def own_labels(self, trial: Trial, data: Data) -> Labels:
        """The labels that a trained model takes of a graph: those of the training nodes if the nodes are those of the run.
        For other nodes there are none, and the model attends to the keys it has kept."""
        kept = self.kept_keys(trial)
        if kept is None or graphs.digest_rows(data) != self.about["graph"].get("rows"):
            return {}
        return kept.own_labels(int(data.num_nodes), self.plan.device)

    def kind(self, trial: Trial) -> TaskKind:
        """The task of a trial, with what was fitted to its training nodes."""
        return find_task(self.plan.task).restored(self._kept(trial, "task."))

    def transform(self, trial: Trial) -> FeatureTransform:
        """What the features were prepared by, fitted to the training nodes of a trial."""
        return FeatureTransform.restored(self._kept(trial, "features."), self.about["graph"]["features"])

    def _kept(self, trial: Trial, part: str) -> dict[str, Tensor]:
        """Returns what was fitted to the training nodes of a trial, by name."""
        return with_prefix(read_tensors(self._weights(trial))[0], KEPT + part)

    def result(self) -> dict[str, Any]:
        """The result of a finished run."""
        path = self.folder / "result.json"
        if not path.is_file():
            raise ValueError(
                f"{self.folder}: the run is not finished; `phgcn train ... --out {self.folder} --resume` does that"
            )
        result: dict[str, Any] = read_json(path)
        return result

    def _weights(self, trial: Trial) -> Path:
        return self.folder / f"{trial.name}.safetensors"

    # Training

    def train(self, data: Data, on_epoch: OnEpoch = lambda progress: None, tensorboard: bool = False) -> dict[str, Any]:
        """Trains the trials that are not finished, continuing from their checkpoints, and writes the result.

        Args:
            data (torch_geometric.data.Data): The graph.
            on_epoch (callable): Called with an :class:`EpochProgress` after every epoch. (default: does nothing)
            tensorboard (bool): Also writes the curves for TensorBoard, below ``RUN/tensorboard``. (default: :obj:`False`)
        """
        with self.locked():
            tasks, schedule = prepare(self.plan, data), CheckpointSchedule()
            for trial in self.plan.trials():
                if not self.finished(trial):
                    self._train_trial(trial, tasks[trial.split], schedule, on_epoch, tensorboard)
                for checkpoint in checkpoint_files(self.folder, trial.name):
                    checkpoint.unlink()
            result = run_result(self.plan, self.about, [self.trial_result(trial) for trial in self.plan.trials()])
            write_json(self.folder / "result.json", result)
        return result

    def _train_trial(
        self, trial: Trial, task: Task, schedule: CheckpointSchedule, on_epoch: OnEpoch, tensorboard: bool
    ) -> None:
        with seeded(trial.seed, task):
            training = start(self.plan, task, SAMPLE_EVERY)
            checkpoints = Checkpoints(self.folder, trial.name, training, schedule)
            checkpoints.restore()
            log = curve_log(self.folder / "tensorboard" / trial.name, training.state.epoch, tensorboard)
            with DelayedInterrupt(checkpoints.outdated) as interrupt, log as log_row:
                while not training.done:
                    row = run_epoch(training, trial)
                    try:
                        checkpoints.save_if_due()
                        log_row(training.state.epoch, row)
                        on_epoch(EpochProgress(trial, training.state.epoch, row, training.best_by_loss.val_loss))
                        interrupt.check()
                    except KeyboardInterrupt:
                        checkpoints.save()
                        raise
                yardsticks = {}
                if self.plan.yardsticks:
                    checkpoints.save()  # they may be interrupted too
                    yardsticks = self._yardsticks(trial, training, on_epoch, interrupt)
                training.save(last_state(self.folder, trial.name))  # before the result, which loads the best weights
                self.write_trial(trial, training, split_result(trial, training) | yardsticks)

    def _yardsticks(self, trial: Trial, training: Training, on_epoch: OnEpoch, interrupt: DelayedInterrupt) -> dict[str, Any]:
        """Scores what the result of a trial is held against; without global attention it is trained on the first split."""
        task = training.task
        scores = simple_scores(task)
        plan = plan_without_global(self.plan)
        if plan is not None and trial.split == 0 and trial.repeat == 0:
            with seeded(trial.seed, task):
                local = start(plan, task)
                while not local.done and local.state.epoch < training.state.epoch:
                    row = run_epoch(local, trial)
                    on_epoch(EpochProgress(trial, local.state.epoch, row, local.best_by_loss.val_loss, yardstick=True))
                    interrupt.check()
            scores[LOCAL] = local.best.test_metric if len(task.test) else local.best.val_metric
        return {"yardsticks": scores}

    def write_trial(self, trial: Trial, training: Training, result: dict[str, Any]) -> None:
        """Writes the curves, then the weights, which make the trial count as finished."""
        rows = [(number, *row) for number, row in enumerate(training.state.curves, start=1)]
        write_csv(self.folder / f"{trial.name}.csv", ("epoch", *CURVES), rows)
        if training.state.attention:
            write_csv(self.folder / f"attention-{trial.name}.csv", ATTENTION, training.state.attention)
        parts: dict[str, Any] = {"task": training.task.kind, "features": training.task.transform}
        if training.labels:
            training.model.load_state_dict(training.state.best_weights)
            parts["labels"] = keep_keys(training.model, training.task.inputs, training.labels, training.task.ids)
        kept = {
            f"{KEPT}{part}.{name}": value
            for part, fitted in parts.items()
            if fitted is not None
            for name, value in fitted.tensors().items()
        }
        write_tensors(self._weights(trial), training.state.best_weights | kept, result)


def check_new(folder: Path) -> None:
    """Refuses a folder that holds something already."""
    if folder.is_dir() and any(entry.name != ".lock" for entry in folder.iterdir()):
        if (folder / "run.json").is_file():
            raise ValueError(f"{folder} holds a run already: continue it with --resume, or choose another folder with --out")
        raise ValueError(f"{folder} holds files that are no run: choose another folder with --out")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a file; allowed: a folder, or a name that is not taken")


def run_epoch(training: Training, trial: Trial) -> tuple[float, ...]:
    """Trains for one epoch; an error names the trial."""
    try:
        return training.epoch()
    except TrainingError as error:
        raise TrainingError(f"{trial.name}: {error}") from None


@contextmanager
def curve_log(folder: Path, epoch: int, wanted: bool) -> Iterator[Callable[[int, tuple[float, ...]], None]]:
    """Yields a function that writes a row of the curves for TensorBoard; it does nothing unless ``wanted``.

    Rows after ``epoch``, which a killed process may have left, are dropped.
    """
    if not wanted:
        yield lambda epoch, row: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs the package tensorboard: pip install 'phgcn[log]'") from None
    with SummaryWriter(str(folder), purge_step=epoch + 1) as writer:

        def log_row(number: int, row: tuple[float, ...]) -> None:
            for name, value in zip(CURVES, row, strict=True):
                writer.add_scalar(name, value, number)

        yield log_row

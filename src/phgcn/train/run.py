"""A run: one model trained on several splits of one graph, and the folder that keeps it.

::

    RUN/run.json                    what was asked for, written first
    RUN/config.toml                 the settings, each with its meaning
    RUN/split-00.safetensors        weights of the best epoch by validation, and the split's result
    RUN/split-00.csv                its curves
    RUN/local-split-00.*            the same of the network without global attention, a yardstick
    RUN/attention-split-00.csv      samples of what its global path attends to, if the model has one
    RUN/split-00.state-000042.safetensors   the latest two checkpoints, until the split is trained
    RUN/last-split-00.safetensors   its state after the last epoch, for more epochs
    RUN/result.json                 the result, written last

With several trainings per split the files are called ``split-00-repeat-0`` and so on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from ..data import Columns
from ..data.load import PAIR
from ..files import read_json, read_tensors, remove_leftovers, write_json, write_text
from ..nn.models import NodeModel
from ..provenance import provenance, versions
from . import graph as graphs
from . import settings as config
from .checkpoints import CheckpointSchedule, checkpoint_files, last_state
from .features import FeatureTransform
from .global_path import switch_global
from .labels import KeptKeys, Labels
from .plan import Chosen, OnEpoch, Plan, Trial
from .prepare import build_model, prepare, taken_edge_values
from .processes import OneProcess
from .settings import Settings
from .state import with_prefix
from .tasks import TaskKind, find_task
from .trial import KEPT, Logged, run_result, train_trial, weights_file
from .yardsticks import COMMONEST, LINEAR, LinearModel, commonest_answer

FORMAT = 1
# fields of :class:`Plan` that runs of earlier versions lack; the defaults hold for these
ADDED = ("task", "columns", "yardsticks", "per_split")


class Run:
    """A run and its folder; opened by :meth:`create` or :meth:`open`."""

    def __init__(self, folder: Path, plan: Plan, about: dict[str, Any]) -> None:
        self.folder, self.plan, self.about = folder, plan, about

    @classmethod
    def create(
        cls,
        folder: str | Path,
        plan: Plan,
        data: Data,
        heading: str = "",
        search: dict[str, Any] | None = None,
    ) -> Run:
        """Makes the folder of a new run; refuses a folder that holds something already.

        Args:
            folder (str or Path): The folder.
            plan (Plan): The training.
            data (torch_geometric.data.Data): The graph.
            heading (str, optional): The comment of ``config.toml``. (default: model and graph)
            search (dict, optional): The account that :func:`phgcn.train.search` returned.
        """
        folder = Path(folder)
        check_new(folder)
        graphs.column_kinds(data.to_dict(), data.x.size(1), plan.columns.coordinates)
        origin = provenance(plan.seed, plan.device)
        about = {
            "format": FORMAT,
            **asdict(plan),
            "graph": graphs.describe(data),
            "versions": versions(origin),
            "provenance": origin,
            "commonest": commonest_answer(plan.task, data.y, graphs.class_names(data)),
            "settings": config.used(plan.settings, plan.model),
            "per_split": [
                {"name": name, "model": model, "settings": config.used(settings, model)}
                for name, model, settings in plan.per_split
            ],
            "search": search,
        }
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
        """Opens the run in a folder, finished or not.

        Args:
            folder (str or Path): The folder.
            device (str, optional): The device to compute on. (default: the training's)
        """
        folder, file = Path(folder), Path(folder) / "run.json"
        if not file.is_file():
            hint = f"`phgcn train ... --out {folder}` makes one"
            raise ValueError(f"{folder}: no run here (run.json is missing); {hint}")
        about = read_json(file)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"{file}: not a run of this version of phgcn")
        try:
            return cls(folder, _read_plan(about, device or about["device"], str(file)), about)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{file}: not a run ({error})") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing the run; the lock ends with this process at last."""
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
        """Reads the graph that the run was trained on; refuses it if it has changed since."""
        where = source or self.plan.source
        paths = [Path(part) for part in where.split(PAIR) if part]
        gone = [path for path in paths if path.is_absolute() and not path.exists()]
        if source is None and gone:
            problem = f"{gone[0]}: the graph that {self.folder} was trained on is gone"
            raise ValueError(f"{problem}; `--graph` says where it is now")
        data = self.read(where)
        if changes := self.changes(data):
            raise self.changed(where, changes, data)
        return data

    def changed(self, source: str, changes: object, data: Data | None = None) -> ValueError:
        """Makes the error that the graph of the run has changed, as its file ``data`` now is."""
        now = self.about["graph"] if data is None else graphs.describe(data)
        file = graphs.changed_file(source, self.about["graph"], now)
        return ValueError(f"{file} has changed since {self.folder} was begun: {changes}")

    def is_own(self, data: Data) -> bool:
        """Whether a graph is the one that the run was trained on, whatever its ids are."""
        return bool(graphs.digest(data) == self.about["graph"]["digest"])

    def changes(self, data: Data) -> str:
        """Describes how a graph differs from the one that the run was trained on, in its ids too;
        returns an empty text if it does not."""
        return graphs.describe_changes(self.about["graph"], graphs.describe(data))

    def read(self, source: Any, labels: bool = True) -> Data:
        """Reads any graph for this run: columns, categories and classes are found by their names.

        Args:
            source (str or tuple): A known name, a path, or tables, as for
                :func:`phgcn.data.load_graph`.
            labels (bool, optional): Whether labels are read, which must be there then. (default:
                :obj:`True`)
        """
        about, columns = self.about["graph"], self.plan.columns
        if "feature_columns" in about:
            names, levels = about["feature_columns"], about.get("feature_levels", {})
            columns = replace(columns, features=names, categorical=(), levels=levels)
        if "edge_table" in about:
            names, levels = (about["edge_table"][key] for key in ("columns", "levels"))
            columns = replace(columns, edge_features=names, edge_levels=levels)
        if not labels:
            columns = replace(columns, label=None, split=())
        try:
            return self._read(source, labels, columns)
        except ValueError as error:
            if not isinstance(source, str) or graphs.find_source(source) != self.plan.source:
                raise
            paths = [Path(part) for part in self.plan.source.split(PAIR) if part]
            if not all(path.is_absolute() and path.exists() for path in paths):
                raise
            raise self.changed(source, error) from None

    def _read(self, source: Any, labels: bool, columns: Columns) -> Data:
        about, task = self.about["graph"], self.plan.task if labels else None
        _, data = graphs.find(source, self.plan.directed, task, columns)
        graphs.match_features(data, about)
        taken = {name for trial in self.plan.trials() for name in taken_edge_values(trial.plan)}
        graphs.match_edges(data, about, tuple(sorted(taken)))
        if labels:
            graphs.match_classes(data, about["classes"])
        return data

    def extend(self, epochs: int | None = None, patience: int | None = None) -> None:
        """Gives the run more epochs or patience; :meth:`train` continues each split after its last
        epoch.

        Under a constant learning rate the result has the bits of a run that began with them. A
        cosine schedule continues from the learning rate of the longer schedule.

        Args:
            epochs (int, optional): Most epochs of each split in all. (default: as before)
            patience (int, optional): Epochs without a better one before training stops. (default:
                as before)
        """
        folder, model, before = self.folder, self.plan.model, self.plan.settings
        requested = {"epochs": epochs, "patience": patience}
        changes = {key: value for key, value in requested.items() if value is not None}
        for key, value in changes.items():
            if value < (least := getattr(before, key)):
                allowed = f"{least} or more, as {folder} was begun with"
                raise ValueError(f"{key} is {value}; allowed: {allowed}")
        settings = config.change(before, changes, model, "the extension")
        if self.plan.per_split:
            problem = f"{folder}: its splits have models of their own"
            raise ValueError(f"{problem}; allowed: no more epochs or patience")
        with self.locked():
            finished = [trial for trial in self.plan.trials() if self.finished(trial)]
            for name in (trial.name for trial in finished):
                if not (last := last_state(folder, name)).is_file():
                    problem = f"{folder}: {name} cannot have more epochs, as {last} is missing"
                    raise ValueError(problem)
            # Killed between any two steps, the run is not finished, with the old plan or the new.
            (folder / "result.json").unlink(missing_ok=True)
            for trial in finished:
                self._weights(trial).unlink()
            self.plan = replace(self.plan, settings=settings)
            self.about["settings"] = config.used(settings, model)
            text = config.as_toml(settings, model, f"extended: {changes}")
            write_text(folder / "config.toml", text)
            write_json(folder / "run.json", self.about)

    def finished(self, trial: Trial) -> bool:
        return self._weights(trial).is_file()

    def trial_result(self, trial: Trial) -> dict[str, Any]:
        return read_tensors(self._weights(trial))[1]

    def model(self, trial: Trial) -> NodeModel:
        """Loads the trained model of a trial; its global path is off if its best epoch was in the
        first phase."""
        about, kind = self.about["graph"], find_task(self.plan.task)
        columns = graphs.column_kinds(about, about["features"], self.plan.columns.coordinates)
        sizes = (
            self.transform(trial).width,
            kind.out_channels(len(about["classes"])),
            about["nodes"],
            about.get("edge_features", 0),
        )
        model = build_model(trial.plan, *sizes, columns)
        file = self._weights(trial)
        tensors, result = read_tensors(file)
        weights = {name: value for name, value in tensors.items() if not name.startswith(KEPT)}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{file}: not the weights of this run ({reason})") from None
        if result["best_epoch"] <= result.get("local_epochs", 0):
            switch_global(model, False)
        if (kept := self.kept_keys(trial)) is not None:
            kept.set(model)
        model.eval()
        return model

    def kept_keys(self, trial: Trial) -> KeptKeys | None:
        """The training nodes that a trained model attends to, if it takes labels."""
        return KeptKeys.restored(self._kept(trial, "labels."))

    def own_labels(self, trial: Trial, data: Data) -> Labels:
        """The labels of the training nodes as inputs of a trained model, for the run's own nodes.

        Other nodes have no labels: the model attends to the keys that it has kept."""
        kept = self.kept_keys(trial)
        if kept is None or graphs.digest_rows(data) != self.about["graph"].get("rows"):
            return {}
        return kept.own_labels(int(data.num_nodes), self.plan.device)

    def kind(self, trial: Trial) -> TaskKind:
        """The task of a trial, fitted to its training nodes."""
        return find_task(self.plan.task).restored(self._kept(trial, "task."))

    def simple_models(self, trial: Trial) -> dict[str, LinearModel]:
        """The simple models that were scored beside a trial, by name."""
        kept = {name: self._kept(trial, f"{name}.") for name in (COMMONEST, LINEAR)}
        return {name: LinearModel(**tensors) for name, tensors in kept.items() if tensors}

    def transform(self, trial: Trial) -> FeatureTransform:
        """The transform of the features, fitted to the training nodes of a trial."""
        features = self.about["graph"]["features"]
        return FeatureTransform.restored(self._kept(trial, "features."), features)

    def _kept(self, trial: Trial, part: str) -> dict[str, Tensor]:
        return with_prefix(read_tensors(self._weights(trial))[0], KEPT + part)

    def result(self) -> dict[str, Any]:
        """The result of a finished run."""
        path = self.folder / "result.json"
        if not path.is_file():
            hint = f"`phgcn train ... --out {self.folder} --resume` does that"
            raise ValueError(f"{self.folder}: the run is not finished; {hint}")
        result: dict[str, Any] = read_json(path)
        return result

    def _weights(self, trial: Trial) -> Path:
        return weights_file(self.folder, trial)

    # Training

    def train(
        self, data: Data, on_epoch: OnEpoch = lambda progress: None, tensorboard: bool = False
    ) -> dict[str, Any]:
        """Trains unfinished trials from their checkpoints on, and writes the result.

        Args:
            data (torch_geometric.data.Data): The graph.
            on_epoch (callable): Called with an :class:`EpochProgress` after every epoch.
            tensorboard (bool): Also writes the curves for TensorBoard, below ``RUN/tensorboard``.
                (default: :obj:`False`)
        """
        with self.locked():
            tasks, schedule = prepare(self.plan, data), CheckpointSchedule()
            for trial in self.plan.trials():
                if not self.finished(trial):
                    logged = Logged(on_epoch, tensorboard)
                    task, processes = tasks[trial.split], OneProcess()
                    train_trial(self.folder, trial, task, schedule, processes, logged)
                self.remove_checkpoints(trial)
            return self.write_result()

    def remove_checkpoints(self, trial: Trial) -> None:
        for checkpoint in checkpoint_files(self.folder, trial.name):
            checkpoint.unlink()

    def write_result(self) -> dict[str, Any]:
        rows = [self.trial_result(trial) for trial in self.plan.trials()]
        result = run_result(self.plan, self.about, rows)
        write_json(self.folder / "result.json", result)
        return result


def _read_plan(about: dict[str, Any], device: str, source: str) -> Plan:
    """Makes the plan of a run from the content of ``run.json``, whose path is ``source``."""
    names = [entry.name for entry in fields(Plan)]
    parts = {name: about[name] for name in names if name not in ADDED or name in about}

    def read_settings(row: dict[str, Any]) -> Settings:
        return config.change(Settings(), row["settings"], row["model"], source)

    settings = read_settings(about)
    amp = settings.amp and device.startswith("cuda")
    parts |= {"device": device, "settings": replace(settings, amp=amp)}
    parts["columns"] = Columns(**parts.get("columns", {}))
    rows = parts.get("per_split", ())
    parts["per_split"] = tuple(Chosen(r["name"], r["model"], read_settings(r)) for r in rows)
    return Plan(**parts)


def check_new(folder: Path) -> None:
    """Refuses a folder that is not empty."""
    if folder.is_dir() and any(entry.name != ".lock" for entry in folder.iterdir()):
        another = "choose another folder with --out"
        if (folder / "run.json").is_file():
            raise ValueError(
                f"{folder} holds a run already: continue it with --resume, or {another}"
            )
        raise ValueError(f"{folder} holds files that are no run: {another}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a file; allowed: a folder, or a name that is not taken")

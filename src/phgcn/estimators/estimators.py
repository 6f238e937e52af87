r"""``NodeClassifier`` and ``NodeRegressor``: a run of one split behind the methods of scikit-learn."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..data import Columns, save_graph, splits, task_of
from ..data.columns import ID
from ..data.labels import labelled
from ..files import read_json, write_json
from ..registry import DEFAULT_MODEL
from ..report.export import Export
from ..train.candidates import start_settings
from ..train.leaks import describe_leaks
from ..train.plan import OnEpoch, Plan
from ..train.prediction import logits
from ..train.run import Run
from ..train.search import search
from ..train.settings import Settings, change, keys, resolve
from ..train.tasks import find_task
from .fitted import FittedRun
from .graphs import GraphLike, read_to_train, to_graph
from .targets import Target, class_names, encode_labels

if TYPE_CHECKING:
    from typing_extensions import Self

ABOUT = "estimator.json"
"""The file of a saved estimator that holds its parameters; the others are those of a run."""

GRAPH = "graph.npz"
"""The file of a saved estimator that holds the graph it was fitted to."""

AUTO = "auto"
"""The model that a search chooses."""

COLUMNS = ("id", "categorical", "edge_weight", "edge_features")
"""Parameters that say which columns of tables and frames are what, fields of :class:`phgcn.data.Columns`."""

OPTIONS = ("model", "seed", "device", "directed", *COLUMNS)
"""Parameters that are no settings of training."""


class NodeEstimator(FittedRun):
    """What both estimators share; see :class:`NodeClassifier`."""

    tasks: ClassVar[tuple[str, ...]]
    default_metric: ClassVar[str]

    def __init__(
        self,
        model: str = AUTO,
        *,
        seed: int = 0,
        device: str = "cpu",
        directed: bool = False,
        id: str = ID,
        categorical: Sequence[str] | None = None,
        edge_weight: str | None = None,
        edge_features: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        self.model, self.seed, self.device, self.directed = model, seed, device, directed
        self.id, self.categorical, self.edge_weight, self.edge_features = id, categorical, edge_weight, edge_features
        self.settings: dict[str, Any] = {}
        self.set_params(**settings)

    # Parameters, as scikit-learn has them

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns all parameters by name; ``deep`` has no effect."""
        return {name: getattr(self, name) for name in OPTIONS} | self.settings

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name, and returns the estimator."""
        known = {entry.name for entry in fields(Settings)}
        for name, value in params.items():
            if name in OPTIONS:
                setattr(self, name, value)
            elif name in known:
                self.settings[name] = value
            else:
                raise ValueError(f"parameter is {name!r}; allowed: {', '.join([*OPTIONS, *sorted(known)])}")
        return self

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.get_params().items() if value != DEFAULTS.get(name, ...)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    # Training

    def fit(self, graph: GraphLike, y: Any = None, on_epoch: OnEpoch = lambda progress: None) -> Self:
        """Trains on the labelled nodes of a graph, a fifth of each class kept apart to choose the epoch; returns the estimator.

        Args:
            graph: A name or path, a ``Data`` of PyG, or a tuple of features and edges, as arrays, tensors or frames of pandas.
            y (array, optional): The labels of the nodes, in their order, or a series of pandas by their ids. Nodes without a
                label (:obj:`None`, NaN, of integers -1) are part of the graph. (default: :obj:`None`, those of the graph)
            on_epoch (callable, optional): Called with a :class:`phgcn.train.EpochProgress` after every epoch. (default: does
                nothing)
        """
        columns = Columns(**{name: value for name in COLUMNS if (value := getattr(self, name)) is not None})
        data = to_graph(
            graph, lambda source: read_to_train(source, self.directed, columns, labels=y is None), self.directed, columns
        )
        classes = self._label(data, y)
        find_task(task_of(data.y)).check(data.y)
        plan = replace(self._plan(data), columns=columns)
        (split,) = splits(data.y, plan.protocol, plan.splits, plan.seed)
        for line in describe_leaks(data, split.train.nonzero().flatten()):
            warnings.warn(line.removeprefix("warning: "), stacklevel=2)
        seen = None
        if self.model == AUTO:
            plan, seen = search(plan, data, changes=self.settings)
        self._set_fitted(self._train(plan, data, on_epoch, seen), data, classes)
        return self

    def _label(self, data: Data, y: Any) -> NDArray[Any]:
        """Gives a graph the labels, if any are given; returns the classes in the type that the user has them in."""
        if y is None:
            task = task_of(data.y)
            if task not in self.tasks:
                raise ValueError(f"labels are those of {task}; allowed for {type(self).__name__}: {', '.join(self.tasks)}")
            numbers = np.arange(len(data.classes))
            # As `data.y` has them, so that predictions can be compared with it.
            return numbers if data.classes == class_names(numbers) else np.array(data.classes)
        several = len(getattr(y, "shape", ())) == 2
        task = self.tasks[-1] if several else self.tasks[0]
        data.y, classes = encode_labels(y, list(data.node_id), task)
        data.classes = [str(name) for name in y.columns] if hasattr(y, "columns") else class_names(classes)
        data.num_classes, data.task = len(data.classes), task
        return np.array(data.classes) if hasattr(y, "columns") else classes

    def _plan(self, data: Data) -> Plan:
        """Makes the plan of a run: settings that suit the graph, or the model's defaults, with those that were given."""
        task = task_of(data.y)
        metric = self.default_metric if self.default_metric in find_task(task).metrics else find_task(task).metrics[0]
        named = DEFAULT_MODEL if self.model == AUTO else self.model
        settings = resolve(named, start=start_settings(data, named, self.device)).settings
        known = [name for name in self.settings if self.model != AUTO or name in keys(named)]
        changes = {name: self.settings[name] for name in known}  # the search refuses others, or tries models that have them
        settings = change(settings, changes, named, type(self).__name__)
        return Plan(
            "graph", named, protocol="final", splits=1, seed=self.seed, metric=metric, directed=self.directed,
            device=self.device, settings=settings, task=task,
        )  # fmt: skip

    def _set_fitted(self, run: Run, data: Data, classes: NDArray[Any]) -> None:
        """Sets what scikit-learn marks by an underscore: what was found in the data."""
        self.run_, self.graph_ = run, data
        self.search_ = run.about.get("search")
        self.classes_ = classes
        self.n_features_in_ = int(data.x.size(1))
        self.validation_score_ = float(run.trial_result(self._trial)["val_metric"])

    # What a fitted estimator knows

    def predict(self, graph: GraphLike = None) -> NDArray[Any]:
        """Returns the prediction for every node, of the graph that it was fitted to or of another with the same features.

        Args:
            graph (optional): In any form that :meth:`fit` takes; labels are not looked at. (default: :obj:`None`, the same)
        """
        predicted = self._kind.predict(self._outputs(self._graph(graph))).numpy()
        return self._named(predicted)

    def _named(self, predicted: NDArray[Any]) -> NDArray[Any]:
        return predicted

    def score(self, graph: GraphLike = None, y: Any = None) -> float:
        """Returns the accuracy, of numbers the coefficient of determination, on nodes that were not trained on.

        Of the graph that it was fitted to, nodes that were trained on do not count.  Labels that were held back from
        :meth:`fit` give an honest score.  Without any, the nodes count that chose the epoch, which flatters the score.

        Args:
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph that it was fitted to)
            y (array, optional): The labels. (default: :obj:`None`, those of the graph)
        """
        data = self._graph(graph, labels=y is None)
        truth = data.y if y is None else self._as_trained(y, list(data.node_id))
        nodes = labelled(truth)
        if not bool(nodes.any()):
            raise ValueError("no node has a label; allowed: y, or a graph with labels")
        if graph is None:
            nodes = self._not_trained_on(nodes)
        return float(self._kind.metric(self.default_metric, self._outputs(data)[nodes], truth[nodes]))

    def _not_trained_on(self, nodes: Tensor) -> Tensor:
        """Returns those of some nodes (N,), bool, that :meth:`fit` had no label of; if none, those that chose the epoch."""
        plan, y = self.run_.plan, self.graph_.y
        new = nodes & ~labelled(y)
        if bool(new.any()):
            return new
        (split,) = splits(y, plan.protocol, plan.splits, plan.seed)
        if not bool((nodes & split.val).any()):
            raise ValueError("all nodes with a label were trained on; allowed: labels of other nodes")
        return nodes & split.val

    def _as_trained(self, y: Any, ids: list[str]) -> Tensor:
        """Converts labels to the numbers of the classes that were trained; others than these count as never predicted."""
        task = self.run_.plan.task
        encoded, classes = encode_labels(y, ids, task)
        if task != "classification":
            return encoded
        place = {name: number for number, name in enumerate(class_names(self.classes_))}
        numbers = torch.tensor([place.get(name, len(place)) for name in class_names(classes)] + [-1])
        return numbers[encoded]

    def embed(self, graph: GraphLike = None, layer: int = -1) -> NDArray[Any]:
        """Returns the positions that attention takes distances between, :math:`(N, H, D)`.

        Args:
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph that it was fitted to)
            layer (int, optional): Which of the layers with an embedding. (default: :obj:`-1`, the last)
        """
        arrays = list(Export(self._fitted, self._graph(graph)).embedding_arrays().values())
        if not -len(arrays) <= layer < len(arrays):
            raise ValueError(f"layer is {layer}; allowed: {-len(arrays)} to {len(arrays) - 1}")
        found: NDArray[Any] = arrays[layer]
        return found

    def attention(self, node: str | int, k: int = 10, graph: GraphLike = None) -> list[Target]:
        """Returns what a node attends to, by layer and head: its neighbours, and the ``k`` strongest of all nodes.

        Args:
            node (str or int): The id of the node; a number is its place among the nodes.
            k (int, optional): How many of all nodes. (default: :obj:`10`)
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph that it was fitted to)
        """
        data = self._graph(graph)
        if isinstance(node, int) and not 0 <= node < int(data.num_nodes):
            raise ValueError(f"node is {node}; allowed: 0 to {int(data.num_nodes) - 1}, or an id")
        name = data.node_id[node] if isinstance(node, int) else node
        table = Export(self._fitted, data, top=k, nodes=[name]).attention()
        columns = (np.asarray(table[key]).tolist() for key in ("path", "layer", "head", "target", "weight"))
        return [Target(*row) for row in zip(*columns, strict=True)]

    # Files

    def save(self, folder: str | Path) -> Path:
        """Writes the fitted estimator and its graph into a new folder: a run, which ``phgcn plot`` and others take too."""
        run, folder = self._fitted, Path(folder)
        if folder.exists():
            raise ValueError(f"{folder}: is there already; allowed: a name that is not taken")
        shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns(".lock"))
        save_graph(self.graph_, folder / GRAPH)
        about = read_json(folder / "run.json")
        write_json(folder / "run.json", {**about, "source": str((folder / GRAPH).resolve())})
        write_json(
            folder / ABOUT, {"kind": type(self).__name__, "params": self.get_params(), "classes": self.classes_.tolist()}
        )
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Reads an estimator that :meth:`save` wrote."""
        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise ValueError(f"{folder}: no estimator here ({ABOUT} is missing); `save` makes one")
        about = read_json(folder / ABOUT)
        if about["kind"] != cls.__name__:
            raise ValueError(f"{folder}: holds a {about['kind']}; allowed: {about['kind']}.load")
        estimator = cls(**about["params"])
        run = Run.open(folder)
        estimator._set_fitted(run, run.data(str(folder / GRAPH)), np.array(about["classes"]))
        return estimator

    # Parts of the above

    def _graph(self, graph: GraphLike, labels: bool = False) -> Data:
        """Returns the graph that it was fitted to if :obj:`None`, else another, read with its labels or without."""
        run = self._fitted
        if graph is None:
            return self.graph_
        return to_graph(graph, lambda source: run.read(source, labels), run.plan.directed, run.plan.columns)

    def _outputs(self, data: Data) -> Tensor:
        return logits(self._fitted, self._trial, data)


class NodeClassifier(NodeEstimator):
    r"""Classifies the nodes of a graph, in the manner of scikit-learn::

        classifier = phgcn.NodeClassifier(epochs=200).fit((x, edges), y)  # y: None or NaN where it is not known
        classifier.predict()                                             # of every node

    It is a run of one split (:class:`phgcn.train.Run`): the training, the settings and the files are the same.

    Args:
        model (str, optional): The name of a model, or ``"auto"``, which a search chooses as ``phgcn train`` does: ``search_``
            is what it saw. (default: :obj:`"auto"`)
        seed (int, optional): What all randomness follows from. (default: :obj:`0`)
        device (str, optional): Where it is computed. (default: :obj:`"cpu"`)
        directed (bool, optional): Whether edges keep their direction. (default: :obj:`False`)
        id, edge_weight (str, optional), categorical, edge_features (list of str, optional): Which columns of tables and frames
            are what, as in :class:`phgcn.data.Columns`.  Columns of text and of categories in frames are names, even where
            they hold digits. (default: as there)
        **settings (optional): Settings of model and training by name, such as ``heads=4`` or ``epochs=200``. (default: those
            of the candidates, or the model's)

    Attributes:
        classes_ (numpy.ndarray): The classes, in the type that they were given in.
        n_features_in_ (int): The number of features.
        validation_score_ (float): The accuracy on the nodes that were kept apart.
        graph_ (torch_geometric.data.Data): The graph.
        search_ (dict): What the search saw and says in one sentence; :obj:`None` where the model was named.
        run_ (phgcn.train.Run): The run, in a temporary folder until :meth:`save`.
    """

    tasks = ("classification", "multilabel")
    default_metric = "accuracy"
    _estimator_type = "classifier"

    def predict_proba(self, graph: GraphLike = None) -> NDArray[Any]:
        """Returns the probability of every class, :math:`(N, C)`, in the order of ``classes_``.

        Args:
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph that it was fitted to)
        """
        probabilities = self._kind.probabilities(self._outputs(self._graph(graph)))
        assert probabilities is not None
        found: NDArray[Any] = probabilities.numpy()
        return found

    def _named(self, predicted: NDArray[Any]) -> NDArray[Any]:
        """Returns classes for their numbers; of several labels per node, whether each holds."""
        if predicted.ndim == 2:
            return predicted
        named: NDArray[Any] = self.classes_[predicted]
        return named


class NodeRegressor(NodeEstimator):
    r"""Predicts a number for each node of a graph; parameters and methods are those of :class:`NodeClassifier`.

    Attributes:
        validation_score_ (float): The coefficient of determination on the nodes that were kept apart.
    """

    tasks = ("regression",)
    default_metric = "r2"
    _estimator_type = "regressor"


DEFAULTS = NodeClassifier().get_params()

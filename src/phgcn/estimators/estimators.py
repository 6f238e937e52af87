"""``NodeClassifier`` and ``NodeRegressor``: a run of one split behind the methods of
scikit-learn."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..data import Columns, labelled, save_graph, task_of
from ..files import read_json, write_json
from ..registry import DEFAULT_MODEL
from ..report.export import Export
from ..text import did_you_mean
from ..train.graph import digest_rows, node_names
from ..train.plan import OnEpoch
from ..train.run import Run
from ..train.search import search
from ..train.settings import Settings
from ..train.tasks import find_task
from .fitted import FittedRun, split_of
from .graphs import GraphLike, graph_to_train, index_of, to_graph
from .targets import Target, class_names, encode_labels

if TYPE_CHECKING:
    from typing_extensions import Self

# the file of a saved estimator that holds its parameters; the others are those of a run
ABOUT = "estimator.json"

GRAPH = "graph.npz"  # the file of a saved estimator that holds the graph it was fitted to
AUTO = "auto"  # the model that a search chooses

OPTIONS = ("model", "seed", "device", "directed")
COLUMNS = tuple(entry.name for entry in fields(Columns))
SETTINGS = tuple(entry.name for entry in fields(Settings))


class NodeEstimator(FittedRun):
    """The base of both estimators; see :class:`NodeClassifier`."""

    tasks: ClassVar[tuple[str, ...]]
    default_metric: ClassVar[str]
    _index: Any = None  # of the frame of nodes in ``fit``, not kept in files

    def __init__(
        self,
        model: str = AUTO,
        *,
        seed: int = 0,
        device: str = "cpu",
        directed: bool = False,
        **options: Any,
    ) -> None:
        self.model, self.seed, self.device, self.directed = model, seed, device, directed
        self.options: dict[str, Any] = {}
        self.set_params(**options)

    # Parameters, as scikit-learn has them

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name, of columns and settings those that were set; ``deep``
        has no effect."""
        return {name: getattr(self, name) for name in OPTIONS} | self.options

    def set_params(self, **params: Any) -> Self:
        """Sets parameters by name, and returns the estimator."""
        for name, value in params.items():
            if name in OPTIONS:
                setattr(self, name, value)
            elif name in (*COLUMNS, *SETTINGS):
                self.options[name] = value
            else:
                allowed = [*OPTIONS, *COLUMNS, *SETTINGS]
                problem = f"parameter is {name!r}{did_you_mean([name], allowed)}"
                raise ValueError(f"{problem}; allowed: {', '.join(allowed)}")
        return self

    def __repr__(self) -> str:
        parameters = self.get_params().items()
        changed = [f"{key}={value!r}" for key, value in parameters if value != DEFAULTS.get(key)]
        return f"{type(self).__name__}({', '.join(changed)})"

    # Training

    def fit(
        self, graph: GraphLike, y: Any = None, on_epoch: OnEpoch = lambda progress: None
    ) -> Self:
        """Trains on the labelled nodes of a graph, a fifth of each class kept apart to choose the
        epoch; returns the estimator.

        Args:
            graph: A name or path, a ``Data`` of PyG, or a tuple of features and edges, as arrays,
                tensors or frames of pandas.
            y (array, optional): The labels of the nodes, in their order, or a series of pandas by
                their ids, or by the index of the frame of nodes. Nodes without a label
                (:obj:`None`, NaN, of integers -1) are part of the graph. A column with the name of
                the series is no feature. (default: :obj:`None`, those of the graph)
            on_epoch (callable, optional): Called with a :class:`phgcn.train.EpochProgress` after
                every epoch. (default: does nothing)
        """
        given = {name: value for name, value in self.options.items() if value is not None}
        columns = Columns(**{name: given.pop(name) for name in COLUMNS if name in given})
        data, left_out = graph_to_train(graph, y, self.directed, columns)
        for name in left_out:
            warnings.warn(f"the column {name!r} is no feature: y has the labels", stacklevel=2)
        self._index = index_of(graph)
        classes = self._label(data, y)
        kind = find_task(task_of(data.y))
        kind.check(data.y)
        named = self.model != AUTO
        plan = self._make_plan(
            data,
            self.model if named else DEFAULT_MODEL,
            given if named else {},  # a search changes the settings of each candidate
            columns,
            seed=self.seed,
            metric=self.default_metric if self.default_metric in kind.metrics else kind.metrics[0],
            directed=self.directed,
        )
        plan, seen = (plan, None) if named else search(plan, data, changes=given)
        self._train(plan, data, on_epoch, seen)
        self._set_fitted(data, classes)
        return self

    def _label(self, data: Data, y: Any) -> NDArray[Any]:
        """Gives a graph the labels, if any; returns the classes in the user's type."""
        if y is None:
            task = task_of(data.y)
            if task not in self.tasks:
                allowed = f"for {type(self).__name__}: {', '.join(self.tasks)}"
                raise ValueError(f"labels are those of {task}; allowed {allowed}")
            numbers = np.arange(len(data.classes))
            # As `data.y` has them, so that predictions can be compared with it.
            return numbers if data.classes == class_names(numbers) else np.array(data.classes)
        several = len(getattr(y, "shape", ())) == 2
        data.task = self.tasks[-1] if several else self.tasks[0]
        data.y, classes = encode_labels(y, list(data.node_id), data.task, self._index)
        if hasattr(y, "columns"):
            classes = np.array([str(name) for name in y.columns])
        data.classes = class_names(classes)
        data.num_classes = len(data.classes)
        return classes

    def _set_fitted(self, data: Data, classes: NDArray[Any]) -> None:
        """Sets scikit-learn's attributes of fitted estimators, which end in an underscore."""
        self.graph_, self.classes_ = data, classes
        self.search_ = self.run_.about.get("search")
        self.n_features_in_ = int(data.x.size(1))

    # What a fitted estimator knows

    def predict(self, graph: GraphLike = None) -> NDArray[Any]:
        """Returns the prediction for every node, of the graph that it was fitted to or of another
        with the same features.

        Args:
            graph (optional): In any form that :meth:`fit` takes; labels are not looked at.
                (default: :obj:`None`, the same)
        """
        predicted = self._kind.predict(self._outputs(self._graph(graph))).numpy()
        return self._named(predicted)

    def _named(self, predicted: NDArray[Any]) -> NDArray[Any]:
        return predicted

    def score(self, graph: GraphLike = None, y: Any = None) -> float:
        """Returns the accuracy, of numbers the coefficient of determination, on nodes that were not
        trained on.

        Nodes of the training do not count, in their own or in a repeated graph. Labels held back
        from :meth:`fit` give an honest score. Without any, the score is over the nodes that chose
        the epoch, which flatters it.

        Args:
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph
                that it was fitted to)
            y (array, optional): The labels. (default: :obj:`None`, those of the graph)
        """
        data = self._graph(graph, labels=y is None)
        index = self._index if graph is None else index_of(graph)
        truth = data.y if y is None else self._as_trained(y, list(data.node_id), index)
        nodes = labelled(truth)
        if not bool(nodes.any()):
            raise ValueError("no node has a label; allowed: y, or a graph with labels")
        if self._is_fitted_graph(data):
            nodes = self._not_trained_on(nodes)
        outputs = self._outputs(data)[nodes]
        return float(self._kind.metric(self.default_metric, outputs, truth[nodes]))

    def _is_fitted_graph(self, data: Data) -> bool:
        """Whether the nodes are those of :meth:`fit`, by their ids and features."""
        own = self.graph_
        return node_names(data) == node_names(own) and digest_rows(data) == digest_rows(own)

    def _not_trained_on(self, nodes: Tensor) -> Tensor:
        """Returns the mask (N,) of nodes unlabelled in :meth:`fit`, else of those that chose the
        epoch."""
        new = nodes & ~labelled(self.graph_.y)
        if bool(new.any()):
            return new
        chose = nodes & split_of(self.run_.plan, self.graph_).val
        if not bool(chose.any()):
            allowed = "labels of other nodes"
            raise ValueError(f"all nodes with a label were trained on; allowed: {allowed}")
        return chose

    def _as_trained(self, y: Any, ids: list[str], index: Any) -> Tensor:
        """Converts labels to the numbers of the trained classes; others count as wrong."""
        task = self.run_.plan.task
        encoded, classes = encode_labels(y, ids, task, index)
        if task != "classification":
            return encoded
        place = {name: number for number, name in enumerate(class_names(self.classes_))}
        numbers = [place.get(name, len(place)) for name in class_names(classes)]
        return torch.tensor([*numbers, -1])[encoded]

    def embed(self, graph: GraphLike = None, layer: int = -1) -> NDArray[Any]:
        """Returns the positions that attention takes distances between, :math:`(N, H, D)`.

        Args:
            graph (optional): In any form that :meth:`fit` takes. (default: :obj:`None`, the graph
                that it was fitted to)
            layer (int, optional): Which of the layers with an embedding. (default: :obj:`-1`, the
                last)
        """
        arrays = list(Export(self._fitted, self._graph(graph)).embedding_arrays().values())
        if not -len(arrays) <= layer < len(arrays):
            raise ValueError(f"layer is {layer}; allowed: {-len(arrays)} to {len(arrays) - 1}")
        found: NDArray[Any] = arrays[layer]
        return found

    def attention(self, node: str | int, k: int = 10, graph: GraphLike = None) -> list[Target]:
        """Returns the targets of a node's attention by layer and head: its neighbours, and the
        ``k`` strongest of all nodes.

        Args:
            node (str or int): The id of the node; a number is its position among the nodes.
            k (int, optional): How many of all nodes. (default: :obj:`10`)
            graph (optional): As for :meth:`embed`. (default: :obj:`None`)
        """
        data = self._graph(graph)
        if isinstance(node, int) and not 0 <= node < int(data.num_nodes):
            raise ValueError(f"node is {node}; allowed: 0 to {int(data.num_nodes) - 1}, or an id")
        name = data.node_id[node] if isinstance(node, int) else node
        table = Export(self._fitted, data, top=k, nodes=[name]).attention()
        columns = (np.asarray(table[key]).tolist() for key in Target._fields)
        return [Target(*row) for row in zip(*columns, strict=True)]

    # Files

    def save(self, folder: str | Path) -> Path:
        """Writes the fitted estimator and its graph into a new folder: a run, which ``phgcn plot``
        and others take too."""
        run, folder = self._fitted, Path(folder)
        if folder.exists():
            raise ValueError(f"{folder}: is there already; allowed: a name that is not taken")
        shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns(".lock"))
        save_graph(self.graph_, folder / GRAPH)
        about = read_json(folder / "run.json")
        write_json(folder / "run.json", {**about, "source": str((folder / GRAPH).resolve())})
        own = {"kind": type(self).__name__, "params": self.get_params()}
        write_json(folder / ABOUT, {**own, "classes": self.classes_.tolist()})
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
        estimator._set_run(Run.open(folder))
        data = estimator.run_.data(str(folder / GRAPH))
        estimator._set_fitted(data, np.array(about["classes"]))
        return estimator

    # Parts of the above

    def _graph(self, graph: GraphLike, labels: bool = False) -> Data:
        """Reads a graph, or returns the fitted one for :obj:`None`."""
        run = self._fitted
        if graph is None:
            return self.graph_
        read = partial(run.read, labels=labels)
        return to_graph(graph, read, run.plan.directed, run.plan.columns)

    def _outputs(self, data: Data) -> Tensor:
        return self._on(data).logits()


class NodeClassifier(NodeEstimator):
    """Classifies the nodes of a graph, in the manner of scikit-learn::

        classifier = phgcn.NodeClassifier(epochs=200)
        classifier.fit((x, edges), y)                                    # y: None or NaN if unknown
        classifier.predict()                                             # of every node

    It is a run of one split (:class:`phgcn.train.Run`): the training, the settings and the files
    are the same.

    Args:
        model (str, optional): The name of a model, or ``"auto"``, which a search chooses as ``phgcn
            train`` does: ``search_`` is its account. (default: :obj:`"auto"`)
        seed (int, optional): The seed of all random numbers. (default: :obj:`0`)
        device (str, optional): Where it is computed. (default: :obj:`"cpu"`)
        directed (bool, optional): Whether edges keep their direction. (default: :obj:`False`)
        **options (optional): Settings of model and training by name, such as ``heads=4`` or
            ``epochs=200``, and which columns of tables and frames are what, by the names of
            :class:`phgcn.data.Columns`, such as ``id="customer"`` or ``coordinates=["x", "y"]``.
            Columns of text and of categories in frames are names, even where they hold digits, but
            money, percents and dates in text are numbers. (default: the settings of the candidates
            or the model, and the columns as there)

    Attributes:
        classes_ (numpy.ndarray): The classes, in the type that they were given in.
        n_features_in_ (int): The number of features.
        validation_score_ (float): The accuracy on the nodes that were kept apart.
        graph_ (torch_geometric.data.Data): The graph.
        search_ (dict): The account of the search, with its result in one sentence; :obj:`None` for
            a named model.
        run_ (phgcn.train.Run): The run, in a temporary folder until :meth:`save`.
    """

    tasks = ("classification", "multilabel")
    default_metric = "accuracy"
    _estimator_type = "classifier"

    def predict_proba(self, graph: GraphLike = None) -> NDArray[Any]:
        """Returns the probability of every class, :math:`(N, C)`, in the order of ``classes_``.

        Args:
            graph (optional): As for :meth:`predict`. (default: :obj:`None`)
        """
        probabilities = self._kind.probabilities(self._outputs(self._graph(graph)))
        assert probabilities is not None
        found: NDArray[Any] = probabilities.numpy()
        return found

    def _named(self, predicted: NDArray[Any]) -> NDArray[Any]:
        if predicted.ndim == 2:
            return predicted
        named: NDArray[Any] = self.classes_[predicted]
        return named


class NodeRegressor(NodeEstimator):
    """Predicts a number for each node of a graph; parameters and methods are those of
    :class:`NodeClassifier`.

    Attributes:
        validation_score_ (float): The coefficient of determination on the nodes that were kept
            apart.
    """

    tasks = ("regression",)
    default_metric = "r2"
    _estimator_type = "regressor"


DEFAULTS = NodeClassifier().get_params()

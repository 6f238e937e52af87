r"""``AttentionRegressor`` and ``AttentionClassifier``: tables without edges, by the rules of
scikit-learn."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..checks import check_choice
from ..data import Columns, load_graph
from ..data.check import check_graph
from ..data.load import to_data
from ..data.saved import from_mapping
from ..nn.table_network import PARTS
from ..registry import TABLE_MODEL
from ..train.labels import deciding_keys, layer_positions
from ..train.plan import Plan
from ..train.prediction import trial_inputs
from ..train.run import Run
from ..train.settings import change, resolve
from ..train.table_search import choose_parts
from .fitted import FittedRun

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"{error}; AttentionRegressor needs scikit-learn 1.6: pip install 'phgcn[tables]'") from None

if TYPE_CHECKING:
    from typing_extensions import Self

FEWEST_ROWS = 5
"""A fifth of the rows chooses the epoch, so that there must be one in a fifth."""


class AttentionEstimator(FittedRun, BaseEstimator):  # type: ignore[misc]
    """What both estimators share; see :class:`AttentionRegressor`."""

    _task: ClassVar[str]
    _metric: ClassVar[str]

    def __init__(
        self,
        parts: str = "auto",
        coordinates: Sequence[str] | Sequence[int] = (),
        epochs: int = 300,
        random_state: int = 0,
        device: str = "cpu",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts = parts
        self.coordinates = coordinates
        self.epochs = epochs
        self.random_state = random_state
        self.device = device
        self.settings = settings

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on a table; a fifth of the rows is kept apart to choose the epoch.

        Args:
            X (array or DataFrame): The rows; NaN for a missing number. Columns of texts of a frame
                are categories.
            y (array): Their labels.
        """
        check_choice("parts", self.parts, ("auto", *PARTS))
        data = self._table(X, y)
        plan = self._plan(data)
        if self.parts == "auto":
            plan, self.search_ = choose_parts(plan, data)
        self.run_ = self._train(plan, data)
        self.validation_score_ = float(self.run_.trial_result(self._trial)["val_metric"])
        return self

    def _plan(self, data: Data) -> Plan:
        settings = resolve(TABLE_MODEL).settings
        settings = replace(settings, warmup=int(0.3 * self.epochs), patience=max(1, self.epochs))
        values = {"epochs": self.epochs, **({} if self.parts == "auto" else {"parts": self.parts}), **(self.settings or {})}
        settings = change(settings, values, TABLE_MODEL, type(self).__name__)
        columns = Columns(coordinates=[str(name) for name in self.coordinates])
        return Plan(
            "table", TABLE_MODEL, protocol="final", splits=1, seed=self.random_state, metric=self._metric, device=self.device,
            settings=settings, task=self._task, columns=columns,
        )  # fmt: skip

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Returns labels as a graph has them."""
        return np.asarray(y, dtype=np.float32)

    def _table(self, X: Any, y: Any) -> Data:
        """Converts rows and labels to a graph without edges."""
        if _has_texts(X):
            validate_data(self, X, skip_check_array=True)
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            return self._with_labels(_from_frame(X, lambda path: load_graph(path, columns=Columns(label=None))), y)
        X, y = validate_data(
            self, X, y, dtype=np.float32, ensure_all_finite="allow-nan", ensure_min_samples=FEWEST_ROWS,
            y_numeric=self._task == "regression",
        )  # fmt: skip
        return self._with_labels(_from_array(X), y)

    def _with_labels(self, data: Data, y: NDArray[Any]) -> Data:
        """Gives a graph its labels; a classifier finds its classes here."""
        data.y, data.task = torch.from_numpy(self._encode(y)), self._task
        data.classes = [str(name) for name in getattr(self, "classes_", [])]
        data.num_classes = len(data.classes)
        return data

    def _new(self, X: Any) -> Data:
        """Converts rows to predict to a graph without edges."""
        if _has_texts(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            return _from_frame(X, lambda path: self._fitted.read(path, labels=False))
        return _from_array(validate_data(self, X, reset=False, dtype=np.float32, ensure_all_finite="allow-nan"))

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """Computes the outputs of rows, all of which count as new: they attend to all rows of the
        training."""
        check_is_fitted(self)
        x, *edges = trial_inputs(self._fitted, self._trial, self._new(X))
        # In float64, so that the prediction of a row hardly depends on the rows beside it.
        out: Tensor = self._fitted.model(self._trial).to(self.device).double()(x.double(), *edges)
        return out.cpu()

    def neighbors(self, X: Any, k: int = 5) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the rows of :meth:`fit` that decide the predictions, and their weights in the
        mean label, strongest first.

        Args:
            X (array or DataFrame): The rows to predict.
            k (int, optional): How many rows for each. (default: :obj:`5`)

        Shapes:
            - **output:** both :math:`(N, k)`; -1 and 0 beyond the last row of the training
        """
        check_is_fitted(self)
        inputs = trial_inputs(self._fitted, self._trial, self._new(X))
        kept = self._fitted.kept_keys(self._trial)
        if kept is None:
            raise ValueError("parts is 'network', which attends to no rows; allowed: parts='labels' or parts='both'")
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k is {k!r}; allowed: a positive integer")
        parts = layer_positions(self._fitted.model(self._trial).to(self.device), inputs, {})
        found = deciding_keys(parts, torch.full((len(inputs[0]),), -1), k)
        rows = torch.where(found.keys >= 0, kept.nodes[found.keys], -1)
        return rows.numpy(), found.weights.numpy()

    # Pickles hold the files of the run, not their folder.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        run = state.pop("run_", None)
        state.pop("_scratch", None)
        if run is not None:
            state["_files"] = {file.name: file.read_bytes() for file in sorted(run.folder.iterdir()) if file.suffix != ".lock"}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._scratch = tempfile.TemporaryDirectory(prefix="phgcn-")
            for name, content in files.items():
                (Path(self._scratch.name) / name).write_bytes(content)
            self.run_ = Run.open(self._scratch.name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class AttentionRegressor(RegressorMixin, AttentionEstimator):  # type: ignore[misc]
    r"""Predicts a number for each row of a table, by its columns and by the labels of the rows it
    attends to::

        regressor = phgcn.AttentionRegressor().fit(X, y)
        regressor.predict(X_new)
        rows, weights = regressor.neighbors(X_new, k=5)  # the rows that decided

    The network is :class:`phgcn.nn.TableNetwork`. Rows to predict attend to all rows of
    :meth:`fit`, a row that is among these to itself too, as in
    :class:`sklearn.neighbors.KNeighborsRegressor`.

    Args:
        parts (str, optional): ``"network"``, ``"labels"`` or ``"both"``; ``"auto"`` trains all
            three and keeps the best on the rows that are kept apart. (default: :obj:`"auto"`)
        coordinates (list, optional): Columns that are coordinates on a map, by name, of arrays by
            number. (default: none)
        epochs (int, optional): Epochs of the training. (default: :obj:`300`)
        random_state (int, optional): What all randomness follows from. (default: :obj:`0`)
        device (str, optional): Where it is computed. (default: :obj:`"cpu"`)
        settings (dict, optional): Other settings of the model ``table`` and its training by name.
            (default: none)

    Attributes:
        n_features_in_ (int): The number of columns.
        search_ (dict): With ``parts="auto"``, the validation metrics of the three, and whether
            attention helps.
        validation_score_ (float): The coefficient of determination, for a classifier the accuracy,
            on the rows kept apart.
    """

    _task = "regression"
    _metric = "r2"

    def predict(self, X: Any) -> NDArray[Any]:
        """Returns the prediction for every row."""
        outputs = self._outputs(X)
        return np.asarray(self._kind.predict(outputs).numpy(), dtype=np.float64)


class AttentionClassifier(ClassifierMixin, AttentionEstimator):  # type: ignore[misc]
    """Classifies the rows of a table; parameters and methods are those of
    :class:`AttentionRegressor`.

    Attributes:
        classes_ (numpy.ndarray): The classes.
    """

    _task = "classification"
    _metric = "accuracy"

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        return numbers.astype(np.int64)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Returns the probability of every class for every row, :math:`(N, C)`, in the order of
        ``classes_``."""
        outputs = self._outputs(X)  # refuses an estimator that is not fitted
        probabilities = self._kind.probabilities(outputs)
        assert probabilities is not None
        return np.asarray(probabilities.numpy())

    def predict(self, X: Any) -> NDArray[Any]:
        """Returns the class of every row."""
        shares = self.predict_proba(X)
        return np.asarray(self.classes_[shares.argmax(axis=1)])


def _has_texts(X: Any) -> bool:
    """Tells whether rows are a frame of pandas with a column that is not of numbers."""
    return hasattr(X, "to_csv") and hasattr(X, "dtypes") and any(kind.kind not in "biuf" for kind in X.dtypes)


def _from_array(X: NDArray[np.float32]) -> Data:
    parts = {"x": torch.tensor(X), "y": torch.zeros(len(X)), "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    graph = from_mapping(Path("table"), parts)
    graph.task, graph.may_miss = "regression", True
    return to_data(check_graph(graph), "table")


def _from_frame(X: Any, read: Any) -> Data:
    """Converts a frame as the table of a file, with the same categories, gaps and mistakes."""
    with tempfile.TemporaryDirectory(prefix="phgcn-") as folder:
        path = Path(folder) / "table.csv"
        X.to_csv(path, index=False)
        data: Data = read(str(path))
    return data

"""``AttentionRegressor`` and ``AttentionClassifier``: tables without edges, by the rules of
scikit-learn."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..checks import check_choice
from ..data import Columns, load_graph
from ..data.columns import NO_COLUMN
from ..files import read_tensors, write_tensors
from ..nn.table_network import PARTS
from ..registry import TABLE_MODEL
from ..train.graph import node_names
from ..train.labels import deciding_keys, keep_keys, label_inputs, layer_positions
from ..train.prediction import TrialModel
from ..train.run import Run
from ..train.search import choose_parts
from ..train.trial import KEPT, weights_file
from .fitted import FittedRun, Scratch
from .graphs import from_tensors, is_frame

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import (
        assert_all_finite,
        check_consistent_length,
        check_random_state,
        column_or_1d,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    get = "pip install 'phgcn[tables]'"
    raise ImportError(f"{error}; AttentionRegressor needs scikit-learn 1.6: {get}") from None

if TYPE_CHECKING:
    from typing_extensions import Self

# how scikit-learn reads arrays of rows
READ = {"dtype": np.float32, "ensure_all_finite": "allow-nan"}

FEWEST_ROWS = 5  # a fifth of the rows chooses the epoch, so that there must be one in a fifth


class AttentionEstimator(FittedRun, BaseEstimator):  # type: ignore[misc]
    """The base of both estimators; see :class:`AttentionRegressor`."""

    _task: ClassVar[str]
    _metric: ClassVar[str]

    def __init__(
        self,
        parts: str = "auto",
        coordinates: Sequence[Any] = (),
        epochs: int | None = None,
        random_state: Any = 0,
        device: str = "cpu",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts, self.coordinates, self.epochs = parts, coordinates, epochs
        self.random_state, self.device, self.settings = random_state, device, settings

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on a table; a fifth of the rows is kept apart to choose the epoch.

        Args:
            X (array or DataFrame): The rows; NaN for a missing number. In a frame, texts are
                categories, but money and percents are numbers, and dates are days since 1970.
            y (array): Their labels.
        """
        check_choice("parts", self.parts, ("auto", *PARTS))
        data = self._table(X, y)
        own = {"epochs": self.epochs, "parts": None if self.parts == "auto" else self.parts}
        changes = {name: value for name, value in own.items() if value is not None}
        changes |= self.settings or {}
        coordinates, seed = self.coordinates, self.random_state
        if not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(2**31)
        columns = Columns(id=NO_COLUMN, coordinates=coordinates)
        options = {"seed": int(seed), "metric": self._metric}
        plan = self._make_plan(data, TABLE_MODEL, changes, columns, **options)
        if self.parts == "auto":
            plan, self.search_ = choose_parts(plan, data)
        self._train(plan, data)
        self._keep_all_rows(data)
        return self

    def _keep_all_rows(self, data: Data) -> None:
        """Makes all rows keys, also those that chose the epoch."""
        trained, values = self._on(data), self._kind.label_values(data.y).to(self.device)
        labels = label_inputs(trained.model, values, torch.arange(len(values)).to(self.device))
        if not labels:
            return
        kept = keep_keys(trained.model, trained.inputs, labels, node_names(data))
        file = weights_file(self.run_.folder, self._trial)
        tensors, result = read_tensors(file)
        tensors |= {f"{KEPT}labels.{name}": part for name, part in kept.tensors().items()}
        write_tensors(file, tensors, result)

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(y, dtype=np.float32)

    def _table(self, X: Any, y: Any) -> Data:
        if is_frame(X):
            validate_data(self, X, skip_check_array=True)
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            assert_all_finite(y, input_name="y")
            if len(X) < FEWEST_ROWS:
                raise ValueError(f"X has {len(X)} rows; allowed: at least {FEWEST_ROWS}")
            data = load_graph((None, X), columns=Columns(id=NO_COLUMN, label=None))
        else:
            numeric, fewest = self._task == "regression", FEWEST_ROWS
            X, y = validate_data(self, X, y, **READ, ensure_min_samples=fewest, y_numeric=numeric)
            data = _from_array(X)
        data.y, data.task = torch.from_numpy(self._encode(y)), self._task
        data.classes = [str(name) for name in getattr(self, "classes_", [])]
        data.num_classes = len(data.classes)
        return data

    def _on_new(self, X: Any) -> TrialModel:
        """Returns the trained model and its arguments for rows to predict."""
        check_is_fitted(self)
        if is_frame(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            return self._on(self._fitted.read((None, X), labels=False))
        return self._on(_from_array(validate_data(self, X, reset=False, **READ)))

    def _outputs(self, X: Any) -> Tensor:
        """Computes the outputs of rows, which attend to all rows of the training."""
        trained = self._on_new(X)
        # In float64, so that the prediction of a row hardly depends on the rows beside it.
        x, *edges = trained.inputs
        exact = trained._replace(model=trained.model.double(), inputs=(x.double(), *edges))
        return exact._replace(values={}).logits()

    def neighbors(self, X: Any, k: int = 5) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the rows of :meth:`fit` that decide the predictions, and their weights in the
        mean label, strongest first.

        Args:
            X (array or DataFrame): The rows to predict.
            k (int, optional): How many rows for each. (default: :obj:`5`)

        Shapes:
            - **output:** both :math:`(N, k)`; -1 and 0 beyond the last row of the training
        """
        trained = self._on_new(X)
        kept = self._fitted.kept_keys(self._trial)
        if kept is None:
            allowed = "parts='labels' or parts='both'"
            raise ValueError(f"parts is 'network', which attends to no rows; allowed: {allowed}")
        if not isinstance(k, numbers.Integral) or k < 1:
            raise ValueError(f"k is {k!r}; allowed: a positive integer")
        parts = layer_positions(trained.model, trained.inputs, {})
        found = deciding_keys(parts, torch.full((len(trained.inputs[0]),), -1), int(k))
        rows = torch.where(found.keys >= 0, kept.nodes[found.keys], -1)
        return rows.numpy(), found.weights.numpy()

    # Pickles hold the files of the run, not their folder.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        run = state.pop("run_", None)
        state.pop("_scratch", None)
        if run is not None:
            files = [file for file in sorted(run.folder.iterdir()) if file.suffix != ".lock"]
            state["_files"] = {file.name: file.read_bytes() for file in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._scratch = Scratch()
            for name, content in files.items():
                (self._scratch.folder / name).write_bytes(content)
            self.run_ = Run.open(self._scratch.folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class AttentionRegressor(RegressorMixin, AttentionEstimator):  # type: ignore[misc]
    """Predicts a number for each row of a table, by its columns and by the labels of the rows it
    attends to::

        regressor = phgcn.AttentionRegressor().fit(X, y)
        regressor.predict(X_new)
        rows, weights = regressor.neighbors(X_new, k=5)  # the rows that decided

    The network is :class:`phgcn.nn.TableNetwork`. A fifth of the rows of :meth:`fit` chooses the
    epoch. Rows to predict attend to all rows of :meth:`fit`, a row that is among these to itself
    too, as in :class:`sklearn.neighbors.KNeighborsRegressor`.

    Args:
        parts (str, optional): ``"network"``, ``"labels"`` or ``"both"``; ``"auto"`` trains all
            three and keeps the best on the rows that are kept apart. (default: :obj:`"auto"`)
        coordinates (list, optional): Columns that are coordinates on a map, by name, of arrays by
            number. (default: none)
        epochs (int, optional): Epochs of the training. (default: :obj:`None`, as ``phgcn train``:
            300, and for more than 4,096 rows 600 steps of as many random rows)
        random_state (int, RandomState or None, optional): The seed of all random numbers. (default:
            :obj:`0`)
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


def _from_array(X: NDArray[np.float32]) -> Data:
    edges = torch.zeros(2, 0, dtype=torch.int64)
    return from_tensors({"x": torch.tensor(X), "edge_index": edges}, may_miss=True)

r"""Settings that follow from what a table is like, the same for every model, so that models are compared on equal terms."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from ..registry import DEFAULT_MODEL
from .graph import indicators
from .settings import keys
from .suited import Suited

FEW_FEATURES = 64
"""Columns up to which a table is narrow: dropout of half of them loses more than it gains."""


def fit_to_table(data: Data, model: str, suited: Suited | None = None) -> Suited | None:
    """Adds to settings what a table asks for: numbers scaled to mean 0 and deviation 1, and no dropout of few columns.

    Args:
        data (torch_geometric.data.Data): A graph; the settings of one that was not read from tables stay as they are.
        model (str): The name of a model.  ``global-gnn`` has a rule of its own for its dropout.
        suited (Suited, optional): The settings so far. (default: :obj:`None`, the defaults)
    """
    if "feature_columns" not in data or bool(indicators(data).all()):
        return suited
    values: dict[str, Any] = {"scaling": "standard"}
    if model != DEFAULT_MODEL and data.x.size(1) <= FEW_FEATURES and "dropout" in keys(model):
        values["dropout"] = 0.0
    if suited is None:
        return Suited(values, f"suited to a table of {data.x.size(1):,} columns")
    return Suited(suited.values | values, suited.reason)

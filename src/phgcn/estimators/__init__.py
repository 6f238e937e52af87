"""Estimators in the manner of scikit-learn: ``NodeClassifier(...).fit(graph, y).predict()``."""

from .estimators import NodeClassifier, NodeRegressor
from .targets import Target

__all__ = ["NodeClassifier", "NodeRegressor", "Target"]

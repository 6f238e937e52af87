r"""Training: settings, the loop, runs that can be continued, predictions, and the search for settings."""

from .graph import find
from .loop import Task, Training, TrainingError
from .prediction import evaluate, predict
from .run import EpochProgress, Plan, Run
from .settings import Settings, resolve
from .tuning import tune

__all__ = [
    "EpochProgress",
    "Plan",
    "Run",
    "Settings",
    "Task",
    "Training",
    "TrainingError",
    "evaluate",
    "find",
    "predict",
    "resolve",
    "tune",
]

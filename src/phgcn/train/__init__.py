"""Training: settings, the loop, runs that can be continued, predictions, and the search for
settings."""

from .graph import find
from .loop import Task, Training, TrainingError
from .plan import EpochProgress, Plan
from .prediction import evaluate, evaluate_other, predict
from .run import Run
from .search import search
from .settings import Resolved, Settings, resolve
from .tasks import TASKS, TaskKind, find_task
from .tuning import TrialReport, tune

__all__ = [
    "TASKS",
    "EpochProgress",
    "Plan",
    "Resolved",
    "Run",
    "Settings",
    "Task",
    "TaskKind",
    "Training",
    "TrainingError",
    "TrialReport",
    "evaluate",
    "evaluate_other",
    "find",
    "find_task",
    "predict",
    "resolve",
    "search",
    "tune",
]

"""Finds the kernels to compile before the first epoch of a training."""

from __future__ import annotations

from ..calls import choose_method
from ..runtime.warm import Compilation, find_missing
from . import settings as config
from .plan import Plan

# a model with one of these settings reads neighbours through kernels of its own
NEIGHBOURS = ("local", "decay_local")


def missing_kernels(plan: Plan, nodes: int) -> Compilation:
    """Finds the uncompiled CPU kernels of a training on a graph with ``nodes`` nodes."""
    return find_missing(_rooms(plan, nodes))


def _rooms(plan: Plan, nodes: int) -> list[str]:
    """Lists the packages of the kernels on a CPU; other devices compile at the first call."""
    settings = config.used(plan.settings, plan.model)
    if plan.device != "cpu":
        return []
    rooms = ["structural.numba"] if any(key in settings for key in NEIGHBOURS) else []
    if "method" in settings and settings.get("global_layers", 1):
        method = choose_method(settings["method"], nodes * nodes, settings["embedding_dim"], "cpu")
        if method == "exact" or settings["tolerance"]:
            rooms.append("exact.numba")
        if method != "exact" or settings["tolerance"]:
            rooms.append("lattice.numba")
    return ["runtime", *rooms] if rooms else []

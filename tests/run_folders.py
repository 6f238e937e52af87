r"""Reads the folder of a run, to compare two of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import torch

from phgcn.files import read_tensors
from phgcn.train import Plan, Run, Settings

QUICK = {"hidden_channels": 4, "heads": 2, "epochs": 2}


def new_run(folder: Path, data: Any, model: str, settings: dict[str, Any], **plan: Any) -> Run:
    """Makes a run of a small graph and of few epochs, which is not trained yet."""
    changed = Settings(**{**QUICK, **settings})
    return Run.create(folder, Plan("small", model=model, settings=changed, **plan), data)


TIMES = ("seconds", "seconds_per_epoch")


def losses(folder: Path) -> torch.Tensor:
    """Returns training and validation losses of each epoch of the first split, (epochs, 2)."""
    with open(folder / "split-00.csv") as file:
        return torch.tensor(
            [[float(row["train_loss"]), float(row["val_loss"])] for row in csv.DictReader(file)]
        )


def outcome(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns result, weights and curves of a finished run without its times: all that must be the
    same to the bit.
    """
    result = json.loads((folder / "result.json").read_text())
    # of each call its own
    assert {"commit", "dirty", "machine", "seed", "command"} <= set(result.pop("provenance"))
    if result.get("search"):  # seconds of the search, and of each candidate
        for timed in (result["search"], *result["search"]["candidates"]):
            timed.pop("seconds")
    for row in (result, *result["splits"]):
        for key in TIMES:
            del row[key]
    files = sorted(folder.glob("split-*.safetensors"))
    weights = {
        file.name: {name: value.tolist() for name, value in read_tensors(file)[0].items()}
        for file in files
    }
    curves = {
        file.name: [line.rsplit(",", 1)[0] for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.csv"))
    }
    return result, weights, curves

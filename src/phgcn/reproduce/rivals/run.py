r"""Measures all rivals on all clouds, what is not measured yet, and writes the report.

A process makes the calls; one that takes longer than :attr:`Effort.limit` is ended.  What is known to take longer, by cheaper
settings of that rival or, on a CPU, smaller clouds of the kind, is not tried; small clouds do not keep a GPU busy, and tell
nothing of large ones.  On each cloud every setting is examined once (error, memory), then all are timed in turn, round after
round, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...devices import check_device, device_name
from ...files import write_text
from ...provenance import provenance
from . import report as reports
from .adapters import Rival, choose
from .clouds import GRAPHS, HOSTILE, SPREADS, Place, train_embedding
from .measure import Kind
from .worker import START_SECONDS, Request, Worker

Report = Callable[[str, float], None]
"""Takes what is measured, and which share of all clouds is done."""

SEED = 0
PACKAGES = ("pykeops", "scikit-learn", "pyNFFT3", "pydensecrf2")


@dataclass(frozen=True)
class Effort:
    """What is measured.

    Args:
        sizes (tuple): Numbers of points, ascending.
        dims (tuple): Dimensions of generated clouds.
        clouds (tuple): Names of clouds: generated ones in all sizes and dimensions, hostile ones in :attr:`hostile_dim` and the
            least size, and graphs, whose networks are trained first.
        rounds (int): How often each call is timed, after it was examined.
        limit (float): Seconds that a single call may take.
        repeat_below (float): Seconds of calls that are worth repeating; longer ones are timed when they are examined.
        patience (float): Seconds after which no other round is begun on a cloud.
        epochs (int): Those of the networks.
        hostile_dim (int): Dimension of hostile clouds. (default: :obj:`4`)
    """

    sizes: tuple[int, ...]
    dims: tuple[int, ...]
    clouds: tuple[str, ...]
    rounds: int
    limit: float
    repeat_below: float
    patience: float
    epochs: int
    hostile_dim: int = 4

    def key(self) -> dict[str, Any]:
        """Returns what a measurement on one cloud depends on."""
        return {name: getattr(self, name) for name in ("rounds", "limit", "repeat_below", "patience")}


CLOUDS = (*SPREADS, *HOSTILE, *GRAPHS)
DIMS = (4, 2, 8, 3, 6)


def full(device: str) -> Effort:
    """Returns the full effort: 20,000 and 200,000 points on the CPU, up to ten million on a GPU."""
    if torch.device(device).type == "cuda":
        return Effort(
            (20_000, 1_000_000, 10_000_000), DIMS, CLOUDS, rounds=3, limit=2.0, repeat_below=1.0, patience=4.0, epochs=20
        )
    return Effort((20_000, 200_000), DIMS, CLOUDS, rounds=3, limit=6.0, repeat_below=1.0, patience=20.0, epochs=20)


def quick(device: str) -> Effort:
    clouds = (*SPREADS, HOSTILE[0], GRAPHS[0])
    return replace(full(device), sizes=(2000,), dims=(4,), clouds=clouds, rounds=1, limit=2.0, repeat_below=0.2, epochs=3)


def change(effort: Effort, sizes: Sequence[str] | None, dims: Sequence[str] | None, clouds: Sequence[str] | None) -> Effort:
    """Replaces sizes, dimensions and clouds of an effort by those of the command line."""
    for name, given in (("sizes", sizes), ("dims", dims)):
        if given and not all(number.isdecimal() and int(number) > 0 for number in given):
            raise ValueError(f"{name} is {','.join(given)!r}; allowed: positive whole numbers")
    for cloud in clouds or ():
        if cloud not in CLOUDS:
            raise ValueError(f"clouds is {cloud!r}; allowed: {', '.join(CLOUDS)}")
    changes: dict[str, Any] = {"clouds": tuple(clouds)} if clouds else {}
    changes |= {"sizes": tuple(sorted(map(int, sizes)))} if sizes else {}
    changes |= {"dims": tuple(map(int, dims))} if dims else {}
    return replace(effort, **changes)


def run(
    effort: Effort, folder: Path, report: Report, *, device: str = "cpu", note: str = "", seconds: float = float("inf")
) -> dict[str, Any]:
    """Measures what is not measured yet, then writes ``rivals.json``, ``rivals.md`` and the figures ``rivals`` and
    ``rivals-all`` as PNG and SVG, called ``rivals-gpu`` for a GPU.

    Args:
        effort (Effort): What is measured.
        folder (Path): Where results go; what is measured on a cloud is a line of ``rivals.jsonl`` there.
        report (callable): Called before every measurement.
        device (str, optional): Where. (default: :obj:`"cpu"`)
        note (str, optional): What a reader should know of the machine. (default: none)
        seconds (float, optional): After so many seconds no cloud is begun. (default: no limit)

    Returns:
        What the JSON holds.
    """
    check_device(device)
    begin, journal = time.perf_counter(), Journal(folder / f"{_name(device)}.jsonl")
    journal.check({**effort.key(), "device": device_name(device)})
    worker = Worker(folder, device)
    try:
        places = list(_places(effort, folder, report))
        for number, place in enumerate(places):
            if place not in journal.done and time.perf_counter() - begin < seconds:
                share = partial(_report_at, report, number / len(places))
                rows = Measurement(place, effort, worker, device, journal, share).measure()
                journal.add(place, rows, {**effort.key(), "device": device_name(device)}, device)
    finally:
        worker.end()
    left = [place.name for place in places if place not in journal.done]
    return {**write_report(effort, folder, device, note), "left": left, "seconds": time.perf_counter() - begin}


def write_report(effort: Effort, folder: Path, device: str, note: str = "") -> dict[str, Any]:
    """Writes the JSON, tables and figures of what the folder holds, measured here or elsewhere; arguments as in :func:`run`.

    Where and when it was measured is what the last cloud says, and ``origins`` for each.
    """
    journal = Journal(folder / f"{_name(device)}.jsonl")
    origin = journal.lines[-1]["provenance"] if journal.lines else provenance(SEED, device, PACKAGES)
    content = {"provenance": origin, "note": note, "effort": asdict(effort), **journal.content()}
    files = reports.write(folder, _name(device), content)
    return {**content, "left": [], "seconds": 0.0, "files": [str(file) for file in files]}


def _name(device: str) -> str:
    return "rivals-gpu" if torch.device(device).type == "cuda" else "rivals"


def _report_at(report: Report, share: float, text: str) -> None:
    report(text, share)


def _places(effort: Effort, folder: Path, report: Report) -> Iterator[Place]:
    """Yields every cloud, the small ones first; trains networks before that."""
    trained = []
    for graph in GRAPHS:
        if graph in effort.clouds:
            report(f"training on {graph}", 0.0)
            trained.append(train_embedding(graph, folder, effort.epochs))
    for number, count in enumerate(effort.sizes):
        yield from (Place(cloud, dim, count) for dim in effort.dims for cloud in effort.clouds if cloud in SPREADS)
        if number == 0:
            yield from (Place(cloud, effort.hostile_dim, count) for cloud in effort.clouds if cloud in HOSTILE)
            yield from trained


class Journal:
    """What has been measured, a line of JSON for each cloud, in a file that is written whole.

    Args:
        path (Path): The file; what it holds is not measured again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def check(self, key: dict[str, Any]) -> None:
        """Refuses to go on with what was measured in another way."""
        for line in self.lines:
            if line["key"] != key:
                raise ValueError(f"{self.path} was made with other settings ({line['key']}); allowed: {key}, or another folder")

    @property
    def done(self) -> set[Place]:
        return {Place(*line["place"]) for line in self.lines}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of all clouds, with the median of the times, of an even number the lower one."""
        rows = [dict(row) for line in self.lines for row in line["rows"]]
        for row in rows:
            for kind in ("forward", "step"):
                if times := row.get(kind, {}).get("times"):
                    row[kind] = {**row[kind], "seconds": statistics.median_low(times)}
        return rows

    def add(self, place: Place, rows: list[dict[str, Any]], key: dict[str, Any], device: str) -> None:
        origin = provenance(SEED, device, PACKAGES)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        where = [place.cloud, place.dim, place.count]
        self.lines.append({"place": where, "key": key, "load": load, "provenance": origin, "rows": rows})
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def content(self) -> dict[str, Any]:
        """Returns the rows of all clouds, the reasons of rivals that never ran, and where each cloud was measured."""
        failed = {row["rival"]: row["failed"] for row in self.rows if "failed" in row}
        ran = {row["rival"] for row in self.rows if "forward" in row}
        origins = [
            {
                "place": line["place"],
                "load": line["load"],
                **{name: line["provenance"][name] for name in ("commit", "dirty", "date")},
            }
            for line in self.lines
        ]
        return {
            "missing": {name: why for name, why in failed.items() if name not in ran},
            "origins": origins,
            "rows": self.rows,
        }


class Measurement:
    """The measurement of all rivals on one cloud.

    Args:
        place (Place): The cloud.
        effort (Effort): How.
        worker (Worker): Makes the calls.
        device (str): Where.
        journal (Journal): What was measured before, to know what is too slow.
        report (callable): Called before every call.
    """

    def __init__(
        self, place: Place, effort: Effort, worker: Worker, device: str, journal: Journal, report: Callable[[str], None]
    ) -> None:
        self.place, self.effort, self.worker, self.report = place, effort, worker, report
        self.on_cpu, self.before = torch.device(device).type == "cpu", journal.rows
        self.rivals = choose(torch.device(device).type, place.dim)

    def measure(self) -> list[dict[str, Any]]:
        """Examines every setting of every rival, then times all in turn; returns a row for each setting."""
        self.report(f"{self.place.name}: exact outputs of some points")
        posed = self.worker.ask(Request(self.place, "pose"), START_SECONDS)
        if posed:
            raise ValueError(f"{self.place.name} could not be prepared: {posed}; allowed: a cloud that fits into memory")
        rows = [row for rival in self.rivals for row in self._examine(rival)]
        begin = time.perf_counter()
        for number in range(self.effort.rounds):
            if number == 0 or time.perf_counter() - begin < self.effort.patience:
                self._time(rows)
        return rows

    def _time(self, rows: list[dict[str, Any]]) -> None:
        """Times once whatever is worth repeating."""
        for row in rows:
            for kind in ("forward", "step"):
                measured = row.get(kind)
                if measured and measured["seconds"] < self.effort.repeat_below and "timed_on" not in row:
                    reply = self._ask(row["rival"], row["number"], kind, "time", self.effort.limit)
                    measured["times"].append(reply.get("seconds", self.effort.limit))

    def _ask(self, rival: str, number: int, kind: Kind, what: Any, limit: float) -> dict[str, Any]:
        self.report(f"{self.place.name}: {rival}, {what} {kind}")
        return self.worker.ask(Request(self.place, what, rival, number, kind), limit)

    def _examine(self, rival: Rival) -> Iterator[dict[str, Any]]:
        """Yields a row for each setting; what would take too long is not tried."""
        rows: list[dict[str, Any]] = []
        for number, setting in enumerate(rival.settings):
            row: dict[str, Any] = {**asdict(self.place), "rival": rival.name, "number": number, "setting": setting}
            if known := self._known_elsewhere(rival, number):
                row = {**known, **row, "timed_on": known["cloud"]}
            else:
                self._fill(row, rival, [*self.before, *rows])
            rows.append(row)
            yield row

    def _fill(self, row: dict[str, Any], rival: Rival, before: list[dict[str, Any]]) -> None:
        """Measures a setting: adds what came out, or that it was stopped, or why it failed."""
        kinds: tuple[Kind, ...] = ("forward", "step") if rival.gradients else ("forward",)
        for kind in kinds:
            reply: dict[str, Any] = {"stopped": self.effort.limit}
            known = (*(other for other in before if self.on_cpu or other["count"] == row["count"]), row)
            if not any(too_slow(row, kind, rival, other, self.effort.limit) for other in known):
                reply = self._ask(rival.name, row["number"], kind, "examine", self.effort.limit)
            if "failed" in reply:
                row["failed"] = reply["failed"]
                return
            if "stopped" in reply:
                row[f"stopped_{kind}"] = reply["stopped"]
            else:
                row[kind] = {"seconds": reply["seconds"], "bytes": reply["bytes"], "times": []}
                row |= {name: reply[name] for name in ("errors", "cosine") if name in reply}

    def _known_elsewhere(self, rival: Rival, number: int) -> dict[str, Any] | None:
        """Returns the row of a long call that takes as long on every cloud, where one of this size was measured."""
        if not rival.any_cloud:
            return None
        for row in self.before:
            same = (row["rival"], row["number"], row["dim"], row["count"]) == (
                rival.name,
                number,
                self.place.dim,
                self.place.count,
            )
            if same and row.get("forward", {}).get("seconds", 0.0) > self.effort.repeat_below:
                return row
        return None


def too_slow(row: dict[str, Any], kind: Kind, rival: Rival, other: dict[str, Any], limit: float) -> bool:
    """Tells whether a call would take too long, by another row: time grows with the setting, at least linearly with the number
    of points, and gradients at least double it, or multiply it as they do in the other row.

    Args:
        row (dict): What is to be measured.
        kind (str): How.
        rival (Rival): Its rival.
        other (dict): What was measured before, or the row itself with its forward.
        limit (float): Seconds that a call may take.
    """
    same_cloud = other["cloud"] == row["cloud"] or rival.any_cloud
    if other["rival"] != rival.name or not same_cloud or other["dim"] != row["dim"] or other["count"] > row["count"]:
        return False
    steps = row["number"] - other["number"]
    if steps < 0:
        return False
    if f"stopped_{kind}" in other or "stopped_forward" in other:
        return True
    if rival.sampled:  # its seconds are those of all queries, not of the call
        return False
    factor = rival.growth**steps * row["count"] / other["count"]
    expected = [factor * other[kind]["seconds"]] if kind in other else []
    if kind == "step" and "forward" in other:
        expected.append(2 * factor * other["forward"]["seconds"])
        if "step" in other and "forward" in row:
            expected.append(other["step"]["seconds"] / other["forward"]["seconds"] * row["forward"]["seconds"])
    return max(expected, default=0.0) > limit

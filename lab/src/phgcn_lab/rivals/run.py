r"""Measures all rivals on all clouds, an :class:`~phgcn_lab.experiment.Experiment` whose cells are
clouds.

::

    OUT/<name>/<cloud>.json                   what was measured on a cloud
    OUT/<name>.json, .md, .png, .svg          the results (:mod:`phgcn_lab.rivals.report`)

A process makes the calls.  One that takes longer than :attr:`Effort.limit` is ended, and costlier
settings of that rival are not tried.  On each cloud every setting is examined once (error, memory),
then all are timed in turn, round after round, so that what else the machine does hits all alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from phgcn.devices import check_device, device_name
from phgcn.files import read_json, write_json
from phgcn.provenance import provenance

from ..experiment import NEVER, check_names, journal, whole_numbers
from ..results import Row
from ..workers import Report
from . import report as reports
from .adapters import Rival, choose
from .clouds import CHANNELS, GRAPHS, HOSTILE, SPREADS, Place, known_places
from .measure import Kind
from .worker import START_SECONDS, Request, Worker

SEED = 0
PACKAGES = ("pykeops", "scikit-learn", "pyNFFT3", "pydensecrf2")
CLOUDS = (*SPREADS, *HOSTILE, *GRAPHS)
DIMS = (4, 2, 8, 3, 6)
HOSTILE_DIM = 4


@dataclass(frozen=True)
class Effort:
    sizes: tuple[int, ...] = (20_000, 200_000)  # numbers of points, ascending
    dims: tuple[int, ...] = DIMS  # of generated clouds
    # Generated ones in all sizes and dimensions, hostile ones in four dimensions and the least
    # size, and graphs, whose networks are trained first.
    clouds: tuple[str, ...] = CLOUDS
    rounds: int = 3  # how often each call is timed, after it was examined
    limit: float = 6.0  # seconds that a single call may take
    repeat_below: float = 1.0  # seconds of calls that are worth repeating
    epochs: int = 20  # of the networks
    channels: int = CHANNELS  # half of those of the values of generated clouds

    def places(self) -> list[Place]:
        made = []
        for number, count in enumerate(self.sizes):
            spreads = [cloud for cloud in self.clouds if cloud in SPREADS]
            about = count, self.channels
            made += [Place(cloud, dim, *about) for dim in self.dims for cloud in spreads]
            if number == 0:
                hostile = [cloud for cloud in self.clouds if cloud in HOSTILE]
                made += [Place(cloud, HOSTILE_DIM, count) for cloud in hostile]
                made += known_places([cloud for cloud in self.clouds if cloud in GRAPHS])
        return made


def full(device: str) -> Effort:
    if torch.device(device).type == "cuda":
        return Effort((20_000, 1_000_000, 10_000_000), limit=2.0)
    return Effort()


def quick(device: str) -> Effort:
    clouds = (*SPREADS, HOSTILE[0], GRAPHS[0])
    small = replace(full(device), sizes=(2000,), dims=(4,), clouds=clouds)
    return replace(small, rounds=1, limit=2.0, repeat_below=0.2, epochs=3)


def change(effort: Effort, **texts: Sequence[str] | None) -> Effort:
    given: dict[str, Any] = {name: tuple(values) for name, values in texts.items() if values}
    if clouds := given.get("clouds"):
        check_names(clouds=(clouds, CLOUDS))
    for name in {"sizes", "dims"} & given.keys():
        given[name] = tuple(sorted(whole_numbers(name, given[name])))
    return replace(effort, **given)


@dataclass(frozen=True)
class Rivals:
    out: Path
    effort: Effort
    device: str = "cpu"
    note: str = ""
    deadline: float = NEVER  # after it no cloud is begun
    kind: ClassVar[str] = "rivals"

    @property
    def name(self) -> str:
        return f"{self.kind}-gpu" if torch.device(self.device).type == "cuda" else self.kind

    def rivals(self, place: Place) -> list[Rival]:
        return choose(torch.device(self.device).type, place.dim)

    def cells(self) -> list[Place]:
        check_device(self.device)
        return self.effort.places()

    def file(self, place: Place) -> Path:
        return self.out / self.name / f"{place.cloud}-{place.dim}-{place.count}.json"

    def asked(self) -> dict[str, Any]:
        keys = ("rounds", "limit", "repeat_below", "epochs", "channels")
        about = {key: getattr(self.effort, key) for key in keys}
        return {**about, "device": device_name(self.device)}

    def run(self, place: Place, report: Report) -> None:
        kept = journal(self.file(place), {"asked": self.asked()}, "rows", refuse=True)
        if kept["rows"] or time.time() >= self.deadline:
            return
        worker = Worker(self.out, self.device, self.effort.epochs)
        try:
            rows = Measurement(place, self.effort, worker, self.rivals(place), report).measure()
        finally:
            worker.end()
        origin = provenance(SEED, self.device, PACKAGES)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        about = {"place": asdict(place), "asked": self.asked(), "load": load, "provenance": origin}
        write_json(self.file(place), {**about, "rows": rows})

    def report(self) -> dict[str, Any]:
        content = self.joined()
        return {**content, "files": reports.write(self.out, self.name, content)}

    def joined(self) -> dict[str, Any]:
        """Joins the clouds that are there; where and when is what the last of them says."""
        files_of = {place: self.file(place) for place in self.effort.places()}
        found = [read_json(path) for path in files_of.values() if path.is_file()]
        rows = [row for cloud in found for row in cloud["rows"]]
        ran = {row["rival"] for row in rows if "forward" in row}
        failed = {row["rival"]: row["failed"] for row in rows if "failed" in row}
        origins = []
        for cloud in found:
            about = {key: cloud["provenance"][key] for key in ("commit", "dirty", "date")}
            place = [cloud["place"][key] for key in ("cloud", "dim", "count")]
            origins.append({"place": place, "load": cloud["load"], **about})
        last = found[-1]["provenance"] if found else provenance(SEED, self.device, PACKAGES)
        content = {"provenance": last, "note": self.note, "effort": asdict(self.effort)}
        content["missing"] = {name: why for name, why in failed.items() if name not in ran}
        left = [place.name for place, path in files_of.items() if not path.is_file()]
        return {**content, "origins": origins, "rows": rows, "left": left}


class Measurement:
    def __init__(
        self, place: Place, effort: Effort, worker: Worker, rivals: Sequence[Rival], report: Report
    ) -> None:
        self.place, self.effort, self.worker, self.report = place, effort, worker, report
        self.rivals = rivals

    def measure(self) -> list[Row]:
        """Examines every setting of every rival, then times all in turn."""
        self.report(f"{self.place.name}: exact outputs of some points", 0.0)
        if refused := self.worker.ask(Request(self.place, "pose"), START_SECONDS):
            problem = f"{self.place.name} could not be prepared: {refused}"
            raise ValueError(f"{problem}; allowed: a cloud that fits into memory")
        rows: list[Row] = []
        for rival in self.rivals:
            self._examine(rival, rows)
        for _ in range(self.effort.rounds):
            self._time(rows)
        for row in rows:
            for kind in ("forward", "step"):
                if times := row.get(kind, {}).get("times"):
                    row[kind]["seconds"] = statistics.median(times)
        return rows

    def _ask(self, row: Row, kind: Kind, what: Any) -> dict[str, Any]:
        self.report(f"{self.place.name}: {row['rival']}, {what} {kind}", 0.0)
        request = Request(self.place, what, row["rival"], row["number"], kind)
        return self.worker.ask(request, self.effort.limit)

    def _examine(self, rival: Rival, rows: list[Row]) -> None:
        before: Row = {}
        for number, setting in enumerate(rival.settings):
            row: Row = {"rival": rival.name, "number": number, "setting": setting}
            rows.append({**asdict(self.place), **row})
            self._fill(rows[-1], rival, before)
            before = rows[-1]

    def _fill(self, row: Row, rival: Rival, before: Row) -> None:
        for kind in ("forward", "step") if rival.gradients else ("forward",):
            reply: dict[str, Any] = {"stopped": self.effort.limit}
            if expected_seconds(rival, kind, row, before) <= self.effort.limit:
                reply = self._ask(row, kind, "examine")
            if "failed" in reply:
                row["failed"] = reply["failed"]
                return
            if "stopped" in reply:
                row[f"stopped_{kind}"] = reply["stopped"]
            else:
                row[kind] = {"seconds": reply["seconds"], "bytes": reply["bytes"], "times": []}
                row |= {name: reply[name] for name in ("errors", "cosine") if name in reply}

    def _time(self, rows: list[Row]) -> None:
        for row in rows:
            for kind in ("forward", "step"):
                measured = row.get(kind)
                if measured and measured["seconds"] < self.effort.repeat_below:
                    reply = self._ask(row, kind, "time")
                    measured["times"].append(reply.get("seconds", self.effort.limit))


def expected_seconds(rival: Rival, kind: str, row: Row, before: Row) -> float:
    """The least time of a call, by the cheaper setting ``before`` and, of a step, by its forward.

    A setting after one that was stopped takes too long.
    """
    if f"stopped_{kind}" in before or "stopped_forward" in (row if kind == "step" else before):
        return float("inf")
    if rival.sampled:  # its seconds are those of all queries, not of the call
        return 0.0
    expected = rival.growth * before[kind]["seconds"] if kind in before else 0.0
    return max(expected, 2 * row["forward"]["seconds"] if kind == "step" else 0.0)

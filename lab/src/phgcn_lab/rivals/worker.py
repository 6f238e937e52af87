r"""A process that makes calls of rivals, and is ended when one takes too long."""

from __future__ import annotations

import os
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from .adapters import named
from .clouds import Place
from .measure import Kind, Problem, call, examine, pose, warm_up

START_SECONDS = 1200.0
"""Longest start of a process and preparation of a cloud, the training of its network included."""
WARM_SECONDS = 180.0
"""Longest first call of a setting: pykeops compiles a kernel for each dimension."""


class Request(NamedTuple):
    """A call: on a place, of a rival in one of its settings; ``what`` is ``"pose"`` (prepare the
    cloud), ``"examine"`` (with error and memory) or ``"time"``; a worker puts ``"warm"``, a call
    that nobody times, before the first of these."""

    place: Place
    what: Literal["pose", "warm", "examine", "time"]
    rival: str = ""
    setting: int = 0
    kind: Kind = "forward"


Reply = dict[str, Any]
"""What was measured; ``failed`` with the reason, or ``stopped`` with the seconds after which the
process was ended.
"""


class Worker:
    """Makes calls in a process of its own, which is started again after it was ended."""

    def __init__(self, folder: Path, device: str, epochs: int) -> None:
        self.folder, self.device, self.epochs = folder, device, epochs
        self.process: Any = None
        self.pipe: Connection | None = None
        self.warm: set[tuple[Place, str, int]] = set()

    def ask(self, request: Request, limit: float) -> Reply:
        """Returns the answer, or that the process was ended after ``limit`` seconds.

        Preparing the cloud and a first call of the setting are not on the request's time.
        """
        if self.process is None:
            self._start()
            if request.what != "pose":
                self._exchange(Request(request.place, "pose"), START_SECONDS)
        return self._warm_up(request) or self._exchange(request, limit)

    def _warm_up(self, request: Request) -> Reply:
        """Calls a setting that this process has not called here; returns why it failed."""
        key = request.place, request.rival, request.setting
        if request.what == "pose" or key in self.warm:
            return {}
        reply = self._exchange(request._replace(what="warm"), WARM_SECONDS)
        if "stopped" in reply:
            text = f"its first call, which compiles, took more than {reply['stopped']:g} s"
            return {"failed": text}
        if not reply:
            self.warm.add(key)
        return reply

    def end(self) -> None:
        if self.process is not None and self.pipe is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = self.pipe = None
        self.warm.clear()

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        given = (other, self.folder, self.device, self.epochs)
        self.process = context.Process(target=_serve, args=given, daemon=True)
        self.process.start()
        other.close()

    def _exchange(self, request: Request, limit: float) -> Reply:
        if self.pipe is None:
            return {"failed": "its process died while the cloud was prepared"}
        try:
            self.pipe.send(request)
            if self.pipe.poll(limit):
                reply: Reply = self.pipe.recv()
                return reply
        except (EOFError, OSError):  # the system ends a process that takes too much memory
            self.end()
            return {"failed": "its process died"}
        self.end()
        return {"stopped": limit}


def _serve(pipe: Connection, folder: Path, device: str, epochs: int) -> None:
    os.dup2(2, 1)  # pykeops prints what it compiles; stdout is for results
    problem = lru_cache(maxsize=1)(lambda place: pose(place, folder, device, epochs))
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            reply = _answer(request, problem(request.place))
        # a package or a compiler that is missing, or whatever it trips over: part of the results
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            if device != "cpu":
                torch.cuda.empty_cache()
        pipe.send(reply)


def _answer(request: Request, problem: Problem) -> Reply:
    if request.what == "pose":
        return {}
    rival = named(request.rival)
    setting = rival.settings[request.setting]
    if request.what == "warm":
        warm_up(rival, setting, problem)
        return {}
    if request.what == "time":
        return {"seconds": call(rival, setting, problem, request.kind)[0]}
    return examine(rival, setting, problem, request.kind)

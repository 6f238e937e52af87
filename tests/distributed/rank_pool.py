"""Four processes that run what tests ask for: started once, since each has to import torch."""

import importlib
import os
import socket
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing

SIZE = 4
TIMEOUT = 120.0


def _serve(rank: int, port: int, pipe: Connection) -> None:
    """Runs functions, ``module:name``, with the group of the first so many ranks."""
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=SIZE, timeout=timedelta(seconds=TIMEOUT))
    groups = {size: dist.new_group(list(range(size))) for size in range(1, SIZE + 1)}
    while True:
        name, size, arguments = pipe.recv()
        module, _, function = name.partition(":")
        try:
            pipe.send(
                (
                    True,
                    getattr(importlib.import_module(module), function)(groups[size], **arguments),
                )
            )
        except BaseException as error:
            pipe.send((False, (type(error).__name__, str(error), traceback.format_exc())))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RankPool:
    """The processes; :meth:`run` calls a function on the first so many of them and returns what
    each returned.
    """

    def __init__(self) -> None:
        port, context = free_port(), torch.multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(SIZE):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, port, there), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def try_all(self, function: str, size: int, **arguments: object) -> list[tuple[bool, object]]:
        """Returns for each rank whether the function returned, and what; or the error's type, text
        and traceback.
        """
        for pipe in self.pipes[:size]:
            pipe.send((function, size, arguments))
        answers = []
        for pipe in self.pipes[:size]:
            if not pipe.poll(TIMEOUT):
                answers += [other.recv() for other in self.pipes[:size] if other.poll()]
                errors = [answer[2] for ok, answer in answers if not ok]
                raise AssertionError(f"{function}: a rank hangs; errors of others: {errors}")
            answers.append(pipe.recv())
        return answers

    def run(self, function: str, size: int, **arguments: object) -> list:
        answers = self.try_all(function, size, **arguments)
        for ok, answer in answers:
            assert ok, answer[2]
        return [answer for _, answer in answers]

    def close(self) -> None:
        for process in self.processes:
            process.kill()  # to leave the group in order would take seconds

r"""Runs the work for many clouds in lockstep, so that what they exchange goes into few large collectives.

The work for a cloud is a generator.  Where it needs the other ranks it yields a request, :class:`Sum`, :class:`Gather`,
:class:`Fill` or :class:`Exchange`, or a list of requests, and is sent the answer, or a list of answers.  :func:`run_together`
advances all generators to their next requests, and answers all of a kind by one collective.  On every rank the same generators
must yield the same kinds of requests in the same order.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from .collectives import Ranks

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")

SMALL = 2**16
"""Bytes of an array below which it is packed with others to be completed; larger ones are completed where they lie."""


class Sum(NamedTuple):
    """Asks for the sum over ranks of a contiguous array, which has the same shape on all of them and may be overwritten."""

    array: Array


class Gather(NamedTuple):
    """Asks for the rows of all ranks, a list of arrays; ``counts`` are their numbers of rows, where they are known."""

    array: Array
    counts: Sequence[int] | None = None


class Fill(NamedTuple):
    """Asks for an array, of which each rank has some rows, to be completed: ``bounds[r]`` to ``bounds[r + 1]`` rank r."""

    array: Array
    bounds: Sequence[int]

    def part(self, rank: int) -> torch.Tensor:
        """Returns the rows of a rank."""
        return torch.from_numpy(self.array[self.bounds[rank] : self.bounds[rank + 1]])

    def gather(self, rank: int) -> Gather:
        """Asks for the rows of all ranks, apart from the array."""
        return Gather(self.part(rank).numpy(), np.diff(self.bounds).tolist())

    def put(self, parts: Sequence[Array]) -> Array:
        """Puts the rows of all ranks into the array, and returns it."""
        np.concatenate(parts, out=self.array)
        return self.array


class Exchange(NamedTuple):
    """Asks for what each rank has for this one, a list of arrays; ``parts`` are what this one has for each."""

    parts: Sequence[Array]


Request = Sum | Gather | Fill | Exchange
Steps = Generator[Request | list[Request], Any, Result]

Place = tuple[int, int]
"""The number of a generator, and that of one of the requests that it yielded at once."""


def run_together(works: Sequence[Steps[Result]], ranks: Ranks) -> list[Result]:
    """Runs generators to their ends, side by side, and returns what they return."""
    results: list[Any] = [None] * len(works)
    waiting: dict[int, Request | list[Request]] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(works)))
    while answers:
        for number in list(answers):
            try:
                # An answer may be a large table, which lives no longer than the generator needs it.
                waiting[number] = works[number].send(answers.pop(number))
            except StopIteration as end:
                results[number] = end.value
        answers, waiting = _answer(waiting, ranks), {}
    return results


def _answer(asked: dict[int, Request | list[Request]], ranks: Ranks) -> dict[int, Any]:
    """Answers requests, those of a kind together."""
    listed = {number: some if isinstance(some, list) else [some] for number, some in asked.items()}
    requests = {(number, place): one for number, some in listed.items() for place, one in enumerate(some)}
    sums = {place: one for place, one in requests.items() if isinstance(one, Sum)}
    gathers = {place: one for place, one in requests.items() if isinstance(one, Gather)}
    fills = {place: one for place, one in requests.items() if isinstance(one, Fill)}
    exchanges = {place: one for place, one in requests.items() if isinstance(one, Exchange)}
    small = {place: one for place, one in fills.items() if one.array.nbytes < SMALL}
    gathers |= {place: one.gather(ranks.rank) for place, one in small.items()}
    sizes = _share_sizes({**gathers, **exchanges}, ranks)
    answers: dict[Place, Any] = {**_sum_packed(sums, ranks), **_gather_packed(gathers, sizes, ranks)}
    answers |= {place: one.put(answers[place]) for place, one in small.items()}
    answers |= _fill_in_place({place: one for place, one in fills.items() if place not in small}, ranks)
    answers |= _exchange_packed(exchanges, sizes, ranks)
    of_lists = {number: [answers[number, place] for place in range(len(some))] for number, some in listed.items()}
    return {number: some if isinstance(asked[number], list) else some[0] for number, some in of_lists.items()}


def _share_sizes(requests: dict[Place, Gather | Exchange], ranks: Ranks) -> dict[Place, Array]:
    """Tells all ranks how much each has for every request, in one collective: rows of a :class:`Gather`, (P, 1), and bytes of
    an :class:`Exchange` for each rank, (P, P)."""
    sizes: dict[Place, Array] = {}
    unknown: dict[Place, list[int]] = {}
    for place, request in requests.items():
        if isinstance(request, Exchange):
            unknown[place] = [part.nbytes for part in request.parts]
        elif request.counts is None:
            unknown[place] = [len(request.array)]
        else:
            sizes[place] = np.array(request.counts, np.int64)[:, None]
    if unknown:
        everything = ranks.gather_equal(torch.tensor([size for some in unknown.values() for size in some])).numpy()
        columns = np.cumsum([len(some) for some in unknown.values()])[:-1]
        sizes |= dict(zip(unknown, np.split(everything, columns, axis=1), strict=True))
    return sizes


def _sum_packed(requests: dict[Place, Sum], ranks: Ranks) -> dict[Place, Array]:
    """Sums all arrays, those of a type in one collective."""
    answers: dict[Place, Array] = {}
    for dtype in sorted({request.array.dtype for request in requests.values()}, key=str):
        numbers = [number for number, request in requests.items() if request.array.dtype == dtype]
        arrays = [requests[number].array for number in numbers]
        flat = arrays[0].ravel() if len(arrays) == 1 else np.concatenate([array.ravel() for array in arrays])
        total, begin = ranks.sum_in_place(torch.from_numpy(flat)).numpy(), 0
        for number, array in zip(numbers, arrays, strict=True):
            answers[number] = total[begin : begin + array.size].reshape(array.shape)
            begin += array.size
    return answers


def _gather_packed(requests: dict[Place, Gather], sizes: dict[Place, Array], ranks: Ranks) -> dict[Place, list[Array]]:
    """Gathers all arrays as bytes in one collective."""
    if not requests:
        return {}
    arrays = [np.ascontiguousarray(request.array) for request in requests.values()]
    row_bytes = [array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)) for array in arrays]
    counted = np.concatenate([sizes[place] for place in requests], axis=1)  # (ranks, requests)
    flat = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
    parts = [part.numpy() for part in ranks.gather(torch.from_numpy(flat), (counted @ row_bytes).tolist())]
    answers: dict[Place, list[Array]] = {place: [] for place in requests}
    for part, counts in zip(parts, counted.tolist(), strict=True):
        begin = 0
        for place, array, count, width in zip(requests, arrays, counts, row_bytes, strict=True):
            end = begin + count * width
            rows = part[begin:end].copy() if begin % array.itemsize else part[begin:end]
            answers[place].append(rows.view(array.dtype).reshape(count, *array.shape[1:]))
            begin = end
    return answers


def _fill_in_place(requests: dict[Place, Fill], ranks: Ranks) -> dict[Place, Array]:
    """Completes large arrays where they lie: a packed copy would take as much memory."""
    if not requests:
        return {}
    ranks.fill([[one.part(rank) for one in requests.values()] for rank in range(ranks.size)])
    return {place: request.array for place, request in requests.items()}


def _exchange_packed(requests: dict[Place, Exchange], sizes: dict[Place, Array], ranks: Ranks) -> dict[Place, list[Array]]:
    """Exchanges all arrays as bytes in one collective."""
    if not requests:
        return {}
    parts = [[np.ascontiguousarray(part) for part in request.parts] for request in requests.values()]
    leaving = np.stack([sizes[place][ranks.rank] for place in requests], axis=1)  # (ranks, requests)
    arriving = np.stack([sizes[place][:, ranks.rank] for place in requests], axis=1)
    flat = [row[rank].reshape(-1).view(np.uint8) for rank in range(ranks.size) for row in parts]
    packed = torch.from_numpy(np.concatenate(flat))
    arrived = ranks.exchange(packed, leaving.sum(axis=1).tolist(), arriving.sum(axis=1).tolist()).numpy()
    answers: dict[Place, list[Array]] = {place: [] for place in requests}
    begin = 0
    for row in arriving.tolist():
        for place, own, size in zip(requests, parts, row, strict=True):
            answers[place].append(arrived[begin : begin + size].copy().view(own[0].dtype))
            begin += size
    return answers

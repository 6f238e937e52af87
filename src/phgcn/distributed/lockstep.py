r"""Runs the work for many clouds in lockstep, so that what they exchange goes into few large collectives.

The work for a cloud is a generator.  Where it needs the other ranks it yields a request, :class:`Sum`, :class:`Gather`,
:class:`Fill` or :class:`Exchange`, and is sent the answer.  :func:`run_together` advances all generators to their next request,
and answers all requests of a kind by one collective.  On every rank the same generators must yield the same kinds of requests
in the same order.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from .collectives import Ranks

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")


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


class Exchange(NamedTuple):
    """Asks for what each rank has for this one, a list of arrays; ``parts`` are what this one has for each."""

    parts: Sequence[Array]


Request = Sum | Gather | Fill | Exchange
Steps = Generator[Request, Any, Result]


def run_together(works: Sequence[Steps[Result]], ranks: Ranks) -> list[Result]:
    """Runs generators to their ends, side by side, and returns what they return."""
    results: list[Any] = [None] * len(works)
    waiting: dict[int, Request] = {}
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


def _answer(asked: dict[int, Request], ranks: Ranks) -> dict[int, Any]:
    """Answers requests, those of a kind together."""
    sums = {number: request for number, request in asked.items() if isinstance(request, Sum)}
    gathers = {number: request for number, request in asked.items() if isinstance(request, Gather)}
    fills = {number: request for number, request in asked.items() if isinstance(request, Fill)}
    exchanges = {number: request for number, request in asked.items() if isinstance(request, Exchange)}
    answers: dict[int, Any] = {**_sum_packed(sums, ranks), **_gather_packed(gathers, ranks), **_fill_packed(fills, ranks)}
    answers |= _exchange_packed(exchanges, ranks)
    return {number: answers[number] for number in asked}


def _sum_packed(requests: dict[int, Sum], ranks: Ranks) -> dict[int, Array]:
    """Sums all arrays, those of a type in one collective."""
    answers: dict[int, Array] = {}
    for dtype in sorted({request.array.dtype for request in requests.values()}, key=str):
        numbers = [number for number, request in requests.items() if request.array.dtype == dtype]
        arrays = [requests[number].array for number in numbers]
        flat = arrays[0].ravel() if len(arrays) == 1 else np.concatenate([array.ravel() for array in arrays])
        total, begin = ranks.sum_in_place(torch.from_numpy(flat)).numpy(), 0
        for number, array in zip(numbers, arrays, strict=True):
            answers[number] = total[begin : begin + array.size].reshape(array.shape)
            begin += array.size
    return answers


def _gather_packed(requests: dict[int, Gather], ranks: Ranks) -> dict[int, list[Array]]:
    """Gathers all arrays as bytes in one collective, after one of their sizes where these are not known."""
    if not requests:
        return {}
    arrays = [np.ascontiguousarray(request.array) for request in requests.values()]
    row_bytes = [array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)) for array in arrays]
    given = [request.counts for request in requests.values()]
    if any(counts is None for counts in given):
        counted = ranks.gather_equal(torch.tensor([len(array) for array in arrays])).tolist()
    else:
        counted = [[counts[rank] for counts in given if counts is not None] for rank in range(ranks.size)]
    flat = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
    bytes_of = [[count * size for count, size in zip(counts, row_bytes, strict=True)] for counts in counted]
    parts = [part.numpy() for part in ranks.gather(torch.from_numpy(flat), [sum(sizes) for sizes in bytes_of])]
    answers: dict[int, list[Array]] = {number: [] for number in requests}
    for part, counts, sizes in zip(parts, counted, bytes_of, strict=True):
        begin = 0
        for number, array, count, size in zip(requests, arrays, counts, sizes, strict=True):
            rows = part[begin : begin + size].copy() if begin % array.itemsize else part[begin : begin + size]
            answers[number].append(rows.view(array.dtype).reshape(count, *array.shape[1:]))
            begin += size
    return answers


def _fill_packed(requests: dict[int, Fill], ranks: Ranks) -> dict[int, Array]:
    """Completes all arrays in one collective: a single one in its place, as it may be large."""
    if len(requests) == 1:
        ((number, (array, bounds)),) = requests.items()
        ranks.fill([torch.from_numpy(array[begin:end]) for begin, end in pairwise(bounds)])
        return {number: array}
    mine = {number: Gather(array[slice(*bounds[ranks.rank : ranks.rank + 2])], np.diff(bounds).tolist())
            for number, (array, bounds) in requests.items()}  # fmt: skip
    for number, parts in _gather_packed(mine, ranks).items():
        array, bounds = requests[number]
        for rank, part in enumerate(parts):
            if rank != ranks.rank:
                array[bounds[rank] : bounds[rank + 1]] = part
    return {number: request.array for number, request in requests.items()}


def _exchange_packed(requests: dict[int, Exchange], ranks: Ranks) -> dict[int, list[Array]]:
    """Exchanges all arrays as bytes in one collective, after one of their sizes."""
    if not requests:
        return {}
    parts = [[np.ascontiguousarray(part) for part in request.parts] for request in requests.values()]
    sizes = torch.tensor([[part.nbytes for part in row] for row in parts])  # (requests, ranks)
    arriving = ranks.gather_equal(sizes)[:, :, ranks.rank]  # (ranks, requests)
    flat = [row[rank].reshape(-1).view(np.uint8) for rank in range(ranks.size) for row in parts]
    packed = torch.from_numpy(np.concatenate(flat))
    arrived = ranks.exchange(packed, sizes.sum(dim=0).tolist(), arriving.sum(dim=1).tolist()).numpy()
    answers: dict[int, list[Array]] = {number: [] for number in requests}
    begin = 0
    for row in arriving.tolist():
        for number, own, size in zip(requests, parts, row, strict=True):
            answers[number].append(arrived[begin : begin + size].copy().view(own[0].dtype))
            begin += size
    return answers

"""Collectives give what they say, and the gradient of the sum of all ranks' losses."""

import torch
from collective_cases import COUNTS, rows_of, wanted_rows, weights_of


def test_sum_over_ranks(pool):
    answers = pool.run("collective_cases:sums", 3)
    whole = sum(weights_of(50 + rank, (3,)) for rank in range(3))
    grad = sum(weights_of(rank, (3,)) for rank in range(3))
    for out, of_input in answers:
        torch.testing.assert_close(out, whole)
        torch.testing.assert_close(of_input, grad)
        assert torch.equal(out, answers[0][0])  # the same bits on all ranks


def test_gathered_rows(pool):
    answers = pool.run("collective_cases:gathers", 4)
    whole = torch.cat([rows_of(rank).detach() for rank in range(4)])
    grads = sum(weights_of(rank, tuple(whole.shape)) for rank in range(4)).split(COUNTS)
    shared = weights_of(0, tuple(whole.shape)).split(COUNTS)
    for rank, (out, of_rows, of_shared) in enumerate(answers):
        assert torch.equal(out, whole)
        torch.testing.assert_close(of_rows, grads[rank])
        assert torch.equal(of_shared, shared[rank])  # the loss counts once


def test_exchanged_rows(pool):
    answers = pool.run("collective_cases:exchanges", 4)
    grads = [torch.zeros_like(rows_of(rank)).detach() for rank in range(4)]
    for rank, (out, _) in enumerate(answers):
        arrived = [(source, row) for source in range(4) for row in wanted_rows(source, rank)]
        weights = weights_of(rank, tuple(out.shape))
        for place, (source, row) in enumerate(arrived):
            assert torch.equal(out[place], rows_of(source)[row])
            grads[source][row] += weights[place]
    for rank, (_, of_rows) in enumerate(answers):
        torch.testing.assert_close(of_rows, grads[rank])


def test_gradients_of_parameters_are_added_up(pool):
    for used, rarely, never_is_none in pool.run("collective_cases:parameter_sums", 3):
        assert used.tolist() == [6.0, 6.0] and rarely.tolist() == [1.0, 1.0] and never_is_none

"""Self-loops: replaced where sizes may depend on the data, redirected to a spare node where they
may not."""

import pytest
import torch
from clouds import normal
from graphs import random_graph

from phgcn.functional import structural_attention
from phgcn.nn.edges import replace_self_loops


def test_each_node_gets_one_self_loop():
    edge_index = torch.tensor([[0, 1, 1, 2, 2], [1, 1, 1, 0, 2]])
    edges, rows = replace_self_loops(edge_index, torch.arange(5).unsqueeze(1), 3)
    assert edges.tolist() == [[0, 2, 0, 1, 2], [1, 0, 0, 1, 2]] and rows.tolist() == [[0], [3]]


def test_redirected_self_loops_are_those_of_a_spare_node():
    edge_index = torch.tensor([[0, 1, 1, 2, 2], [1, 1, 1, 0, 2]])
    redirected = torch.ops.phgcn.redirect_self_loops(edge_index, 3)
    assert redirected.tolist() == [[0, 3, 3, 2, 3, 0, 1, 2], [1, 3, 3, 0, 3, 0, 1, 2]]


def test_attention_is_the_same_with_replaced_and_redirected_self_loops():
    _, edge_index = random_graph(20, 80)
    assert bool((edge_index[0] == edge_index[1]).any())
    positions, values = normal(21, 2, 3), normal(21, 2, 4, seed=1)
    want = structural_attention(
        positions[:20], values[:20], replace_self_loops(edge_index, None, 20)[0]
    )
    got = structural_attention(
        positions, values, torch.ops.phgcn.redirect_self_loops(edge_index, 20)
    )
    assert torch.allclose(got[:20], want, rtol=1e-12)


def test_the_op_passes_torch_s_own_check():
    torch.library.opcheck(
        torch.ops.phgcn.redirect_self_loops.default, (torch.randint(0, 7, (2, 30)), 7)
    )


def test_the_spare_node_s_number_is_refused_among_the_edges():
    with pytest.raises(ValueError, match=r"edge_index\[0, 1\] is 3; allowed: 0 to 2"):
        torch.ops.phgcn.redirect_self_loops(torch.tensor([[0, 3], [1, 0]]), 3)

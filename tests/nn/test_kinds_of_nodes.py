"""Sources and targets of different kinds: pairs in EDAConv, PHGCNConv and GlobalAttention."""

import pytest
import torch
from clouds import normal, relative
from graphs import LAYERS, make
from torch_geometric import EdgeIndex

from phgcn.nn import GlobalAttention, PHGCNConv


def pair(sources=9, targets=6, edges=30, widths=(5, 3)):
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(0, count, (edges,), generator=generator) for count in (sources, targets)]
    return (normal(sources, widths[0], seed=1), normal(targets, widths[1], seed=2)), torch.stack(
        ends
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_targets_attend_to_their_sources_as_in_one_graph(layer):
    (source, target), edge_index = pair(widths=(5, 5))
    conv = make(layer, 5, 4, heads=2, add_self_loops=False, residual=True)
    got = conv((source, target), edge_index)
    together = torch.cat([target, source])
    joined = torch.stack([edge_index[0] + 6, edge_index[1]])
    want = (
        conv(together, joined)[:6]
        if layer == "EDAConv"
        else conv(together, joined, batch=(torch.arange(15) >= 6).long())[:6]
    )
    assert relative(got, want) < 1e-12
    for a, b in zip(
        *(torch.autograd.grad(out.square().sum(), conv.parameters()) for out in (got, want)),
        strict=True,
    ):
        assert relative(a, b) < 1e-10
    out, (edges, alpha) = conv((source, target), edge_index, return_attention_weights=True)
    assert torch.equal(out, got) and torch.equal(edges, edge_index) and alpha.shape == (30, 2)


@pytest.mark.parametrize("layer", LAYERS)
def test_each_kind_may_have_a_map_of_its_own(layer):
    x, edge_index = pair()
    conv, lazy = (
        make(layer, sizes, 4, heads=2, add_self_loops=False) for sizes in ((5, 3), (-1, -1))
    )
    assert str(conv) == f"{layer}((5, 3), 4, heads=2)"
    lazy(x, edge_index)
    lazy.load_state_dict(conv.state_dict())
    got = conv(x, edge_index)
    assert torch.equal(lazy(x, edge_index), got) and got.shape == (6, conv.paths * 8)
    shifted = make(layer, (5, 3), 4, heads=2, add_self_loops=False)
    with torch.no_grad():
        shifted.lin_target.weight.mul_(2)
    assert relative(shifted(x, edge_index), got) > 1e-3
    once = torch.unique(edge_index, dim=1).contiguous()
    matrix = torch.sparse_coo_tensor(once.flip(0), torch.ones(once.size(1)), (6, 9))
    for same in (EdgeIndex(once, sparse_size=(9, 6)), matrix, matrix.to_sparse_csr()):
        assert relative(conv(x, same), conv(x, once)) < 1e-12
    with pytest.raises(
        ValueError, match=r"of shape \(9, 6\); allowed: \(6, 9\), as x has 9 sources and 6 targets"
    ):
        conv(x, matrix.t())


@pytest.mark.parametrize("layer", LAYERS)
def test_numbers_of_nodes_are_checked_for_each_kind(layer):
    x, edge_index = pair()
    conv = make(layer, (5, 3), 4, add_self_loops=False)
    for row, count in ((0, 9), (1, 6)):
        wrong = edge_index.clone()
        wrong[row, 2] = count
        with pytest.raises(
            ValueError,
            match=rf"edge_index\[{row}, 2\] is {count}; allowed: 0 to {count - 1}, as x\[{row}\] has",  # noqa: E501
        ):
            conv(x, wrong)


def test_compiled_as_eager_and_by_torch_s_own_check():
    x, edge_index = pair()
    conv = make(PHGCNConv, (5, 3), 4, add_self_loops=False)
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(conv, fullgraph=True, backend="aot_eager")(x, edge_index), conv(x, edge_index)
    )
    torch.library.opcheck(torch.ops.phgcn.join_kinds.default, (edge_index, 9, 6))


def test_GlobalAttention_of_a_pair_is_cross_attention():
    (source, target), _ = pair()
    attention = make(GlobalAttention, (5, 3), 4, heads=2)
    same = make(GlobalAttention, 5, 4, heads=2, query_channels=3)
    assert torch.equal(attention((source, target)), same(target, source))
    batches = torch.arange(9) % 2, torch.arange(6) % 2
    got = attention((source, target), batch=batches)
    assert torch.equal(got, same(target, source, batch=batches[0], query_batch=batches[1]))
    assert relative(got, attention((source, target))) > 1e-3
    with pytest.raises(ValueError, match="key or query_batch is given beside a pair"):
        attention((source, target), source)
    with pytest.raises(ValueError, match="query_channels is 3 beside in_channels"):
        GlobalAttention((5, 3), 4, query_channels=3)

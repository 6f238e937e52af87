"""What PyG users expect of every layer and model: sizes, copies, batches, formats, types."""

import copy
import io
import pickle

import pytest
import torch
from clouds import relative
from graphs import formats, random_graph
from layer_cases import CASES, SIZE, cases, graph
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GraphConv

from phgcn.nn import GAT, GATEDA, GCN, MLP, EDAConv


def with_gradients(layer, x, given):
    """The output, and the gradients of all parameters that have one."""
    out = layer(x, **given)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    grads = torch.autograd.grad(out.square().sum(), parameters, allow_unused=True)
    return [out, *(grad for grad in grads if grad is not None)]


# Sizes and copies

REPRS = {
    "EDAConv": "EDAConv(6, 4, heads=2)",
    "PHGCNConv": "PHGCNConv(6, 4, heads=2)",
    "GlobalAttention": "GlobalAttention(6, 4, heads=2)",
    "GlobalBlock": "GlobalBlock(6, heads=2, embedding_dim=4)",
    "GlobalBlock, mass": "GlobalBlock(6, heads=2, embedding_dim=4, mass=True)",
    "LabelAttention": "LabelAttention(6, 3, heads=2, embedding_dim=4)",
    "GlobalGNN, each": "GlobalGNN(6, 8, 3, num_layers=3, local=gcn, body=residual, global_layers=2, "  # noqa: E501
    "global_at=each)",
    f"GlobalGNN, {GraphConv}": "GlobalGNN(6, 8, 3, num_layers=2, local=GraphConv, body=residual, "
    "global_layers=2, global_at=top)",
    "TableNetwork": "TableNetwork(6, 3, parts='both')",
    "PHGCN": "PHGCN(6, 4, 3, num_layers=2, heads=2)",
    "MLP": "MLP(6, 4, 3, num_layers=2, heads=2)",
}


@pytest.mark.parametrize("name", REPRS)
def test_repr(name):
    assert str(CASES[name].make()) == REPRS[name]


@cases(without=("GlobalBlock*", "TableNetwork"))  # have a size for output or columns
def test_the_size_of_the_input_may_be_known_at_the_first_call(case):
    data = graph()
    eager, lazy, fresh = (case.make(size) for size in (SIZE, -1, -1))
    given, want = case.given(data), eager(data.x, **case.given(data))
    lazy(data.x, **given)
    for layer in (lazy, fresh):  # after the first call, and before
        layer.load_state_dict(eager.state_dict())
        assert torch.equal(layer(data.x, **given), want)
    shapes = [[p.shape for p in layer.parameters()] for layer in (eager, lazy)]
    assert shapes[0] == shapes[1]


@cases()
def test_copies_pickles_and_saved_weights_give_the_same_output(case):
    data = graph()
    layer, other = case.make(), case.make(seed=1)
    given, want = case.given(data), layer(data.x, **case.given(data))
    assert not torch.equal(other(data.x, **given), want)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    twin = copy.deepcopy(layer)
    for same in (other, twin, pickle.loads(pickle.dumps(layer))):
        assert torch.equal(same(data.x, **given), want)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    assert torch.equal(layer(data.x, **given), want)


@cases()
def test_reset_parameters_draws_all_weights_anew(case):
    layer = case.make()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7.0)
    layer.reset_parameters()
    for name, parameter in layer.named_parameters():
        assert not bool((parameter == 7.0).any()), name
        if parameter.dim() > 1:  # drawn: not one number, nor tiny ones
            assert len(parameter.unique()) > 1 and float(parameter.abs().max()) > 0.05, name


@cases()
def test_nodes_without_edges_and_graphs_without_nodes(case):
    layer, data = case.make(), graph(6)
    data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    whole = layer(data.x, **case.given(data))
    for nodes in (0, 1, 6):
        part = data.subgraph(torch.arange(nodes))
        x = part.x.requires_grad_()
        out = layer(x, **case.given(part))
        assert out.shape == (nodes, whole.size(1))
        out.sum().backward()


# Graphs


@cases(without=("TableNetwork",))  # of one table
def test_graphs_in_a_batch_are_the_graphs_alone_in_any_order(case):
    """Up to rounding: torch's matrix product may round a row differently beside other rows."""
    layer = case.make(dtype=torch.float32)
    graphs = [graph(nodes, seed=nodes, dtype=torch.float32) for nodes in (7, 40, 1, 19)]
    data = Batch.from_data_list(graphs)
    alone = torch.cat([layer(one.x, **case.given(one)) for one in graphs])
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(layer(data.x, **case.given(data)), alone, **close)
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(1))
    mixed = Data(edge_index=torch.argsort(order)[data.edge_index])
    for name in ("x", "y", "batch", "labelled", "drawn"):
        mixed[name] = data[name][order]
    torch.testing.assert_close(layer(mixed.x, **case.given(mixed)), alone[order], **close)


@cases(without=("LabelAttention", "TableNetwork", "GlobalGNN, labels"))
def test_a_batch_stands_for_its_tensors(case):
    layer = case.make(dtype=torch.float32)
    graphs = [graph(nodes, seed=nodes, dtype=torch.float32) for nodes in (7, 12)]
    data = Batch.from_data_list(graphs)
    out, given = layer(data), case.given(data)
    assert torch.equal(out, layer(data.x, **given))
    bare = Data(x=data.x, edge_index=data.edge_index, ptr=data.ptr)
    assert torch.equal(layer(bare), out)
    crosses = case.layer not in (EDAConv, GATEDA, GAT, GCN, MLP)
    mixed = layer(data.x, **{**given, "batch": None})
    assert crosses != torch.allclose(mixed, out, atol=1e-4)


@cases(without=("GlobalA*", "GlobalB*", "LabelAttention", "TableNetwork"))
def test_formats_of_edges_give_the_same_output(case):
    layer, data = case.make(), graph()
    data.edge_index = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    want, given = layer(data.x, **case.given(data)), case.given(data)
    for name, same in formats(data.edge_index, 20).items():
        assert relative(layer(data.x, **{**given, "edge_index": same}), want) < 1e-12, name
    turned = layer(data.x, **{**given, "edge_index": data.edge_index.flip(0)})
    without = case.layer is MLP or case.settings.get("local") == "none"
    assert without == (relative(turned, want) < 1e-3)


@cases(without=("GlobalA*", "GlobalB*", "LabelAttention", "GlobalGNN, input"))
def test_sparse_features_are_like_dense_ones(case):
    layer, data = case.make(), graph()
    x = data.x * (data.x > 0.5)
    want = with_gradients(layer, x, case.given(data))
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        got = with_gradients(layer, sparse, case.given(data))
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


# Types, compilers, threads


@cases()
def test_the_layer_moves_between_types(case):
    layer, data = case.make(), graph()
    want = layer(data.x, **case.given(data))
    single = layer.float()(data.x.float(), **case.given(data))
    assert single.dtype == torch.float32 and 0 < relative(single, want) < 1e-4
    half = layer.bfloat16()(data.x.bfloat16(), **case.given(data))
    assert half.dtype == torch.bfloat16 and relative(half, want) < 0.1


@cases()
def test_autocast(case):
    layer, data = case.make(dtype=torch.float32), graph(dtype=torch.float32)
    want = layer(data.x, **case.given(data))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = layer(data.x, **case.given(data))
    assert relative(got, want) < 0.05
    got.float().sum().backward()
    grads = [p.grad for p in layer.parameters() if p.grad is not None]
    assert grads and all(g.isfinite().all() and g.dtype == torch.float32 for g in grads)


@pytest.mark.parametrize("heads", [1, 2])
@cases()
def test_gradients_lie_in_memory_as_their_parameters(case, heads):
    """DistributedDataParallel warns, and copies, where they do not."""
    layer, data = case.make(heads=heads), graph()
    layer(data.x, **case.given(data)).square().sum().backward()
    found = {name: p for name, p in layer.named_parameters() if p.grad is not None}
    assert found
    for name, parameter in found.items():
        assert parameter.grad.stride() == parameter.stride(), name


COMPILED = ("EDAConv", "PHGCNConv", "*, no loops", "GlobalAttention", "*, queries", "*, mass")
COMPILED += ("GlobalGNN, gcn", "GlobalGNN, sage", "GlobalGNN, gin", "GlobalGNN, none")


@cases(*COMPILED)
def test_compiles_as_one_graph(case):
    """With self-loops, whose number a compiled graph cannot know, and other sizes."""
    layer, data = case.make(), graph()
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    want, got = (with_gradients(call, data.x, case.given(data)) for call in (layer, compiled))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    for nodes in (31, 47):
        other = graph(nodes)
        given = case.given(other)
        assert relative(compiled(other.x, **given), layer(other.x, **given)) < 1e-12
    if "edge_index" in case.takes and case.settings.get("local") != "none":
        data.edge_index[1, 3] = 20
        with pytest.raises(Exception, match=r"edge_index\[1, 3\] is 20; allowed: 0 to 19"):
            compiled(data.x, **case.given(data))


SHAPES = {"texas": (183, 1703, 0.05), "cora": (2708, 1433, 0.01), "hidden layer": (3000, 37, 1.0)}
"""Nodes, features and the share of features that is not 0, as in these graphs."""
FORMATS = [(shape, layout) for shape in ("texas", "cora") for layout in ("dense", "csr", "coo")]


@pytest.mark.parametrize("shape, layout", [*FORMATS, ("hidden layer", "dense")])
@cases("EDAConv", "PHGCNConv")
def test_training_has_the_same_bits_for_any_number_of_threads(case, shape, layout, threads):
    nodes, channels, density = SHAPES[shape]
    x, edge_index = random_graph(nodes, 4 * nodes, channels, dtype=torch.float32)
    x = x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < density)
    x = {"dense": x, "csr": x.to_sparse_csr(), "coo": x.to_sparse_coo()}[layout]
    wide, results = case._replace(arguments=(8,)), []
    for count in (1, 3, 4):
        threads(count)
        layer = wide.make(channels, dtype=torch.float32, dropout=0.5, heads=8).train()
        optimizer = torch.optim.Adam(layer.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            out = layer(x, edge_index)
            torch.nn.functional.cross_entropy(out, torch.arange(nodes) % 7).backward()
            optimizer.step()
        results.append([out, *layer.parameters(), *(p.grad for p in layer.parameters())])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


class Exported(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        return self.layer(*inputs)


@cases("EDAConv", "GlobalAttention", "GlobalAttention, lattice")
def test_an_export_to_ONNX_is_refused(case):
    layer, data = case.make(dtype=torch.float32), graph(dtype=torch.float32)
    inputs = (data.x, data.edge_index)[: 1 + (case.layer is EDAConv)]
    with pytest.raises(RuntimeError, match=r"phgcn: ONNX has no operators .* use torch.export"):
        torch.onnx.export(Exported(layer), inputs, io.BytesIO(), dynamo=False)
    assert layer(*inputs).isfinite().all()  # and works again afterwards

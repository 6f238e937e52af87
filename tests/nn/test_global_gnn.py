"""GlobalGNN: a strong local network, and global attention behind gates."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from clouds import relative
from graphs import random_graph
from torch_geometric.nn import GCNConv, GraphConv

from phgcn.nn import GlobalBlock, GlobalGNN
from phgcn.nn.local_conv import LOCAL

every_local = pytest.mark.parametrize("local", [*LOCAL, GraphConv])
every_body = pytest.mark.parametrize("body", ["residual", "polynomial"])
every_jk = pytest.mark.parametrize("jk", ["last", "sum", "cat"])
every_place = pytest.mark.parametrize("at", ["top", "each"])


def make(*sizes, seed=0, opened=True, **settings):
    """A model with weights from a seed; ``opened``, with gates that are not 0."""
    torch.manual_seed(seed)
    model = GlobalGNN(*sizes, **settings)
    if opened:
        for block in model.global_blocks:
            torch.nn.init.normal_(block.gate)
    return model


def graph(**settings):
    return random_graph(**{"dtype": torch.float32, **settings})


def test_the_signature_is_the_one_agreed():
    names = "in_channels hidden_channels out_channels num_layers local body norm jk global_layers"
    names += " global_at dropout global_dropout"
    assert list(inspect.signature(GlobalGNN).parameters)[:12] == names.split()
    assert [*inspect.signature(GlobalGNN.forward).parameters][1:4] == ["x", "edge_index", "batch"]


@every_local
@every_body
@every_place
def test_shapes_and_gradients(local, body, at):
    settings = {"global_layers": 2, "global_at": at, "mass": True, "global_dropout": 0.1}
    model = make(5, 8, 3, 3, local, body, **settings)
    out = model(*graph())
    assert out.shape == (20, 3)
    out.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


# A new network is its local part


@every_body
@every_jk
@every_place
@pytest.mark.parametrize("training", [False, True])
def test_a_new_network_is_bit_for_bit_its_local_part(body, jk, at, training):
    x, edge_index = graph()
    settings = {"num_layers": 3, "body": body, "jk": jk, "opened": False}
    outputs = []
    for global_layers in (0, 2):
        model = make(5, 8, 3, **settings, global_layers=global_layers, global_at=at).train(training)
        assert len(model.global_blocks) == (0 if global_layers == 0 else 3 if at == "each" else 2)
        torch.manual_seed(1)  # of dropout
        outputs.append(model(x, edge_index))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("in_channels", [5, -1])
def test_the_local_weights_do_not_depend_on_the_global_path(in_channels):
    x, edge_index = graph()
    states = []
    for global_layers in (0, 2):
        model = make(in_channels, 8, 3, opened=False, global_layers=global_layers)
        model(x, edge_index)  # a lazy size is drawn here
        first = {name: p.clone() for name, p in model.named_parameters() if "global" not in name}
        torch.manual_seed(5)
        model.reset_parameters()
        again = {name: p.clone() for name, p in model.named_parameters() if "global" not in name}
        states.append((first, again))
    for without, with_blocks in zip(*states, strict=True):
        assert without.keys() == with_blocks.keys()
        assert all(torch.equal(value, with_blocks[name]) for name, value in without.items())


@every_place
def test_the_global_path_is_switched_off_and_on(at):
    x, edge_index = graph()
    model = make(5, 8, 3, global_layers=2, global_at=at).eval()
    local = make(5, 8, 3).eval()
    assert model.use_global
    on = model(x, edge_index)
    model.set_global(False)
    assert not model.use_global and model.global_statistics(x, edge_index) == []
    assert torch.equal(model(x, edge_index), local(x, edge_index))
    model.set_global(True)
    assert torch.equal(model(x, edge_index), on) and not torch.equal(on, local(x, edge_index))


# What is computed


def pyg_convs(model):
    """PyG's layers with the weights of the model's."""
    convs = [GCNConv(8, 8) for _ in model.local_blocks]
    for conv, block in zip(convs, model.local_blocks, strict=True):
        conv.load_state_dict(block.conv.state_dict())
    return convs


@every_jk
@every_place
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", ["batch", "layer", None])
def test_the_residual_body_is_that_of_the_formula(jk, at, residual, norm):
    x, edge_index = graph()
    settings = {"jk": jk, "norm": norm, "residual": residual, "dropout": 0.0}
    model = make(5, 8, 3, 3, **settings, global_layers=2, global_at=at)
    h = model.lin_in(x)
    outputs = [h]
    for i, (conv, block) in enumerate(zip(pyg_convs(model), model.local_blocks, strict=True)):
        z = conv(h, edge_index) + (block.res(h) if residual else 0)
        z = z + (model.global_blocks[i](h) - h if at == "each" else 0)
        if norm == "batch":
            z = F.batch_norm(z, None, None, block.norm.weight, block.norm.bias, training=True)
        elif norm == "layer":
            z = F.layer_norm(z, (8,), block.norm.weight, block.norm.bias)
        h = F.relu(z)
        outputs.append(h)
    h = {"last": h, "sum": sum(outputs), "cat": torch.cat(outputs, dim=1)}[jk]
    if at == "top":
        h = model.global_blocks[1](model.global_blocks[0](h))
    assert relative(model(x, edge_index), model.lin_out(h)) < 1e-5


@every_jk
def test_the_polynomial_body_is_that_of_polynormer(jk):
    x, edge_index = graph()
    model = make(5, 8, 3, 3, body="polynomial", jk=jk, dropout=0.0)
    h = model.lin_in(x)
    outputs = [h]
    for conv, block in zip(pyg_convs(model), model.local_blocks, strict=True):
        gate = F.relu(block.gate(h))
        h = F.relu(block.norm(conv(h, edge_index) + block.res(h)))
        h = 0.1 * block.gate_norm(gate * h) + 0.9 * h
        outputs.append(h)
    h = {"last": sum(outputs[1:]), "sum": sum(outputs), "cat": torch.cat(outputs, dim=1)}[jk]
    assert relative(model(x, edge_index), model.lin_out(h)) < 1e-5


def test_without_a_local_layer_edges_do_not_matter_and_there_is_one_linear_map():
    x, edge_index = graph()
    model = make(5, 8, 3, local="none").eval()
    assert all(block.res is None for block in model.local_blocks)
    assert torch.equal(model(x, edge_index), model(x, edge_index[:, :1]))


def test_settings_reach_the_global_blocks():
    settings = {"heads": 2, "embedding_dim": 3, "mass": True, "method": "lattice"}
    more = {"decay": 0.5, "learn_decay": False, "backend": "reference"}
    (block,) = make(5, 8, 3, global_layers=1, global_dropout=0.3, **settings, **more).global_blocks
    assert isinstance(block, GlobalBlock) and (block.decay(), block.dropout) == (0.5, 0.3)
    assert {name: getattr(block, name) for name in settings} == settings
    assert block.backend == "reference"
    for at, channels in (("top", 32), ("each", 8)):
        model = make(5, 8, 3, 3, jk="cat", global_layers=1, global_at=at)
        assert model.global_blocks[0].channels == channels


def test_dropout_of_inputs_is_apart():
    x, edge_index = graph()
    model = make(5, 8, 3, dropout=0.0, input_dropout=0.5)
    seen = []
    model.lin_in.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    model(x, edge_index)
    model.eval()(x, edge_index)
    assert 0.3 < float((seen[0] == 0).float().mean()) < 0.7 and torch.equal(seen[1], x)


def test_without_norms_threads_change_no_bit(threads, same_products):
    x, edge_index = graph(nodes=3000, edges=12_000)
    model = make(5, 16, 3, norm=None, dropout=0.0, global_layers=1, mass=True)
    results = []
    for count in (2, 2, 1):
        threads(count)
        out = model(x, edge_index)
        results.append([out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))])
    for got in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(got, results[0], strict=True))


def test_gates_decays_and_norms_are_not_decayed():
    model = make(5, 8, 3, 3, body="polynomial", global_layers=2)
    names = {id(p): name for name, p in model.named_parameters()}
    undecayed = list(model.undecayed_parameters())
    assert len({id(p) for p in undecayed}) == len(undecayed)
    found = {names[id(p)] for p in undecayed}
    learned = ("gate", "log", "norm.weight", "norm.bias")
    assert found == {name for name in names.values() if name.endswith(learned)}
    assert {
        "global_blocks.0.gate",
        "global_blocks.1.decay.log",
        "local_blocks.2.norm.weight",
    } <= found
    assert not any("gate.weight" in name for name in found)  # the linear map of a polynomial layer


def test_the_network_learns_what_only_all_nodes_tell():
    """The label is on which side of the mean of its graph a node lies: no edge tells it, attention
    to all nodes does."""
    graphs = 16
    batch = torch.arange(40 * graphs) // 40
    centre = 5 * torch.randn(graphs, 1, generator=torch.Generator().manual_seed(0))
    x = centre[batch] + torch.randn(len(batch), 1, generator=torch.Generator().manual_seed(1))
    mean = torch.stack([x[batch == g].mean() for g in range(graphs)])[batch]
    y = (x[:, 0] > mean).long()
    edge_index = torch.empty(2, 0, dtype=torch.long)
    accuracy = []
    for global_layers in (0, 1):
        settings = {"norm": None, "global_at": "each", "dropout": 0.0, "opened": False}
        model = make(1, 16, 2, 2, "none", global_layers=global_layers, **settings)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(150):
            optimizer.zero_grad()
            F.cross_entropy(model(x, edge_index, batch), y).backward()
            optimizer.step()
        right = model.eval()(x, edge_index, batch).argmax(dim=1) == y
        accuracy.append(float(right.float().mean()))
    assert accuracy[1] > accuracy[0] + 0.05


@pytest.mark.parametrize("settings", [{"global_layers": 1}, {"local": "gat"}])
def test_a_width_that_heads_do_not_divide_is_refused(settings):
    with pytest.raises(ValueError, match="channels is 8; allowed: a multiple of heads, which is 3"):
        GlobalGNN(5, 8, 3, heads=3, **settings)

"""GlobalBlock: attention behind a gate."""

import copy

import pytest
import torch
import torch.nn.functional as F
from clouds import normal, relative

from phgcn import global_attention
from phgcn.nn import GlobalBlock

with_and_without_mass = pytest.mark.parametrize("mass", [False, True])


def open_block(*args, seed=0, dtype=torch.float64, **settings):
    """A block that has learned: its gate and its decays are not those of the start."""
    torch.manual_seed(seed)
    block = GlobalBlock(*args, **settings).to(dtype)
    with torch.no_grad():
        block.gate.copy_(torch.randn(block.channels))
        if block.decay.log is not None:
            block.decay.log.add_(0.3 * torch.randn(block.heads))
    return block


@with_and_without_mass
def test_a_new_block_changes_no_bit_and_its_gate_learns(mass):
    x = normal(30, 8, dtype=torch.float32)
    block = GlobalBlock(8, mass=mass)
    assert not bool(block.gate.any()) and torch.equal(block(x), x)
    block(x).square().sum().backward()
    assert bool((block.gate.grad != 0).all())


@with_and_without_mass
@pytest.mark.parametrize("learn_decay", [False, True])
def test_the_output_is_that_of_the_formula(mass, learn_decay):
    x, batch = normal(30, 8), torch.arange(30) % 2
    block = open_block(8, heads=2, embedding_dim=3, decay=2.0, learn_decay=learn_decay, mass=mass)
    z = (x - x.mean(dim=1, keepdim=True)) / (x.var(dim=1, keepdim=True, correction=0) + 1e-5).sqrt()
    heads = []
    for h in range(2):
        position = z @ block.lin_position.weight[3 * h : 3 * h + 3].T
        distance = (position.unsqueeze(1) - position).square().sum(dim=-1).sqrt()
        decay = block.decay.log[h].exp() if learn_decay else 2.0
        weight = torch.exp(-decay * distance) * (batch.unsqueeze(1) == batch)
        heads.append((weight / weight.sum(dim=1, keepdim=True)) @ z @ block.lin_value.weight[4 * h : 4 * h + 4].T)
        heads.append(weight.sum(dim=1, keepdim=True).log())
    gathered = torch.cat([heads[0], heads[2]] + ([heads[1], heads[3]] if mass else []), dim=1)
    want = x + block.gate * F.linear(gathered, block.lin_out.weight, block.lin_out.bias)
    assert relative(block(x, batch), want) < 1e-12
    assert relative(block.update(x, batch), want - x) < 1e-12


@with_and_without_mass
@pytest.mark.parametrize("method", ["exact", "lattice"])
def test_gradients_reach_all_parameters(mass, method):
    block = open_block(8, mass=mass, method=method)
    x = normal(40, 8).requires_grad_()
    block(x).square().sum().backward()
    for tensor in (x, *block.parameters()):
        assert bool(tensor.grad.isfinite().all()) and bool(tensor.grad.any())


def test_gradients_are_the_true_derivatives():
    block = open_block(4, heads=2, embedding_dim=2, mass=True)
    assert torch.autograd.gradcheck(block, normal(7, 4).requires_grad_())


@with_and_without_mass
def test_graphs_in_a_batch_are_the_graphs_alone(mass):
    block = open_block(8, mass=mass, dtype=torch.float32).eval()
    graphs = [normal(n, 8, seed=n, dtype=torch.float32) for n in (7, 40, 1, 19)]
    batch = torch.cat([torch.full((len(x),), i) for i, x in enumerate(graphs)])
    alone = torch.cat([block(x) for x in graphs])
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(block(torch.cat(graphs), batch), alone, rtol=1e-6, atol=1e-6)
    assert torch.allclose(block(torch.cat(graphs)[order], batch[order]), alone[order], rtol=1e-6, atol=1e-6)


def test_positions_and_decays_are_those_that_attention_uses():
    x, block = normal(30, 8), open_block(8, heads=2, embedding_dim=3)
    positions, decay = block.positions(x), block.decay()
    assert positions.shape == (30, 2, 3) and decay.shape == (2,)
    values = block.lin_value(F.layer_norm(x, (8,))).view(-1, 2, 4)
    gathered = global_attention(positions, values, decay=decay).flatten(1)
    assert relative(block(x), x + block.gate * block.lin_out(gathered)) < 1e-12


@with_and_without_mass
def test_dropout_is_of_training_alone_and_keeps_the_mean(mass):
    x, block = normal(30, 8), open_block(8, mass=mass, dropout=0.3)
    still = open_block(8, mass=mass)
    torch.manual_seed(0)
    drawn = torch.stack([block.update(x) for _ in range(2000)])
    assert not torch.equal(drawn[0], drawn[1])
    want = still.update(x)
    assert relative(drawn.mean(dim=0), want) < 0.05
    assert torch.equal(block.eval().update(x), want)


@with_and_without_mass
def test_a_traced_block_equals_eager(mass):
    torch.compiler.reset()
    block = open_block(8, mass=mass)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    x, batch = normal(30, 8), torch.arange(30) % 3
    results = []
    for call in (compiled, block):
        given = x.clone().requires_grad_()
        out = call(given, batch)
        results.append([out, *torch.autograd.grad(out.square().sum(), [given, *block.parameters()])])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_autocast_computes_in_half_precision():
    x, block = normal(30, 8, dtype=torch.float32), open_block(8, mass=True, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = block(x)
    assert relative(half, block(x)) < 0.03
    half.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in block.parameters())


def test_reset_copies_and_saved_weights():
    x, block, other = normal(30, 8), open_block(8, mass=True), open_block(8, mass=True, seed=1)
    want = block(x)
    assert torch.equal(copy.deepcopy(block)(x), want)
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(x), want)
    with torch.no_grad():
        for p in block.parameters():
            p.fill_(7.0)
    block.reset_parameters()
    assert all(not bool((p == 7.0).any()) for p in block.parameters())
    assert torch.equal(block(x), x)


def test_repr():
    assert str(GlobalBlock(16)) == "GlobalBlock(16, heads=4, embedding_dim=4)"
    assert str(GlobalBlock(6, 2, 3, mass=True)) == "GlobalBlock(6, heads=2, embedding_dim=3, mass=True)"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"channels": 6}, "channels is 6; allowed: a multiple of heads, which is 4"),
        ({"channels": 0}, "channels is 0; allowed: a positive integer"),
        ({"heads": 0}, "heads is 0; allowed: a positive integer"),
        ({"embedding_dim": 0}, "embedding_dim is 0; allowed: a positive integer"),
        ({"decay": -1.0}, "decay is -1.0; allowed: a positive number"),
        ({"dropout": 2}, "dropout is 2; allowed: 0 to 1"),
        ({"method": "fast"}, "method is 'fast'; allowed: 'auto'"),
        ({"backend": "gpu"}, "backend is 'gpu'; allowed: 'auto'"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        GlobalBlock(**{"channels": 8, **settings})


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.ones(5, 7), r"x has shape \(5, 7\); allowed: \(N, 8\)"),
        (torch.ones(5, 8, dtype=torch.float64), "x is torch.float64; allowed: torch.float32, as the layer's weights"),
        (torch.full((5, 8), float("nan")), r"x\[0, 0\] is nan; allowed: finite numbers"),
    ],
)
def test_bad_features_are_refused_by_name(x, message):
    with pytest.raises(ValueError, match=message):
        GlobalBlock(8)(x)

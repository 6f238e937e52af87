"""GlobalBlock: attention behind a gate."""

import pytest
import torch
import torch.nn.functional as F
from clouds import normal, relative

from phgcn import global_attention
from phgcn.nn import GlobalBlock
from phgcn.nn.global_block import ALONE, leave_out_own

with_and_without_mass = pytest.mark.parametrize("mass", [False, True])


def open_block(*args, dtype=torch.float64, **settings):
    """A block that has learned: its gate and its decays are not those of the start."""
    torch.manual_seed(0)
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
    block.gate.data.fill_(1.0)
    block.reset_parameters()
    assert torch.equal(block(x), x)


@with_and_without_mass
@pytest.mark.parametrize("learn_decay", [False, True])
def test_the_output_is_that_of_the_formula(mass, learn_decay):
    x, batch = normal(30, 8), torch.arange(30) % 2
    block = open_block(8, heads=2, embedding_dim=3, decay=2.0, learn_decay=learn_decay, mass=mass)
    z = (x - x.mean(dim=1, keepdim=True)) / (x.var(dim=1, keepdim=True, correction=0) + 1e-5).sqrt()
    means, masses = [], []
    for h in range(2):
        position = z @ block.lin_position.weight[3 * h : 3 * h + 3].T
        distance = (position.unsqueeze(1) - position).square().sum(dim=-1).sqrt()
        decay = block.decay.log[h].exp() if learn_decay else 2.0
        weight = torch.exp(-decay * distance) * (batch.unsqueeze(1) == batch)
        total = weight.sum(dim=1, keepdim=True)
        means.append(weight / total @ z @ block.lin_value.weight[4 * h : 4 * h + 4].T)
        masses.append(total.log())
    gathered = torch.cat([*means, *(masses if mass else [])], dim=1)
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
    torch.manual_seed(0)
    drawn = torch.stack([block.update(x) for _ in range(2000)])
    assert not torch.equal(drawn[0], drawn[1])
    want = open_block(8, mass=mass).update(x)
    assert relative(drawn.mean(dim=0), want) < 0.05
    assert torch.equal(block.eval().update(x), want)


def test_a_block_that_reads_the_input_attends_to_others_only():
    x = normal(30, 5)
    block = open_block(8, heads=2, embedding_dim=3, decay=2.0, in_channels=5)
    gathered = []
    for head in range(2):
        position = x @ block.lin_position.weight[3 * head : 3 * head + 3].T
        score = -block.decay()[head] * torch.cdist(position, position)
        weight = torch.exp(score) - torch.eye(30, dtype=x.dtype)
        mean = weight / (weight.sum(dim=1, keepdim=True) + ALONE * score.exp().sum(1, keepdim=True))
        gathered.append(mean @ x @ block.lin_value.weight[4 * head : 4 * head + 4].T)
    want = F.linear(torch.cat(gathered, dim=1), block.lin_out.weight, block.lin_out.bias)
    assert relative(block.update(x), block.gate * want) < 1e-6
    with pytest.raises(ValueError, match="in_channels is 5; allowed for a call of the block: None"):
        block(x)


def test_a_node_that_is_far_from_all_others_gathers_nothing():
    values = normal(4, 2, 3)
    mass = torch.zeros(4, 2, dtype=values.dtype)
    assert not bool(leave_out_own(values, mass, values).any())

"""GlobalAttention over points and sequences."""

import copy

import pytest
import torch
from clouds import applied, dense_exact, forced, normal, relative
from graphs import make

from phgcn.nn import GlobalAttention


def _dense(module, query, key, value):
    """The module written out, one head after the other."""
    heads, width = module.heads, module.out_channels
    parts = []
    for a in range(heads):
        weight = module.lin.weight[a * width : (a + 1) * width]
        place = key @ weight.t() @ module.embedding[a].t()
        if module.lin_query is None:
            asked = query @ weight.t() @ module.embedding[a].t()
        else:
            asked = query @ module.lin_query.weight[a * module.embedding_dim : (a + 1) * module.embedding_dim].t()
        decay = module.decay()
        decay = decay[a] if isinstance(decay, torch.Tensor) else decay
        parts.append(applied(dense_exact(decay * asked, decay * place), value @ weight.t(), True))
    out = torch.cat(parts, dim=1) if module.concat else torch.stack(parts).mean(dim=0)
    return out + module.bias


@pytest.mark.parametrize("settings", [{}, {"concat": False}, {"learn_decay": True}, {"query_channels": 5}], ids=str)
def test_points_attend_to_points_as_written_out(settings):
    module = make(GlobalAttention, 5, 4, heads=3, decay=2.0, method="exact", **settings)
    x, key, value = normal(20, 5, seed=1), normal(9, 5, seed=2), normal(9, 5, seed=3)
    assert relative(module(x), _dense(module, x, x, x)) < 1e-12
    assert relative(module(x, key), _dense(module, x, key, key)) < 1e-12
    assert relative(module(x, key, value), _dense(module, x, key, value)) < 1e-12
    # The distance of a point from itself has no derivative; weights that ask with a map of their own are clear of that.
    got, want = module(x, key, value).square().sum(), _dense(module, x, key, value).square().sum()
    for a, b in zip(torch.autograd.grad(got, module.parameters()), torch.autograd.grad(want, module.parameters()), strict=True):
        assert relative(a, b) < 1e-10


def test_the_global_path_of_PHGCNConv_is_this_module():
    conv, module = make("PHGCNConv", 5, 4, heads=3, act=None, bias=False), make(GlobalAttention, 5, 4, heads=3, bias=False)
    module.load_state_dict(conv.state_dict())
    x = normal(20, 5)
    assert torch.equal(module(x), conv(x, torch.empty(2, 0, dtype=torch.int64))[:, 12:])


@pytest.mark.parametrize("method", ["exact", forced("lattice", 4, 1)], ids=["exact", "lattice"])
@pytest.mark.parametrize("query_channels", [None, 5])
def test_clouds_in_a_batch_are_the_clouds_alone(method, query_channels):
    module = make(GlobalAttention, 5, 4, heads=2, query_channels=query_channels, method=method, dtype=torch.float32)
    x, batch = normal(60, 5, dtype=torch.float32), torch.arange(60) % 3
    got = module(x, batch=batch)
    assert all(torch.allclose(got[batch == b], module(x[batch == b]), rtol=1e-6, atol=1e-6) for b in range(3))
    key, of_key = normal(31, 5, seed=1, dtype=torch.float32), torch.arange(31) % 3
    crossed = module(x, key, batch=of_key, query_batch=batch)
    alone = [module(x[batch == b], key[of_key == b]) for b in range(3)]
    assert all(torch.allclose(crossed[batch == b], alone[b], rtol=1e-6, atol=1e-6) for b in range(3))


@pytest.mark.parametrize("query_channels", [None, 5])
def test_sequences_attend_each_in_itself(query_channels):
    module = make(GlobalAttention, 5, 4, heads=2, query_channels=query_channels)
    x, memory = normal(3, 10, 5, seed=1), normal(3, 7, 5, seed=2)
    assert module(x).shape == (3, 10, 8)
    assert relative(module(x), torch.stack([module(row) for row in x])) < 1e-12
    assert relative(module(x, memory), torch.stack([module(a, b) for a, b in zip(x, memory, strict=True)])) < 1e-12


def test_lazy_sizes_repr_reset_copies_and_saved_weights():
    x = normal(20, 5, dtype=torch.float32)
    module = GlobalAttention(-1, 4, heads=2, query_channels=-1, learn_decay=True)
    assert str(module) == "GlobalAttention(-1, 4, heads=2)"
    want = module(x)
    assert torch.equal(copy.deepcopy(module)(x), want)
    other = GlobalAttention(5, 4, heads=2, query_channels=5, learn_decay=True)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), want)
    module.reset_parameters()
    assert not torch.equal(module(x), want)


@pytest.mark.parametrize("query_channels", [None, 5])
def test_compiles_as_one_graph(query_channels):
    module = make(GlobalAttention, 5, 4, heads=2, query_channels=query_channels, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for shape in ((12, 5), (17, 5), (3, 10, 5), (4, 7, 5)):
        x = normal(*shape, dtype=torch.float32)
        assert torch.equal(compiled(x), module(x))


def test_dropout_drops_whole_targets():
    module = make(GlobalAttention, 12, 12, dropout=0.4, bias=False)
    x = torch.eye(12, dtype=torch.float64)
    with torch.no_grad():
        module.lin.weight.copy_(x)
    ratio = module.train()(x) / module.eval()(x)
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))
    assert 0 < int((ratio[0] > 0).sum()) < 12


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: m(x[:, :3]), r"query has shape \(20, 3\); allowed: \(N, 5\)"),
        (lambda m, x: m(x, x[:, :3]), r"key has shape \(20, 3\); allowed: \(N, 5\)"),
        (lambda m, x: m(x, x, x[:7]), r"values has 7 rows; allowed: 20"),
        (lambda m, x: m(x.float()), "query is torch.float32; allowed: torch.float64"),
        (lambda m, x: m(x * torch.nan), r"query\[0, 0\] is nan; allowed: finite"),
        (lambda m, x: m(x, x, x / 0), r"value\[0, 0\] is -?inf; allowed: finite"),
        (lambda m, x: m([x]), "query is a list; allowed: a tensor"),
        (lambda m, x: m(x, batch=torch.zeros(7).long()), r"batch has shape \(7,\); allowed: \(20,\)"),
        (lambda m, x: m(x.view(4, 5, 5), batch=torch.zeros(20).long()), r"batch is given though query has shape \(4, 5, 5\)"),
        (lambda m, x: m(x.view(4, 5, 5), x), r"key has shape \(20, 5\); allowed: \(4, L, C\)"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(make(GlobalAttention, 5, 4), normal(20, 5))


class Block(torch.nn.Module):
    """A transformer block, with global attention where dot products would be."""

    def __init__(self, width, heads):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.attention = GlobalAttention(width, width // heads, heads, query_channels=width, decay=1.0)
        self.mix = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.mix(self.attention(self.norms[0](x)))
        return x + self.mlp(self.norms[1](x))


def test_a_transformer_block_learns_to_look_up():
    """Each sequence is a dictionary in random order, and a key to look up in it: one of 4 values, where guessing gets 1/4."""
    torch.manual_seed(0)
    keys, values, width = 6, 4, 32
    word, meaning, block, head = (
        torch.nn.Embedding(keys, width),
        torch.nn.Embedding(values + 1, width),
        Block(width, 4),
        torch.nn.Linear(width, values),
    )
    model = torch.nn.ModuleList([word, meaning, block, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(count):
        place = torch.rand(count, keys).argsort(dim=1)
        value = torch.randint(0, values, (count, keys))
        asked = torch.randint(0, keys, (count, 1))
        answer = (value * (place == asked)).sum(dim=1)
        unknown = torch.full((count, 1), values)
        out = head(block(word(torch.cat([place, asked], 1)) + meaning(torch.cat([value, unknown], 1)))[:, -1])
        return torch.nn.functional.cross_entropy(out, answer), (out.argmax(dim=1) == answer).float().mean()

    with torch.no_grad():
        assert step(500)[1] < 0.5
    for _ in range(250):
        optimizer.zero_grad()
        step(64)[0].backward()
        optimizer.step()
    with torch.no_grad():
        assert step(500)[1] > 0.9

"""GlobalAttention over points and sequences."""

import pytest
import torch
from clouds import applied, dense_exact, normal, relative
from graphs import make

from phgcn.functional import observe_attention
from phgcn.kernels import Gaussian
from phgcn.lattice import Ladder
from phgcn.nn import GlobalAttention, GlobalBlock, LabelAttention


def _dense(module, query, key, value):
    """The module written out, one head after the other."""
    heads, width, dim = module.heads, module.out_channels, module.embedding_dim
    parts = []
    for a in range(heads):
        weight = module.lin.weight[a * width : (a + 1) * width]
        place = key @ weight.t() @ module.embedding[a].t()
        asked = query @ weight.t() @ module.embedding[a].t()
        if module.lin_query is not None:
            asked = query @ module.lin_query.weight[a * dim : (a + 1) * dim].t()
        decay = module.decay()
        decay = decay[a] if isinstance(decay, torch.Tensor) else decay
        kernel = dense_exact(decay * asked, decay * place, module.kernel)
        parts.append(applied(kernel, value @ weight.t(), True))
    out = torch.cat(parts, dim=1) if module.concat else torch.stack(parts).mean(dim=0)
    return out + module.bias


SETTINGS = [{}, {"concat": False}, {"learn_decay": True}, {"query_channels": 5}]
SETTINGS += [{"kernel": "gaussian"}, {"kernel": "matern32"}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_points_attend_to_points_as_written_out(settings):
    module = make(GlobalAttention, 5, 4, heads=3, decay=2.0, method="exact", **settings)
    x, key, value = normal(20, 5, seed=1), normal(9, 5, seed=2), normal(9, 5, seed=3)
    assert relative(module(x), _dense(module, x, x, x)) < 1e-12
    assert relative(module(x, key), _dense(module, x, key, key)) < 1e-12
    got, want = module(x, key, value), _dense(module, x, key, value)
    assert relative(got, want) < 1e-12
    # keys are other points than queries: the distance of a point from itself has no derivative
    parameters = list(module.parameters())
    grads = [torch.autograd.grad(out.square().sum(), parameters) for out in (got, want)]
    assert all(relative(a, b) < 1e-10 for a, b in zip(*grads, strict=True))


def test_the_global_path_of_PHGCNConv_is_this_module():
    conv = make("PHGCNConv", 5, 4, heads=3, act=None, bias=False)
    module = make(GlobalAttention, 5, 4, heads=3, bias=False)
    module.load_state_dict(conv.state_dict())
    x = normal(20, 5)
    assert torch.equal(module(x), conv(x, torch.empty(2, 0, dtype=torch.int64))[:, 12:])


queries_with_a_map = pytest.mark.parametrize("query_channels", [None, 5])


@pytest.mark.parametrize("method", ["exact", Ladder(pairs=4)], ids=["exact", "lattice"])
@queries_with_a_map
def test_queries_attend_to_keys_of_their_own_cloud(method, query_channels):
    settings = {"heads": 2, "query_channels": query_channels, "method": method}
    module = make(GlobalAttention, 5, 4, **settings)
    x, batch = normal(60, 5), torch.arange(60) % 3
    key, of_key = normal(31, 5, seed=1), torch.arange(31) % 3
    crossed = module(x, key, batch=of_key, query_batch=batch)
    for b in range(3):
        assert relative(crossed[batch == b], module(x[batch == b], key[of_key == b])) < 1e-12


@queries_with_a_map
def test_sequences_attend_each_in_itself(query_channels):
    module = make(GlobalAttention, 5, 4, heads=2, query_channels=query_channels)
    x, memory = normal(3, 10, 5, seed=1), normal(3, 7, 5, seed=2)
    assert module(x).shape == (3, 10, 8)
    assert relative(module(x), torch.stack([module(row) for row in x])) < 1e-12
    crossed = torch.stack([module(*pair) for pair in zip(x, memory, strict=True)])
    assert relative(module(x, memory), crossed) < 1e-12
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for other in (x, normal(4, 7, 5)):
        assert relative(compiled(other), module(other)) < 1e-12


def test_dropout_drops_whole_targets():
    module = make(GlobalAttention, 12, 12, dropout=0.4, bias=False)
    x = torch.eye(12, dtype=torch.float64)
    with torch.no_grad():
        module.lin.weight.copy_(x)
    ratio = module.train()(x) / module.eval()(x)
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))
    assert 0 < int((ratio[0] > 0).sum()) < 12


BATCH = torch.zeros(20, dtype=torch.int64)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, x: m(x, x[:, :3]), r"key has shape \(20, 3\); allowed: \(N, 5\)"),
        (lambda m, x: m(x, x, x[:7]), r"values has 7 rows; allowed: 20"),
        (lambda m, x: m(x, x, x / 0), r"value\[0, 0\] is -?inf; allowed: finite"),
        (lambda m, x: m(x.view(4, 5, 5), batch=BATCH), r"batch is given though query has shape"),
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
        size = width // heads
        self.attention = GlobalAttention(width, size, heads, query_channels=width, decay=1.0)
        self.mix = torch.nn.Linear(width, width)
        wide, narrow = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.mlp = torch.nn.Sequential(wide, torch.nn.GELU(), narrow)

    def forward(self, x):
        x = x + self.mix(self.attention(self.norms[0](x)))
        return x + self.mlp(self.norms[1](x))


def test_a_transformer_block_learns_to_look_up():
    """Each sequence is a dictionary in random order, and a key to look up in it: one of 4 values,
    where guessing gets 1/4."""
    torch.manual_seed(0)
    keys, values, width = 6, 4, 32
    word, meaning = torch.nn.Embedding(keys, width), torch.nn.Embedding(values + 1, width)
    block, head = Block(width, 4), torch.nn.Linear(width, values)
    model = torch.nn.ModuleList([word, meaning, block, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(count):
        place = torch.rand(count, keys).argsort(dim=1)
        value = torch.randint(0, values, (count, keys))
        asked = torch.randint(0, keys, (count, 1))
        answer = (value * (place == asked)).sum(dim=1)
        known = torch.cat([value, torch.full((count, 1), values)], 1)
        out = head(block(word(torch.cat([place, asked], 1)) + meaning(known))[:, -1])
        right = (out.argmax(dim=1) == answer).float().mean()
        return torch.nn.functional.cross_entropy(out, answer), right

    with torch.no_grad():
        assert step(500)[1] < 0.5
    for _ in range(250):
        optimizer.zero_grad()
        step(64)[0].backward()
        optimizer.step()
    with torch.no_grad():
        assert step(500)[1] > 0.9


@pytest.mark.parametrize("layer", [GlobalAttention, GlobalBlock, LabelAttention])
def test_a_kernel_reaches_the_sum_or_is_refused_by_name(layer):
    x, labelled = normal(20, 6), torch.arange(20) % 2 == 0
    given = (torch.arange(20) % 3, labelled) if layer is LabelAttention else ()
    with observe_attention() as calls:
        make(layer, 6, 3, kernel="matern52")(x, *given)
        make(layer, 6, 3, kernel=Gaussian())(x, *given)
    assert [call.kernel for call in calls] == ["matern52", "gaussian"]
    with pytest.raises(ValueError, match="method is 'separable'; allowed with the kernel 'gaussi"):
        layer(6, 3, kernel="gaussian", method="separable")

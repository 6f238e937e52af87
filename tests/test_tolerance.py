import copy

import pytest
import torch
from clouds import normal

from phgcn import attention_error, global_attention, tolerance
from phgcn.crossings import CROSSINGS
from phgcn.functional import AttentionCall
from phgcn.nn import GlobalAttention, GlobalBlock, PHGCNConv
from phgcn.tolerance import CallPoints, Tolerance, method_within

COUNT = CROSSINGS["cpu"][4].points + 100
"""Just above what "auto" sums exactly."""


def cloud(spread=1.0, count=COUNT, seed=1):
    p = normal(count, 4, seed=seed, dtype=torch.float32)
    f = normal(count, 3, seed=seed + 1, dtype=torch.float32)
    return spread * p, f


def accurate_enough(p, f, method, limit):
    error = attention_error(p, f, decay=1.0, method=method)
    return bool(error.deviation <= limit and error.gradient_cosine >= 1 - limit)


@pytest.mark.parametrize("limit", [0.5, 0.09, 0.04, 1e-4])
def test_the_cheapest_method_within_the_tolerance_is_taken(limit):
    p, f = cloud()
    want = next(
        (m for m in ("separable", "lattice", "lattice-fine") if accurate_enough(p, f, m, limit)),
        "exact",
    )
    assert method_within(CallPoints(AttentionCall(p, f, 1.0)), limit, 512, 0) == want
    got = global_attention(p, f, decay=1.0, tolerance=limit)
    assert torch.equal(got, global_attention(p, f, decay=1.0, method=want))


def test_tolerances_lead_to_different_methods():
    points = CallPoints(AttentionCall(*cloud(), 1.0))
    assert (
        method_within(points, 1.0, 512, 0) == "separable"
        and method_within(points, 1e-5, 512, 0) == "exact"
    )


def test_small_graphs_are_exact_and_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(tolerance, "measure_errors", lambda *_: pytest.fail("measured"))
    p, f = cloud(count=100)
    assert torch.equal(
        global_attention(p, f, tolerance=1.0), global_attention(p, f, method="exact")
    )
    p = normal(COUNT, 17, seed=1, dtype=torch.float32)  # no lattice is built in 17 dimensions
    f = normal(COUNT, 1, seed=2, dtype=torch.float32)
    assert torch.equal(
        global_attention(p, f, tolerance=1.0), global_attention(p, f, method="exact")
    )


def test_small_graphs_of_a_batch_stay_exact():
    p, f = cloud(count=COUNT + 100)
    batch = (torch.arange(COUNT + 100) >= COUNT).long()
    out = global_attention(p, f, decay=1.0, batch=batch, tolerance=1.0)
    assert torch.equal(
        out[COUNT:], global_attention(p[COUNT:], f[COUNT:], decay=1.0, method="exact")
    )
    assert torch.equal(
        out[:COUNT], global_attention(p[:COUNT], f[:COUNT], decay=1.0, method="separable")
    )


class Counter:
    """Counts measurements."""

    def __init__(self, monkeypatch):
        self.count = 0
        measure = tolerance.measure_errors

        def counted(*arguments):
            self.count += 1
            return measure(*arguments)

        monkeypatch.setattr(tolerance, "measure_errors", counted)


def test_a_choice_is_kept_while_the_cloud_moves_little_and_made_again_when_it_drifts(monkeypatch):
    counter, kept = Counter(monkeypatch), Tolerance(0.1)
    p, f = cloud()
    global_attention(p, f, decay=1.0, tolerance=kept)
    first = kept.chosen
    for step in range(5):
        moved = p + 0.01 * normal(*p.shape, seed=step, dtype=torch.float32)
        global_attention(moved, f, decay=1.0, tolerance=kept)
    assert counter.count == 1 and kept.chosen == first
    global_attention(3 * p, f, decay=1.0, tolerance=kept)
    assert counter.count == 2
    global_attention(p, f, decay=3.0, tolerance=kept)  # the same in units of 1/decay
    assert counter.count == 2
    half = p.clone()
    half[: COUNT // 2] *= 0.01  # half of the points collapse
    global_attention(half, f, decay=3.0, tolerance=kept)
    assert counter.count == 3
    global_attention(*cloud(count=2 * COUNT), decay=1.0, tolerance=kept)
    assert counter.count == 4


def test_training_and_evaluation_have_a_choice_each(monkeypatch):
    counter, kept = Counter(monkeypatch), Tolerance(0.1)
    p, f = cloud()
    for _ in range(3):
        kept.train()
        global_attention(p, f, decay=1.0, tolerance=kept)
        kept.eval()
        global_attention(3 * p, f, decay=1.0, tolerance=kept)
    assert counter.count == 2


def test_a_choice_survives_a_state_dict(monkeypatch):
    kept, other = Tolerance(0.1), Tolerance(0.1)
    p, f = cloud()
    want = global_attention(p, f, decay=1.0, tolerance=kept)
    other.load_state_dict(copy.deepcopy(kept.state_dict()))
    counter = Counter(monkeypatch)
    assert torch.equal(global_attention(p, f, decay=1.0, tolerance=other), want)
    assert counter.count == 0 and other.chosen == kept.chosen


LAYERS = {
    "PHGCNConv": lambda **more: PHGCNConv(6, 4, heads=2, **more),
    "GlobalAttention": lambda **more: GlobalAttention(6, 4, heads=2, **more),
    "GlobalBlock": lambda **more: GlobalBlock(6, heads=2, **more),
}


def run_layer(layer, x):
    return (
        layer(x, torch.zeros(2, 0, dtype=torch.long)) if hasattr(layer, "decay_local") else layer(x)
    )


@pytest.mark.parametrize("name", LAYERS)
def test_layers_choose_by_a_tolerance_and_say_so(name):
    x = normal(COUNT, 6, seed=3, dtype=torch.float32)
    torch.manual_seed(0)
    layer, plain = LAYERS[name](tolerance=5.0), LAYERS[name](method="separable")
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "tolerance" not in k})
    assert repr(layer) == repr(plain)[:-1] + ", tolerance=5.0)"
    assert torch.equal(run_layer(layer, x), run_layer(plain, x))
    assert repr(layer) == repr(plain)[:-1] + ", tolerance=5.0: separable)"
    layer.eval()
    layer.tolerance.error = 1e-9
    run_layer(layer, x)
    assert layer.tolerance.chosen == "exact"
    assert not any("tolerance" in key for key in plain.state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_a_compiled_layer_needs_a_choice_made_before(name):
    x = normal(COUNT, 6, seed=3, dtype=torch.float32)
    layer = LAYERS[name](tolerance=5.0)
    torch.compiler.reset()
    with pytest.raises(
        Exception, match="no method is chosen yet, and the error cannot be measured in a compiled"
    ):
        run_layer(torch.compile(layer, fullgraph=True, backend="aot_eager"), x)
    want = run_layer(layer, x)
    torch.compiler.reset()
    got = run_layer(torch.compile(layer, fullgraph=True, backend="aot_eager"), x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_compiled_function_refuses_a_number():
    torch.compiler.reset()
    compiled = torch.compile(
        lambda p, f: global_attention(p, f, tolerance=0.1), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(
        Exception,
        match="the error cannot be measured in a compiled or captured graph; call the layer",
    ):
        compiled(*cloud())


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "small"])
def test_a_wrong_tolerance_is_named(wrong):
    for call in (
        lambda: global_attention(*cloud(count=5), tolerance=wrong),
        lambda: PHGCNConv(2, 2, tolerance=wrong),
    ):
        with pytest.raises(ValueError, match=r"tolerance is .*; allowed: a positive number"):
            call()


def test_a_tolerance_beside_another_method_is_refused():
    for call in (
        lambda: global_attention(*cloud(count=5), method="lattice", tolerance=0.1),
        lambda: PHGCNConv(2, 2, method="exact", tolerance=0.1),
    ):
        with pytest.raises(ValueError, match=r'tolerance is given with method .*; allowed: "auto"'):
            call()


def test_heads_must_agree():
    p = normal(COUNT, 2, 4, seed=1, dtype=torch.float32)
    f = normal(COUNT, 3, seed=2, dtype=torch.float32)
    with pytest.raises(ValueError, match="tolerance is made for 1 heads; allowed: 2, as positions"):
        global_attention(p, f, tolerance=Tolerance(0.1))

import pytest
import torch
from clouds import normal

import phgcn
from phgcn import attention_error, global_attention
from phgcn.accuracy import WORST


def cloud(count=1500, dim=4, channels=5, seed=1):
    return normal(count, dim, seed=seed, dtype=torch.float32), normal(
        count, channels, seed=seed + 1, dtype=torch.float32
    )


def whole_error(p, f, method, batch=None):
    """Deviation and errors of all points, by the definition."""
    out, exact = (
        global_attention(p, f, decay=1.0, method=m, batch=batch).double() for m in (method, "exact")
    )
    unit = (exact - exact.mean(dim=0)).norm() / len(p) ** 0.5
    return (out - exact).norm(dim=1) / unit


@pytest.mark.parametrize("method", ["lattice", "separable"])
def test_looking_at_all_points_gives_the_error_of_all_points(method):
    p, f = cloud(400)
    error = attention_error(p, f, decay=1.0, method=method, samples=400)
    errors = whole_error(p, f, method)
    assert float(error.deviation) == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-4)
    assert torch.equal(error.interval, error.deviation.expand(2))
    assert error.worst.tolist() == errors.topk(WORST).indices.tolist()
    torch.testing.assert_close(error.worst_error, errors.topk(WORST).values, rtol=1e-3, atol=1e-5)


def test_the_gradient_is_compared_with_the_exact_one():
    p, f = (t.double() for t in cloud(60))
    error = attention_error(p, f, decay=1.0, method="separable", samples=60)
    generator = torch.Generator().manual_seed(0)  # draws the points, then the gradient
    order = torch.randperm(60, generator=generator)
    grad = torch.randn(60, 1, 5, generator=generator, dtype=torch.float64)[:, 0]
    slopes = []
    for method in ("separable", "exact"):
        leaf = p.clone().requires_grad_()
        out = global_attention(leaf, f, decay=1.0, method=method)[order]
        slopes.append(torch.autograd.grad(out, leaf, grad)[0].flatten())
    cosine = torch.nn.functional.cosine_similarity(*slopes, dim=0)
    assert float(error.gradient_cosine) == pytest.approx(float(cosine), abs=1e-9)
    assert 0.5 < cosine < 0.95


def test_the_interval_holds_the_error_of_all_points_most_of_the_time():
    p, f = cloud(3000)
    true = float(whole_error(p, f, "lattice").square().mean().sqrt())
    found = [
        attention_error(p, f, decay=1.0, method="lattice", samples=200, seed=seed)
        for seed in range(20)
    ]
    assert sum(bool(error.interval[0] <= true <= error.interval[1]) for error in found) >= 16
    assert all(error.interval[0] <= error.deviation <= error.interval[1] for error in found)
    assert all(abs(float(error.deviation) / true - 1) < 0.3 for error in found)


def test_the_exact_method_has_no_error():
    error = attention_error(*cloud(), decay=1.0, method="exact")
    assert float(error.deviation) < 1e-5 and float(error.gradient_cosine) > 0.9999


def test_a_seed_gives_the_same_numbers_and_leaves_the_random_state_alone():
    p, f = cloud()
    state = torch.get_rng_state()
    first, again = (
        attention_error(p, f, decay=1.0, method="lattice", samples=100, seed=3) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    other = attention_error(p, f, decay=1.0, method="lattice", samples=100, seed=4)
    assert not torch.equal(first.deviation, other.deviation)


def test_heads_have_numbers_of_their_own():
    p, f = normal(500, 2, 3, seed=1), normal(500, 2, 4, seed=2)
    decay = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    error = attention_error(p, f, decay=decay, method="separable", samples=500)
    assert error.deviation.shape == error.gradient_cosine.shape == (2,)
    assert error.interval.shape == (2, 2) and error.worst.shape == error.worst_error.shape == (
        WORST,
        2,
    )
    for head in range(2):
        alone = attention_error(
            p[:, head], f[:, head], decay=decay[head].item(), method="separable", samples=500
        )
        assert float(error.deviation[head]) == pytest.approx(float(alone.deviation), rel=1e-9)
        assert error.worst[:, head].tolist() == alone.worst.tolist()


def test_a_batch_and_queries_are_measured_too():
    p, f = cloud(600)
    batch = torch.arange(600) % 3
    error = attention_error(p, f, decay=1.0, method="lattice", batch=batch, samples=600)
    errors = whole_error(p, f, "lattice", batch)
    assert float(error.deviation) == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-4)
    queries = normal(70, 4, seed=5, dtype=torch.float32)
    across = attention_error(p, f, decay=1.0, method="lattice", queries=queries, samples=50)
    assert 0 < float(across.deviation) < 0.5 and 0.5 < float(across.gradient_cosine) < 1


def test_a_lonely_point_is_among_the_worst_though_it_is_hardly_ever_drawn():
    p, f = cloud(20_000, channels=2)
    p *= 0.2
    p[123] = torch.tensor([12.0, 0, 0, 0])
    f[123] += 5
    exact, separable = (
        global_attention(p, f, decay=1.0, method=m)[123] for m in ("exact", "separable")
    )
    assert (exact - separable).abs().max() > 0.3
    error = attention_error(p, f, decay=1.0, method="separable", samples=64)
    assert error.worst[0] == 123 and error.worst_error[0] > 10 * error.deviation


@pytest.mark.parametrize("constant", [True, False])
def test_a_cloud_without_deviation_has_finite_numbers(constant):
    p, f = cloud(200)
    error = attention_error(
        torch.zeros_like(p), torch.ones_like(f) if constant else f, method="lattice"
    )
    assert all(bool(t.isfinite().all()) for t in error)
    assert float(error.deviation) < 1.5 and float(error.gradient_cosine) == 1


def test_it_works_where_gradients_are_off():
    p, f = cloud(200)
    want = attention_error(p, f, decay=1.0, method="lattice")
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            error = attention_error(p.clone(), f.clone(), decay=1.0, method="lattice")
        assert all(torch.equal(a, b) for a, b in zip(error, want, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, "samples is 0; allowed: a positive integer"),
        ({"method": "best"}, "method is 'best'; allowed"),
        (
            {"positions": torch.empty(0, 2), "values": torch.empty(0, 2)},
            "positions and queries have 0 and 0 rows; allowed",
        ),
    ],
)
def test_wrong_input_is_named(changes, message):
    p, f = cloud(10)
    with pytest.raises(ValueError, match=message):
        attention_error(**{"positions": p, "values": f, **changes})


def test_it_is_a_public_name_whatever_was_imported_before():
    assert phgcn.attention_error is attention_error and callable(phgcn.attention_error)

"""Kernels other than the exponential, for every backend of exact attention; see :mod:`exact_case`."""

import pytest
import torch
from clouds import normal, relative
from exact_case import dense, dense_weights, leaves

from phgcn.kernels import KERNELS
from phgcn.runtime.points import Points

OTHERS = tuple(name for name in KERNELS if name != "exponential")


class KernelCase:
    """Mixed into a subclass of :class:`exact_case.ExactCase`, which attends."""

    def sum_and_gradients(self, points, normalise, kernel):
        inputs = [t for t in points[:3] if t is not None]
        out = self.attend(points, normalise, kernel=kernel)
        return [
            out.detach(),
            *torch.autograd.grad(out, inputs, normal(*out.shape, seed=9, dtype=out.dtype)),
        ]

    @pytest.mark.parametrize("kernel", OTHERS)
    @pytest.mark.parametrize("normalise", [True, False])
    @pytest.mark.parametrize("across", [False, True])
    def test_a_kernel_is_its_formula(self, across, normalise, kernel):
        n, m = self.count, self.count // 2 + 1
        inputs = leaves((n, 2, 3), (n, 2, 5), (m, 2, 3))[: 2 + across]
        batch, query_batch = torch.arange(n) * 7 % 5 % 3, torch.arange(m) * 3 % 7 % 3
        points = Points(*inputs, batch, query_batch) if across else Points(*inputs, None, batch)
        want = dense(points, normalise, kernel)
        wants = [want, *torch.autograd.grad(want, inputs, normal(*want.shape, seed=9))]
        for got, want in zip(self.sum_and_gradients(points, normalise, kernel), wants, strict=True):
            assert relative(got, want) < 1e-11

    @pytest.mark.parametrize("kernel", OTHERS)
    def test_a_kernel_in_float32_is_accurate(self, kernel):
        points = Points(*leaves((100, 1, 4), (100, 1, 40), (70, 1, 4), dtype=torch.float32))
        want = dense(points, True, kernel)
        wants = [want, *torch.autograd.grad(want, points[:3], normal(*want.shape, seed=9))]
        for got, want in zip(self.sum_and_gradients(points, True, kernel), wants, strict=True):
            assert relative(got, want) < 2e-5

    @pytest.mark.parametrize("kernel", OTHERS)
    @pytest.mark.parametrize("dim", [1, 4])
    def test_gradients_with_a_kernel_are_the_true_derivatives(self, dim, kernel):
        inputs = [
            t.detach().contiguous().requires_grad_()
            for t in leaves((8, 2, dim), (8, 2, 2), (3, 2, dim))
        ]

        def across(positions, values, queries):
            return self.attend(Points(positions, values, queries), kernel=kernel)

        def itself(positions, values):
            return self.attend(Points(positions, values), False, kernel=kernel)

        assert torch.autograd.gradcheck(across, inputs, atol=1e-7, rtol=1e-5, fast_mode=True)
        assert torch.autograd.gradcheck(itself, inputs[:2], atol=1e-7, rtol=1e-5, fast_mode=True)

    @pytest.mark.parametrize("kernel", OTHERS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("distance", [300.0, 1e4, 1e7])
    def test_with_a_kernel_a_far_query_attends_to_the_nearest(self, distance, dtype, kernel):
        """Two keys in line: the softmax of the logarithms of the kernel is all on the nearer one,
        and finite.
        """
        positions = torch.tensor([[[0.0]], [[distance / 10]]], dtype=dtype).requires_grad_()
        values = torch.tensor([[[1.0]], [[2.0]]], dtype=dtype).requires_grad_()
        queries = torch.tensor([[[-distance]], [[2 * distance]]], dtype=dtype).requires_grad_()
        points = Points(positions, values, queries)
        out, *grads = self.sum_and_gradients(points, True, kernel)
        torch.testing.assert_close(
            out.flatten(), torch.tensor([1.0, 2.0], dtype=dtype), rtol=3e-5, atol=0
        )
        assert all(grad.isfinite().all() for grad in grads)

    @pytest.mark.parametrize("kernel", OTHERS)
    def test_a_far_query_attends_by_the_ratio_of_weights(self, kernel):
        positions, values, queries = leaves((20, 1, 3), (20, 1, 2), (5, 1, 3))
        queries.data[2] += 15
        points = Points(positions, values, queries)
        (weight,) = dense_weights(points, kernel)
        want = weight / weight.sum(dim=1, keepdim=True) @ values[:, 0]
        torch.testing.assert_close(
            self.attend(points, kernel=kernel)[:, 0], want, rtol=1e-9, atol=1e-9
        )

    @pytest.mark.parametrize("kernel", OTHERS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_with_a_kernel_points_that_coincide_have_weight_one(self, dtype, kernel):
        positions = torch.full((20, 1, 3), 0.1234567, dtype=dtype).requires_grad_()
        values = normal(20, 1, 4, seed=2, dtype=dtype).requires_grad_()
        out, grad, _ = self.sum_and_gradients(Points(positions, values), False, kernel)
        torch.testing.assert_close(
            out, values.detach().sum(dim=0).expand(20, 1, 4), rtol=1e-5, atol=1e-5
        )
        assert torch.equal(grad, torch.zeros_like(grad))

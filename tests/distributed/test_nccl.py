"""One rank with nccl, on a machine with a GPU: several GPUs were never at hand."""

import pytest
import torch
import torch.distributed as dist

import phgcn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("nccl") / "store"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("method", ["exact", "lattice", "separable"])
def test_one_rank_with_nccl_is_one_process(group, method):
    random = torch.Generator().manual_seed(0)
    positions = torch.randn(2000, 2, 3, generator=random, dtype=torch.float64).cuda()
    values = torch.randn(2000, 2, 4, generator=random, dtype=torch.float64).cuda()
    found = []
    for asked in (group, None):
        inputs = [t.clone().requires_grad_() for t in (positions, values)]
        out = phgcn.global_attention(*inputs, decay=2.0, method=method, group=asked)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), inputs)])
    for over_ranks, alone in zip(*found, strict=True):
        assert (over_ranks - alone).abs().max() <= 1e-12 * alone.abs().max()

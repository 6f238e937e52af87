"""DistributedDataParallel: each process trains on its own graphs, and all have the same weights.

torchrun --nproc-per-node 2 examples/data_parallel.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from phgcn.nn import PHGCN, GlobalGNN

dist.init_process_group("gloo")  # "nccl" on GPUs
rank, count = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
graphs = [
    Data(x=torch.randn(20, 8), edge_index=torch.randint(20, (2, 60)), y=torch.randint(3, (20,)))
    for _ in range(16)
]
models = {
    "PHGCN": PHGCN(8, 4, 3, heads=2),
    "GlobalGNN": GlobalGNN(8, 16, 3, global_layers=1, norm="layer"),
}
for name, model in models.items():
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for batch in DataLoader(graphs[rank::count], batch_size=4):
        optimizer.zero_grad()
        F.cross_entropy(parallel(batch), batch.y).backward()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(count)]
    dist.all_gather(gathered, weights)
    assert all(torch.equal(other, weights) for other in gathered)
    if rank == 0:
        print(f"{name}: {count} processes with the same weights after training", flush=True)
dist.destroy_process_group()

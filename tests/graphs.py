"""What the tests of layers share: random graphs, and the paper's layer written out as dense
matrices.
"""

import torch
from clouds import normal
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from phgcn.nn import EDAConv, PHGCNConv

LAYERS = {"EDAConv": EDAConv, "PHGCNConv": PHGCNConv}


def random_graph(nodes=20, edges=60, channels=5, seed=0, dtype=torch.float64):
    """Features and directed edges, some of them self-loops, none twice."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(nodes * nodes, generator=generator)[:edges]
    return normal(nodes, channels, seed=seed, dtype=dtype), torch.stack(
        [chosen // nodes, chosen % nodes]
    )


def make(layer, *args, seed=0, dtype=torch.float64, **settings):
    """A layer with weights from a seed, and a bias that is not 0."""
    torch.manual_seed(seed)
    conv = LAYERS[layer](*args, **settings) if isinstance(layer, str) else layer(*args, **settings)
    if getattr(conv, "bias", None) is not None:
        torch.nn.init.normal_(conv.bias)
    return conv.to(dtype)


def formats(edge_index, nodes):
    """The same edges in every format, but for their order."""
    from torch_geometric import EdgeIndex

    transposed = edge_index.flip(0)
    return {
        "int32": edge_index.int(),
        "EdgeIndex": EdgeIndex(edge_index, sparse_size=(nodes, nodes)),
        "EdgeIndex by target": EdgeIndex(edge_index, sparse_size=(nodes, nodes))
        .sort_by("col")
        .values,
        "COO": to_torch_coo_tensor(transposed, size=nodes),
        "CSR": to_torch_csr_tensor(transposed, size=nodes),
        "CSC": to_torch_csc_tensor(transposed, size=nodes),
    }


def dense_layer(conv, x, edge_index, batch=None):
    """The paper's equations, one head after the other; for EDAConv, only the structural ones."""
    n, heads, width = len(x), conv.heads, conv.out_channels
    linked = torch.eye(n, dtype=torch.bool)
    linked[edge_index[1], edge_index[0]] = True
    same = torch.ones(n, n, dtype=torch.bool) if batch is None else batch.unsqueeze(1) == batch
    paths = [[], []]
    for a in range(heads):
        f = x @ conv.lin.weight[a * width : (a + 1) * width].t()
        p = f @ conv.embedding[a].t()
        square = (p.unsqueeze(1) - p).square().sum(-1)
        distance = torch.where(square > 0, torch.where(square > 0, square, 1).sqrt(), 0)
        for path, mask in enumerate((linked, same)[: conv.paths]):
            decay = (
                (conv.decay_local, conv.decay_global)[path]()
                if conv.paths == 2
                else conv.decay_local()
            )
            decay = decay[a] if isinstance(decay, torch.Tensor) else decay
            paths[path].append(
                torch.softmax((-decay * distance).masked_fill(~mask, -torch.inf), dim=1) @ f
            )
    gates = torch.ones(conv.paths + 1) if conv.gates is None else conv.gates
    parts = [gate * part for path, gate in zip(paths, gates, strict=False) for part in path]
    out = torch.cat(parts, dim=1) if conv.concat else torch.stack(parts).mean(dim=0)
    out = out + (gates[-1] * (x @ conv.res.weight.t()) if conv.res is not None else 0)
    out = out + (conv.bias if conv.bias is not None else 0)
    return torch.nn.functional.elu(out) if conv.concat and conv.paths == 2 else out

"""torch.export: a saved program for graphs of any size. ONNX is refused, as it has no operators for
lattices.
"""

import io

import torch
from torch.export import Dim, export

from phgcn.nn import PHGCN, EDAConv, GlobalAttention, GlobalBlock, GlobalGNN, PHGCNConv


def random_graph(nodes):
    return torch.randn(nodes, 16), torch.randint(nodes, (2, 4 * nodes))


torch.manual_seed(0)
layers = {
    "PHGCNConv": (PHGCNConv(16, 4, heads=2), 2),
    "EDAConv": (EDAConv(16, 8, heads=2), 2),
    "GlobalAttention": (GlobalAttention(16, 8, heads=2), 1),
    "GlobalBlock": (GlobalBlock(16), 1),
    "GlobalGNN": (GlobalGNN(16, 32, 3, global_layers=1).eval(), 2),
    "PHGCN": (PHGCN(16, 8, 3).eval(), 2),
}
nodes, edges = Dim("nodes"), Dim("edges")
for name, (layer, inputs) in layers.items():
    shapes = ({0: nodes}, {1: edges})[:inputs]
    program = export(layer, random_graph(20)[:inputs], dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for size in (33, 1500):  # the larger one by the lattice: "auto" chooses when the program runs
        graph = random_graph(size)[:inputs]
        assert torch.allclose(loaded(*graph), layer(*graph), rtol=1e-4, atol=1e-5)
    print(f"{name}: exported with 20 nodes, the same with 33 and 1,500")

"""ONNX is refused, with a reason."""

import io

import pytest
import torch
from graphs import random_graph

from phgcn.nn import EDAConv, GlobalAttention


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        return self.layer(*inputs)


@pytest.mark.parametrize("layer", [EDAConv(5, 4), GlobalAttention(5, 4), GlobalAttention(5, 4, method="lattice")], ids=str)
def test_an_export_to_ONNX_is_refused(layer):
    x, edge_index = random_graph(dtype=torch.float32)
    inputs = (x, edge_index) if isinstance(layer, EDAConv) else (x,)
    with pytest.raises(RuntimeError, match=r"phgcn: ONNX has no operators for lattices .* use torch.export"):
        torch.onnx.export(Net(layer), inputs, io.BytesIO(), dynamo=False)
    assert layer(*inputs).isfinite().all()  # and works again afterwards

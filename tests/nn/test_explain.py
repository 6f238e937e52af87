"""What PyG's explainers rely on: masks of edges act on messages, and messages are those of the
kernels."""

import pytest
import torch
from clouds import relative
from graphs import LAYERS, make, random_graph
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.utils import remove_self_loops

from phgcn.nn import GlobalGNN


def gnn(local):
    torch.manual_seed(0)
    return GlobalGNN(5, 8, 3, local=local, heads=2, global_layers=1).double().eval()


MODELS = {layer: lambda layer=layer: make(layer, 5, 4, heads=2) for layer in LAYERS}
MODELS |= {local: lambda local=local: gnn(local) for local in ("gcn", "sage", "gin", "gat", "eda")}


@pytest.mark.parametrize("name", MODELS)
def test_a_mask_of_ones_changes_nothing_and_other_masks_do(name):
    x, edge_index = random_graph()
    edge_index = remove_self_loops(edge_index)[0]
    model = MODELS[name]()
    want = model(x, edge_index)
    mask = torch.ones(edge_index.size(1), dtype=torch.float64, requires_grad=True)
    set_masks(model, mask, edge_index, apply_sigmoid=False)
    got = model(x, edge_index)
    assert relative(got, want) < 1e-12
    (grad,) = torch.autograd.grad(got[3].square().sum(), mask)
    leading = edge_index[1] == 3
    assert bool((grad[leading] != 0).all())
    if name in LAYERS:  # a single layer: only the edges to a node count for it
        assert not bool(grad[~leading].any())
    clear_masks(model)
    assert torch.equal(model(x, edge_index), want)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_masked_edge_is_silent(layer):
    x, edge_index = random_graph()
    edge_index = remove_self_loops(edge_index)[0]
    conv = make(layer, 5, 4, heads=2, bias=False)
    _, (edges, alpha) = conv(x, edge_index, return_attention_weights=True)
    mask = (torch.arange(edge_index.size(1)) % 2).double()
    set_masks(conv, mask, edge_index, apply_sigmoid=False)
    weight = alpha * torch.cat([mask, torch.ones(20)]).unsqueeze(-1)
    values = conv.project(x)[1]
    want = (
        torch.zeros_like(values)
        .index_add(0, edges[1], weight.unsqueeze(-1) * values[edges[0]])
        .flatten(1)
    )
    got = conv(x, edge_index)[:, :8]
    assert relative(got, want if layer == "EDAConv" else torch.nn.functional.elu(want)) < 1e-12


@pytest.mark.parametrize("layer", LAYERS)
def test_hooks_see_messages_and_their_weights(layer):
    x, edge_index = random_graph()
    conv, seen = make(layer, 5, 4, heads=2), []
    want, (_, alpha) = conv(x, edge_index, return_attention_weights=True)
    handle = conv.register_message_forward_hook(
        lambda module, inputs, out: seen.append((inputs[0]["alpha"], out))
    )
    assert relative(conv(x, edge_index), want) < 1e-12
    assert torch.equal(seen[0][0], alpha) and seen[0][1].shape == (len(alpha), 2, 4)
    handle.remove()
    assert torch.equal(conv(x, edge_index), want) and len(seen) == 1


@pytest.mark.parametrize("layer", LAYERS)
def test_captum_explains(layer):
    pytest.importorskip("captum")
    x, edge_index = random_graph(dtype=torch.float32)
    explainer = Explainer(
        make(layer, 5, 3, concat=False, dtype=torch.float32),
        algorithm=CaptumExplainer("Saliency"),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    explanation = explainer(x, edge_index, index=3)
    assert bool(explanation.edge_mask[(edge_index[1] == 3) & (edge_index[0] != 3)].all())
    assert not bool(explanation.edge_mask[edge_index[1] != 3].any())
    assert bool(explanation.node_mask[3].any())

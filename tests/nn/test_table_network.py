"""TableNetwork, PeriodicFeatures and LabelOutputs."""

import math

import pytest
import torch
from clouds import normal

from phgcn.nn import LabelOutputs, PeriodicFeatures, TableNetwork


def test_periodic_features_follow_their_formula():
    torch.manual_seed(0)
    layer, x = PeriodicFeatures(3, 5, frequencies=4, deviation=0.3).double(), normal(7, 3)
    column = 1
    phase = 2 * math.pi * x[:, column, None] * layer.frequency[column]
    want = (
        torch.cat([phase.sin(), phase.cos()], dim=1) @ layer.weight[column] + layer.bias[column]
    ).relu()
    torch.testing.assert_close(layer(x)[:, 5:10], want)
    assert repr(layer) == "PeriodicFeatures(3, 5, frequencies=4)"


def test_outputs_of_labels():
    means = torch.tensor([[0.2, 0.8], [0.0, 1.0]])
    want = torch.log(0.99 * means + 0.005)
    torch.testing.assert_close(LabelOutputs("classification")(means), want)
    torch.testing.assert_close(LabelOutputs("regression", 2.0)(means), 2 * means)
    torch.testing.assert_close(LabelOutputs("multilabel")(means), torch.logit(0.98 * means + 0.01))
    with pytest.raises(
        ValueError, match="task is 'other'; allowed: 'classification', 'regression', 'multilabel'"
    ):
        LabelOutputs("other")


def table(parts="both", task="classification", **settings):
    torch.manual_seed(0)
    x, outputs = torch.randn(40, 4), 1 if task == "regression" else 3
    y = torch.randn(40) if task == "regression" else torch.arange(40) % 3
    net = TableNetwork(
        4, outputs, 16, parts=parts, task=task, heads=2, embedding_dim=3, method="exact", **settings
    )
    return net, x, y, torch.arange(40) % 4 != 0


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_parts(task):
    for parts in ("network", "labels", "both"):
        net, x, y, labelled = table(parts, task, coordinates=[0, 1])
        arguments = {} if parts == "network" else {"y": y, "labelled": labelled}
        out = net.eval()(x, **arguments)
        assert out.shape == (40, 1 if task == "regression" else 3)
        out.square().sum().backward()
        assert all(
            parameter.grad is not None for parameter in net.parameters() if len(parameter.view(-1))
        ), parts


def test_labels_of_unlabelled_rows_and_own_labels_never_matter():
    net, x, y, labelled = table("labels", coordinates=[2])
    out = net(x, y=y, labelled=labelled)
    other = torch.where(labelled, y, (y + 1) % 3)
    assert torch.equal(net(x, y=other, labelled=labelled), out)
    changed = y.clone()
    changed[1] = (y[1] + 1) % 3  # labelled
    assert torch.equal(net(x, y=changed, labelled=labelled)[1], out[1])


def test_coordinates_begin_as_distances_on_the_map_of_several_scales():
    net, x, *_ = table("labels", coordinates=[3, 1])
    positions = net.label_path.attentions[1].positions(x[:, [3, 1]])
    torch.testing.assert_close(positions[:, 2], 9 * x[:, [3, 1]])
    with pytest.raises(ValueError, match="coordinates has 4; allowed: columns from 0 to 3"):
        table(coordinates=[4])


def test_categories_have_no_periodic_features():
    net, *_ = table(numeric=[0, 2])
    assert net.periodic.columns == 2 and net.label_path.attentions[0].channels == 4 + 2 * 16
    assert repr(net) == "TableNetwork(4, 3, parts='both')"
    with pytest.raises(ValueError, match="parts is 'all'; allowed: 'network', 'labels', 'both'"):
        table("all")

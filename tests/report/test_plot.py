import numpy as np
import pytest
import torch
from small_graphs import small_graph

from phgcn.nn import PHGCN
from phgcn.report.attention import pick_node, strongest_anywhere, strongest_neighbours
from phgcn.report.embeddings import hops, layer_input, plane
from phgcn.report.plot import plot
from phgcn.train import Plan, Run, Settings

pytest.importorskip("matplotlib")


@pytest.fixture
def made(tmp_path):
    def make(model, **settings):
        data = small_graph()
        plan = Plan("small", model=model, splits=2, settings=Settings(hidden_channels=4, epochs=3, **settings))
        run = Run.create(tmp_path / model, plan, data)
        run.train(data)
        return run, data

    return make


@pytest.mark.parametrize(("dim", "kind"), [(1, "png"), (2, "svg"), (3, "pdf")])
def test_a_run_is_drawn_whatever_its_embedding(dim, kind, made, tmp_path):
    run, data = made("phgcn", heads=3, embedding_dim=dim)
    files = plot(run, lambda: data, tmp_path / "plots", kind=kind, layer=1, node="n3")
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == sorted(path.name for path in files)
    assert len(files) == 5 and all(path.suffix == f".{kind}" and path.stat().st_size > 2000 for path in files)


def test_structural_attention_alone_has_no_global_picture(made, tmp_path):
    run, data = made("gat-eda", heads=1)
    assert len(plot(run, lambda: data, tmp_path / "plots")) == 4


def test_models_without_embedding_get_curves_and_no_graph_is_read(made, tmp_path):
    run, _ = made("gcn", heads=1)
    files = plot(run, lambda: pytest.fail("the graph is not needed"), tmp_path / "plots")
    assert [path.name for path in files] == ["curves.png"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "gif"}, "format is 'gif'; allowed: png, svg, pdf"),
        ({"node": "x"}, "node is 'x'; allowed: the id of a node"),
        ({"layer": 2}, "layer is 2; allowed: 0 to 1"),
        ({"split": 7}, "split is 7; allowed: 0 to 1"),
    ],
)
def test_wrong_wishes_are_refused(wrong, said, made, tmp_path):
    run, data = made("phgcn", heads=1)
    with pytest.raises(ValueError, match=said):
        plot(run, lambda: data, tmp_path / "plots", **wrong)


def test_the_plane_keeps_most_of_the_variance():
    random = np.random.default_rng(0)
    points = random.normal(size=(200, 5)) * [9, 0.1, 5, 0.1, 0.1]
    flat, share = plane(points)
    assert flat.shape == (200, 2) and share > 0.99
    np.testing.assert_allclose(np.abs(flat[:, 0]), np.abs(points[:, 0] - points[:, 0].mean()), atol=0.5)
    assert plane(points[:, :2])[0] is not None and np.array_equal(plane(points[:, :2])[0], points[:, :2])


def test_hops_are_counted_along_edges():
    chain = torch.tensor([[0, 1, 2], [1, 2, 3]])
    steps = hops(chain, 5, np.array([0, 3]))
    assert steps[0, :4].tolist() == [0, 1, 2, 3] and np.isinf(steps[0, 4])
    assert steps[1, :4].tolist() == [3, 2, 1, 0]


def test_attention_is_read_per_head_strongest_first():
    edges = torch.tensor([[0, 1, 2, 0], [2, 2, 2, 1]])
    weights = torch.tensor([[0.2, 0.6], [0.5, 0.1], [0.3, 0.3], [1.0, 1.0]])
    found = strongest_neighbours(edges, weights, 2)
    assert [[node for node, _ in row] for row in found] == [[1, 2, 0], [0, 2, 1]]
    assert strongest_anywhere(torch.tensor([[4, -1]]), torch.tensor([[1.0, 0.0]])) == [[(4, 1.0)]]
    assert pick_node(None, ["a", "b", "c"], torch.tensor([2])) == 2 and pick_node("b", ["a", "b"], torch.tensor([0])) == 1


def test_what_reaches_a_layer_is_what_the_one_before_gives():
    data = small_graph()
    model = PHGCN(5, 4, 3, heads=2).eval()
    assert torch.equal(layer_input(model, 0, data.x, data.edge_index), data.x)
    given = layer_input(model, 1, data.x, data.edge_index)
    with torch.no_grad():
        assert torch.equal(model.convs[1](given, data.edge_index), model(data.x, data.edge_index))

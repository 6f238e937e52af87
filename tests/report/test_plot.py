import numpy as np
import pytest
import torch
from small_graphs import small_graph

from phgcn.nn import PHGCN
from phgcn.report.attention import draw_attention, pick_node, strongest_anywhere, strongest_neighbours
from phgcn.report.curves import draw_curves, read_curves
from phgcn.report.embeddings import draw_distances, draw_embeddings, hops, layer_input, plane
from phgcn.report.plot import plot
from phgcn.report.style import COLOURS, UNLABELLED_COLOUR
from phgcn.train import Plan, Run, Settings

to_rgba = pytest.importorskip("matplotlib.colors").to_rgba


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


@pytest.mark.parametrize("place", ["top", "each"])
def test_global_blocks_are_drawn_with_their_gates(place, made, tmp_path):
    run, data = made("global-gnn", heads=2, global_layers=1, global_at=place, select="metric")
    files = plot(run, lambda: data, tmp_path / "plots", layer=0, node="n3")
    assert [path.stem for path in files] == ["curves", "embeddings", "distances", "attention-global"]
    assert all(path.stat().st_size > 5000 for path in files)
    figure = draw_curves(run)
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert labels == ["loss", "validation accuracy", "gate (root mean square)", "nodes attended to, of 60"]
    assert len(figure.axes[2].lines) == 2 * (2 if place == "each" else 1) and len(figure.axes[3].lines) == 2 * len(
        figure.axes[2].lines
    )
    with pytest.raises(ValueError, match="layer is 5; allowed: 0 to"):
        plot(run, lambda: data, tmp_path / "wrong", layer=5)


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
    assert np.array_equal(plane(points[:, :2])[0], points[:, :2])


def test_hops_are_counted_along_edges():
    chain = torch.tensor([[0, 1, 2], [1, 2, 3]])
    steps = hops(chain, 5, np.array([0, 3]))
    assert steps[0, :4].tolist() == [0, 1, 2, 3] and np.isinf(steps[0, 4])
    assert steps[1, :4].tolist() == [3, 2, 1, 0]


def test_attention_is_read_per_head_strongest_first():
    edges = torch.tensor([[0, 1, 2, 0], [2, 2, 2, 1]])
    weights = torch.tensor([[0.2, 0.6], [0.5, 0.1], [0.3, 0.3], [1.0, 1.0]])
    heads = strongest_neighbours(edges, weights, 2)
    assert [[node for node, _ in targets] for targets in heads] == [[1, 2, 0], [0, 2, 1]]
    assert strongest_anywhere(torch.tensor([[4, -1]]), torch.tensor([[1.0, 0.0]])) == [[(4, 1.0)]]
    assert pick_node(None, ["a", "b", "c"], torch.tensor([2])) == 2 and pick_node("b", ["a", "b"], torch.tensor([0])) == 1


def test_what_reaches_a_layer_is_what_the_one_before_gives():
    data = small_graph()
    model = PHGCN(5, 4, 3, heads=2).eval()
    assert torch.equal(layer_input(model, 0, data.x, data.edge_index), data.x)
    hidden = layer_input(model, 1, data.x, data.edge_index)
    with torch.no_grad():
        assert torch.equal(model.convs[1](hidden, data.edge_index), model(data.x, data.edge_index))


# What the figures show


def test_every_node_is_drawn_at_its_position_in_the_colour_of_its_class():
    positions, y = torch.arange(12.0).reshape(3, 2, 2), torch.tensor([0, 1, -1])
    figure = draw_embeddings(positions, y, ["a", "b"], "title")
    assert len(figure.axes) == 2
    expected = [to_rgba(colour, 0.8) for colour in (*COLOURS[:2], UNLABELLED_COLOUR)]
    for head, axis in enumerate(figure.axes):
        (dots,) = axis.collections
        drawn = {
            tuple(xy): tuple(colour) for xy, colour in zip(dots.get_offsets().tolist(), dots.get_facecolors(), strict=True)
        }
        assert drawn == {tuple(xy): colour for xy, colour in zip(positions[:, head].tolist(), expected, strict=True)}


def test_attention_is_drawn_as_bars_with_neighbours_in_bold():
    heads = [[(2, 0.5), (0, 0.25)], [(1, 1.0)]]
    figure = draw_attention(heads, torch.tensor([0, 1, -1]), ["p", "q", "r"], ["a", "b"], {0}, "title")
    first, second = figure.axes
    assert [bar.get_width() for bar in first.patches] == [0.5, 0.25]
    assert [bar.get_facecolor() for bar in first.patches] == [to_rgba(UNLABELLED_COLOUR), to_rgba(COLOURS[0])]
    assert [(t.get_text(), t.get_fontweight()) for t in first.get_yticklabels()] == [("r", "normal"), ("p", "bold")]
    assert (first.get_title(), second.get_title()) == ("head 0: 75 % of all attention", "head 1: 100 % of all attention")


def test_distances_are_drawn_as_their_mean_by_hops():
    # Nodes 0 - 1 - 2 in a chain, at 0, 1 and 4: distances of 1 and 3 over one edge, of 4 over two.
    figure = draw_distances(torch.tensor([0.0, 1.0, 4.0]).reshape(3, 1, 1), torch.tensor([[0, 1], [1, 2]]), "title")
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [1, 2] and line.get_ydata().tolist() == [2, 4]


def test_curves_are_those_of_the_files(made):
    run, _ = made("gcn", heads=1)
    curves = read_curves(run)
    assert list(curves) == ["split-00", "split-01"] and curves["split-00"]["epoch"] == [1, 2, 3]
    losses, metric = draw_curves(run).axes
    drawn = [line.get_ydata() for line in losses.lines]
    assert all(
        any(np.array_equal(curve[key], y) for y in drawn) for curve in curves.values() for key in ("train_loss", "val_loss")
    )
    assert any(np.array_equal(curves["split-01"]["val_metric"], line.get_ydata()) for line in metric.lines)


@pytest.mark.parametrize(
    "content", ["", "epoch,train_loss,val_loss,val_metric\n", "epoch,train_loss\n1,2\n", "a\x00b\n", "epoch\n1\n"]
)
def test_a_damaged_file_of_curves_is_named(content, made, tmp_path):
    run, _ = made("gcn", heads=1)
    (run.folder / "split-01.csv").write_text(content)
    with pytest.raises(ValueError, match=r"split-01.csv: empty or damaged; allowed: the columns epoch, train_loss"):
        draw_curves(run)

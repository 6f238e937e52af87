import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from run_folders import new_run
from small_graphs import small_graph
from torch_geometric.data import Data

from phgcn.nn import PHGCN, GlobalGNN
from phgcn.nn.graph_input import record_calls
from phgcn.report.attention import Strongest, draw_attention, strongest_neighbours
from phgcn.report.curves import draw_curves, read_curves
from phgcn.report.embeddings import CELLS, MAX_DOTS, draw_distances, draw_embeddings, hops, plane
from phgcn.report.layers import LayerView, view_layers
from phgcn.report.plot import plot
from phgcn.report.predictions import draw_predictions
from phgcn.report.style import (
    COLOURS,
    SEVERAL_COLOUR,
    UNLABELLED_COLOUR,
    colour_nodes,
    headline,
    label,
    panels,
    save,
)

plotting = sys.modules[plot.__module__]
to_rgba = pytest.importorskip("matplotlib.colors").to_rgba


@pytest.fixture
def made(tmp_path):
    def make(model, **settings):
        data = small_graph()
        run = new_run(tmp_path / model, data, model, {"epochs": 3, **settings}, splits=2)
        run.train(data)
        return run, data

    return make


@pytest.mark.parametrize(("dim", "kind"), [(1, "png"), (2, "svg"), (3, "pdf")])
def test_a_run_is_drawn_whatever_its_embedding(dim, kind, made, tmp_path):
    run, data = made("phgcn", heads=3, embedding_dim=dim)
    files = plot(run, lambda: data, tmp_path / "plots", kind=kind, layer=1, node="n3")
    assert sorted((tmp_path / "plots").iterdir()) == sorted(files)
    assert len(files) == 6
    assert all(path.suffix == f".{kind}" and path.stat().st_size > 2000 for path in files)


@pytest.mark.parametrize("place", ["top", "each"])
def test_global_blocks_are_drawn_with_their_gates(place, made, tmp_path):
    run, data = made("global-gnn", heads=2, global_layers=1, global_at=place, select="metric")
    files = plot(run, lambda: data, tmp_path / "plots", layer=0, node="n3")
    drawn = "curves confusion embeddings distances attention-global"
    assert [path.stem for path in files] == drawn.split()
    assert all(path.stat().st_size > 5000 for path in files)
    figure = draw_curves(run)
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert labels[:2] == ["loss", "validation accuracy"]
    assert labels[2:] == ["gate (root mean square)", "nodes attended to, of 60"]
    assert len(figure.axes[2].lines) == 2 * (2 if place == "each" else 1)
    assert len(figure.axes[3].lines) == 2 * len(figure.axes[2].lines)
    figure.canvas.draw()
    for axis in figure.axes:  # one sample at epoch 1 stands where epoch 1 is
        shown = [tick.get_text() for tick in axis.get_xticklabels()]
        assert axis.get_xlim() == (0, 4) and set(shown) <= set("01234")
    counts = [tick.get_text() for tick in figure.axes[3].get_yticklabels(which="both")]
    low, high = figure.axes[3].get_ylim()
    assert sum(low <= float(text) <= high for text in counts if text) >= 2
    with pytest.raises(ValueError, match="layer is 5; allowed: 0 to"):
        plot(run, lambda: data, tmp_path / "wrong", layer=5)


def test_structural_attention_alone_has_no_global_picture(made, tmp_path):
    run, data = made("gat-eda", heads=1)
    assert len(plot(run, lambda: data, tmp_path / "plots")) == 5


def test_models_without_embedding_get_curves_and_predictions(made, tmp_path):
    run, data = made("gcn", heads=1)
    files = plot(run, lambda: data, tmp_path / "plots")
    assert [path.name for path in files] == ["curves.png", "confusion.png"]


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
    assert not (tmp_path / "plots").exists(), "refused before anything is drawn"


def test_the_plane_keeps_most_of_the_variance():
    random = np.random.default_rng(0)
    points = random.normal(size=(200, 5)) * [9, 0.1, 5, 0.1, 0.1]
    flat, share = plane(points)
    assert flat.shape == (200, 2) and share > 0.99
    widest = np.abs(points[:, 0] - points[:, 0].mean())
    np.testing.assert_allclose(np.abs(flat[:, 0]), widest, atol=0.5)
    assert np.array_equal(plane(points[:, :2])[0], points[:, :2])


def test_hops_are_counted_along_edges():
    chain = torch.tensor([[0, 1, 2], [1, 2, 3]])
    steps = hops(chain, 5, np.array([0, 3]))
    assert steps[0, :4].tolist() == [0, 1, 2, 3] and np.isinf(steps[0, 4])
    assert steps[1, :4].tolist() == [3, 2, 1, 0]


def test_attention_to_neighbours_is_read_per_head_strongest_first():
    edges = torch.tensor([[0, 1, 2, 0], [2, 2, 2, 1]])
    weights = torch.tensor([[0.2, 0.6], [0.5, 0.1], [0.3, 0.3], [1.0, 1.0]])
    found = strongest_neighbours(LayerView("layer-0", None, edges, weights, None), 2)
    assert found.targets.tolist() == [[1, 2, 0], [0, 2, 1]]
    torch.testing.assert_close(found.weights, torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]))


def test_a_layer_is_seen_as_the_model_calls_it():
    data = small_graph()
    model = PHGCN(5, 4, 3, heads=2).train()
    first, second = view_layers(model, (data.x, data.edge_index))
    assert model.training and (first.name, second.name) == ("layer-0", "layer-1")
    with torch.no_grad():
        assert torch.equal(first.positions, model.convs[0].project(data.x)[0])
        model.eval()
        hidden = record_calls([model.convs[1]], model, (data.x, data.edge_index))[model.convs[1]][
            0
        ][0]
        assert torch.equal(second.positions, model.convs[1].project(hidden)[0])
        _, (edges, weights) = model.convs[1](hidden, data.edge_index, return_attention_weights=True)
    assert torch.equal(second.edges, edges) and torch.equal(second.weights, weights)
    assert float(second.decay) == 10.0


@pytest.mark.parametrize("local", ["gat", "eda", "gcn"])
def test_local_and_global_layers_of_a_global_gnn_are_seen(local):
    data = small_graph()
    model = GlobalGNN(5, 8, 3, num_layers=2, local=local, global_layers=1, heads=2)
    views = view_layers(model, (data.x, data.edge_index))
    names = ["global-0"] if local == "gcn" else ["local-0", "local-1", "global-0"]
    assert [view.name for view in views] == names
    assert views[-1].positions.shape == (60, 2, 4) and views[-1].edges is None
    for view in views[:-1]:
        sums = torch.zeros(60, 2).index_add_(0, view.edges[1], view.weights)
        torch.testing.assert_close(sums, torch.ones(60, 2))
        assert (view.positions is None) == (local == "gat") and view.decay is None
    model.set_global(False)
    assert [view.name for view in view_layers(model, (data.x, data.edge_index))] == names[:-1]


# What the figures show


def test_every_node_is_drawn_at_its_position_in_the_colour_of_its_class():
    positions, y = torch.arange(12.0).reshape(3, 2, 2), torch.tensor([0, 1, -1])
    figure = draw_embeddings(positions, y, ["a", "b"], "title")
    assert len(figure.axes) == 2
    expected = [to_rgba(colour, 0.8) for colour in (*COLOURS[:2], UNLABELLED_COLOUR)]
    for head, axis in enumerate(figure.axes):
        (dots,) = axis.collections
        places, colours = map(tuple, dots.get_offsets().tolist()), map(tuple, dots.get_facecolors())
        wanted = map(tuple, positions[:, head].tolist())
        assert dict(zip(places, colours, strict=True)) == dict(zip(wanted, expected, strict=True))


def test_axes_have_one_scale_and_nodes_without_a_label_are_in_the_legend():
    y = torch.tensor([0, 1, -1, 0, 1])
    figure = draw_embeddings(torch.randn(5, 1, 3), y, ["a", "b"], "title")
    assert figure.axes[0].get_aspect() == 1.0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "unlabelled"]
    figure = draw_embeddings(torch.randn(5, 1, 1), y.clamp(min=0), ["a", "b"], "title")
    assert figure.axes[0].get_aspect() == "auto", "heights mean nothing in one dimension"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_many_nodes_are_drawn_as_a_density():
    count = MAX_DOTS + 1
    positions, y = torch.zeros(count, 1, 2), torch.zeros(count, dtype=torch.int64)
    positions[-1], y[-1] = 1.0, 1
    axis = draw_embeddings(positions, y, ["a", "b"], "title").axes[0]
    (image,) = axis.images
    cells = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    assert right - left == top - bottom and axis.get_aspect() == 1.0, "cells are square"
    assert not axis.collections and f"density of {count:,} nodes" in axis.get_title()
    assert cells.shape == (CELLS, CELLS, 4) and (cells[..., 3] > 0).sum() == 2
    assert tuple(cells[0, 0]) == pytest.approx(to_rgba(COLOURS[0])) and cells[-1, -1, 3] < 0.1
    assert tuple(cells[-1, -1, :3]) == pytest.approx(to_rgba(COLOURS[1])[:3])


def test_numbers_and_several_labels_have_their_colours():
    nodes, legend = colour_nodes(torch.tensor([3.0, 1.0, float("nan"), 2.0, 5.0, 4.0]), [])
    assert nodes[2] == UNLABELLED_COLOUR and len(set(nodes)) == 6
    assert [name for name, _ in legend] == ["1", "2", "3", "4", "5", "unlabelled"]
    assert dict(legend)["3"] == nodes[0] and dict(legend)["1"] == nodes[1]
    assert colour_nodes(torch.tensor([131_000.0]), []).legend[0][0] == "131,000"
    nodes, legend = colour_nodes(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), ["a", "b"])
    assert nodes == [COLOURS[0], SEVERAL_COLOUR, UNLABELLED_COLOUR]
    assert [name for name, _ in legend] == ["a", "b", "several labels"]


def named_nodes(ids, labels):
    """A ring of nodes of two classes."""
    count = len(ids)
    ring = torch.arange(count), (torch.arange(count) + 1) % count
    rest = {"node_id": ids, "classes": ["a", "b"], "y": torch.tensor(labels)}
    return Data(edge_index=torch.stack(ring), num_nodes=count, **rest)


def test_attention_is_drawn_as_bars_with_neighbours_in_bold_and_its_own_weight_apart():
    targets, weights = torch.tensor([[1, 2, 0], [1, -1, -1]]), torch.eye(3)[[0, 0]]
    weights[0] = torch.tensor([0.9, 0.05, 0.02])
    found, data = Strongest(targets, weights), named_nodes(["p", "q", "r"], [0, 1, -1])
    figure = draw_attention(found, 1, data, "title")
    first, second = figure.axes
    widths = [bar.get_width() for bar in first.patches]
    assert widths == pytest.approx([0.05, 0.02]) and not second.patches
    colours = [to_rgba(UNLABELLED_COLOUR), to_rgba(COLOURS[0])]
    assert [bar.get_facecolor() for bar in first.patches] == colours
    labels = [(text.get_text(), text.get_fontweight()) for text in first.get_yticklabels()]
    assert labels == [("r", "normal"), ("p", "bold")]
    assert first.get_title() == "head 0: itself 90 %, these 7 %"
    assert second.get_title() == "head 1: itself 100 %, these 0 %"


def test_a_confusion_matrix_shows_counts():
    predicted, y = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
    name, figure = draw_predictions("classification", predicted, y, ["a", "b"], "title")
    (axis,) = figure.axes
    assert name == "confusion" and [text.get_text() for text in axis.texts] == ["1", "1", "0", "1"]
    assert axis.images[0].get_array().tolist() == [[0.5, 0.5], [0.0, 1.0]]
    many, names = torch.arange(30), [f"c{k}" for k in range(30)]
    _, figure = draw_predictions("classification", many, many, names, "title")
    assert not figure.axes[0].texts
    shown = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert shown == names and figure.axes[0].get_xticklabels()[0].get_rotation() == 90


def outside(figure):
    """The texts of a figure that are cut at its sides."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, renderer = figure.bbox.width, canvas.get_renderer()
    texts = [text for axis in figure.axes for text in axis.get_yticklabels()[1:-1]]
    texts += figure.legends[0].get_texts()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    return [name for name, box in boxes if box.x0 < 0 or box.x1 > width]


@pytest.mark.parametrize("heads", [1, 4])
def test_long_names_and_ids_are_inside_the_picture(heads):
    names = [f"a class of long names number {k}" for k in range(30)]
    drawn = draw_embeddings(torch.randn(30, heads, 2), torch.arange(30), names, "title")
    assert not outside(drawn)
    data = small_graph()
    data.node_id = [f"{k}-{'n' * 25}" for k in range(data.num_nodes)]
    targets, weights = torch.arange(11).expand(heads, 11), torch.full((heads, 11), 0.09)
    figure = draw_attention(Strongest(targets, weights), 0, data, "title")
    shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert all(len(name) == 14 and name.endswith("…") for name in shown) and not outside(figure)


def test_a_table_without_edges_has_no_neighbours_and_the_paper_model_no_gates(made, monkeypatch):
    run, data = made("phgcn", heads=1)
    labels = [axis.get_ylabel() for axis in draw_curves(run).axes]
    assert labels[2:] == ["nodes attended to, of 60"]
    titles = []
    monkeypatch.setattr(plotting, "draw_attention", lambda *all: titles.append(all[-1]))
    view = SimpleNamespace(edges=None, decay=1.0, strongest=lambda *_: [torch.zeros(1, 1, 1)] * 2)
    data.edge_index = torch.zeros(2, 0, dtype=torch.int64)
    plotting._draw_attention(view, 4, data, "about")
    assert titles == ["Attention to all nodes of node n4 (green): about"]


def test_numbers_and_labels_are_drawn_beside_the_truth():
    predicted, y = torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])
    name, figure = draw_predictions("regression", predicted, y, [], "title")
    assert name == "predicted"
    assert figure.axes[0].collections[0].get_offsets().tolist() == [[1.0, 1.0], [2.0, 2.5]]
    given = torch.tensor([[True, False], [True, True]])
    wanted = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    name, figure = draw_predictions("multilabel", given, wanted, ["a", "b"], "title")
    assert name == "labels"
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.5, 0.0, 1.0, 0.0]


@pytest.mark.filterwarnings("error")
def test_any_text_is_drawn_without_a_warning(tmp_path):
    # an amulet and a cuneiform sign: no font of a usual system has the second
    missing = "\U0001f9ff\U00012000"
    text = f"Ünïcödé {missing} $x^2$ a$b"
    figure, (axis,) = panels(1)
    axis.set_yticks([0], [label(text)])
    headline(figure, text)
    assert label("Ünï") == "Ünï" and label("\U00012000") == "?" and label("a$b") == r"a\$b"
    assert save(figure, tmp_path / "text.png").stat().st_size > 2000


def test_distances_are_drawn_as_their_mean_by_hops():
    # Nodes 0 - 1 - 2 in a chain, at 0, 1 and 4: distances of 1 and 3 over one edge, of 4 over two.
    positions = torch.tensor([0.0, 1.0, 4.0]).reshape(3, 1, 1)
    figure = draw_distances(positions, torch.tensor([[0, 1], [1, 2]]), "title")
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [1, 2] and line.get_ydata().tolist() == [2, 4]


def test_curves_are_those_of_the_files(made):
    run, _ = made("gcn", heads=1)
    curves = read_curves(run)
    assert list(curves) == ["split-00", "split-01"] and curves["split-00"]["epoch"] == [1, 2, 3]
    losses, metric = draw_curves(run).axes
    drawn = [list(line.get_ydata()) for line in losses.lines]
    for curve in curves.values():
        assert curve["train_loss"] in drawn and curve["val_loss"] in drawn
    assert curves["split-01"]["val_metric"] in [list(line.get_ydata()) for line in metric.lines]
    assert all(tick == int(tick) for tick in losses.get_xticks())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "epoch,train_loss,val_loss,val_metric\n",
        "epoch,train_loss\n1,2\n",
        "a\x00b\n",
        "epoch\n1\n",
    ],
)
def test_a_damaged_file_of_curves_is_named(content, made, tmp_path):
    run, _ = made("gcn", heads=1)
    (run.folder / "split-01.csv").write_text(content)
    said = r"split-01.csv: empty or damaged; allowed: the columns epoch, train_loss"
    with pytest.raises(ValueError, match=said):
        draw_curves(run)


@pytest.mark.parametrize(("metric", "best"), [("rmse", 2), ("mae", 2), ("r2", 3)])
def test_the_dot_of_a_curve_is_at_the_best_epoch_whichever_way_a_metric_is_better(
    metric, best, made, tmp_path
):
    data = small_graph()
    data.y = data.x[:, 0].clone()
    options = {"splits": 1, "metric": metric, "task": "regression"}
    run = new_run(tmp_path / "run", data, "mlp", {"select": "metric"}, **options)
    run.train(data)
    rows = ["epoch,train_loss,val_loss,val_metric", "1,9,3,5", "2,8,2,1", "3,7,1,7"]
    (run.folder / "split-00.csv").write_text("\n".join(rows))
    _, right = draw_curves(run).axes
    (dot,) = (line for line in right.lines if line.get_marker() == "o")
    assert list(dot.get_xdata()) == [best]


def test_a_graph_without_edges_is_said_to_have_none():
    figures = {
        "there are no distances in the graph": draw_distances(
            torch.randn(5, 4, 2), torch.empty(2, 0, dtype=torch.int64), "title"
        ),
        "node q attends to itself only": draw_attention(
            Strongest(torch.ones(8, 1, dtype=torch.int64), torch.ones(8, 1)),
            1,
            named_nodes(["p", "q"], [0, 1]),
            "title",
        ),
    }
    for said, figure in figures.items():
        (axis,) = figure.axes
        assert [text.get_text() for text in axis.texts] == [f"no edges: {said}"]


def test_many_nodes_and_unlabelled_ones_are_coloured_by_what_is_predicted_of_them(
    made, tmp_path, monkeypatch
):
    run, data = made("phgcn", heads=1)
    seen = []
    real = plotting.draw_embeddings
    note = lambda *all: seen.append((all[1], all[3])) or real(*all)  # noqa: E731
    monkeypatch.setattr(plotting, "draw_embeddings", note)
    for most, labelled, by in ((60, 60, "label"), (59, 60, "prediction"), (60, 59, "prediction")):
        monkeypatch.setattr(plotting, "MAX_DOTS", most)
        data.y[labelled:] = -1
        plotting.plot(run, lambda: data, tmp_path / "plots", split=0)
        shown, title = seen.pop()
        assert title.startswith(f"Embeddings, coloured by {by}: phgcn on small")
        assert bool((shown >= 0).all()) and (by == "prediction" or torch.equal(shown, data.y))


@pytest.mark.parametrize(
    ("dim", "names"),
    [
        (1, ("dimension 1", "at random")),
        (2, ("dimension 1", "dimension 2")),
        (4, ("principal axis 1", "principal axis 2")),
    ],
)
def test_axes_are_named_and_their_numbers_do_not_overlap(dim, names, tmp_path):
    positions, y = torch.randn(50, 4, dim) * 0.003, torch.zeros(50, dtype=torch.int64)
    figure = draw_embeddings(positions, y, ["a"], "title")
    save(figure, tmp_path / "embeddings.png")
    for axis in figure.axes:
        assert (axis.get_xlabel(), axis.get_ylabel()) == names
        refuse_overlaps(figure, axis)
    weights = (0.0003 + 1e-6 * torch.arange(8)).expand(4, 8)
    data = named_nodes([f"n{k}" for k in range(8)], [0] * 8)
    figure = draw_attention(Strongest(torch.arange(8).expand(4, 8), weights), 0, data, "title")
    save(figure, tmp_path / "attention.png")
    for axis in figure.axes:
        assert axis.get_xlabel() == "share of the node's attention"
        assert "%" in axis.get_xticklabels()[0].get_text()
        refuse_overlaps(figure, axis)


def refuse_overlaps(figure, axis):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    low, high = sorted(axis.get_xlim())
    labels = [text for text in axis.get_xticklabels() if low <= text.get_position()[0] <= high]
    boxes = sorted(text.get_window_extent(renderer).extents.tolist() for text in labels)
    assert all(left[2] <= right[0] for left, right in pairwise(boxes)), labels


def test_the_node_whose_attention_is_drawn_has_its_class_in_the_title(made, tmp_path, monkeypatch):
    run, data = made("phgcn", heads=1)
    titles = []
    real = plotting.draw_attention
    note = lambda *all: titles.append(all[-1]) or real(*all)  # noqa: E731
    monkeypatch.setattr(plotting, "draw_attention", note)
    plotting.plot(run, lambda: data, tmp_path / "plots", node="n4")
    data.y[4] = -1
    plotting.plot(run, lambda: data, tmp_path / "more", node="n4")
    said = [title.split(":")[0] for title in titles if "all nodes" in title]
    about = "Attention to all nodes (neighbours in bold) of node n4"
    assert said == [f"{about} (green)", f"{about} (unlabelled)"]

import numpy as np
import pytest
import torch
from commands import call, code_of
from contents import model
from run_folders import new_run
from small_graphs import small_graph, write_tables

from phgcn.explore import explore_runs, gather_graph, gather_views
from phgcn.explore.gather import MAX_COLUMNS, prediction_columns
from phgcn.explore.runs import gather_side
from phgcn.nn import GAT, MLP, PHGCN, GlobalGNN
from phgcn.report.layers import view_layers
from phgcn.train import Plan, Run, Settings, find


def test_neighbours_are_those_with_an_edge_to_the_node():
    data = small_graph()
    data.edge_index = torch.tensor([[5, 3, 3, 9], [1, 1, 0, 1]])
    ids, starts, sources, columns = gather_graph(data)
    assert ids[:2] == ["n0", "n1"]
    assert starts[:4].tolist() == [0, 1, 4, 4]
    assert sources.tolist() == [3, 5, 3, 9]
    by_name = {column.name: column for column in columns}
    assert by_name["class"].categories == ["blue", "green", "red"]
    assert by_name["degree"].values[:3].tolist() == [1, 3, 0]
    assert by_name["feature 4"].values == pytest.approx(data.x[:, 4].numpy())


def test_of_a_wide_table_the_first_columns_are_taken_and_of_sparse_features_none():
    data = small_graph(features=MAX_COLUMNS + 3)
    names = [column.name for column in gather_graph(data).columns]
    assert sum(name.startswith("feature") for name in names) == MAX_COLUMNS
    data.x = data.x.to_sparse_csr()
    assert [column.name for column in gather_graph(data).columns] == ["class", "degree"]


def views_of(network, data, **edge_values):
    network.eval()
    with torch.no_grad():
        output = network(data.x, data.edge_index, **edge_values)
    return gather_views(network, (data.x, data.edge_index), output, edge_values)


@pytest.mark.parametrize("place", ["top", "each"])
def test_views_are_the_embeddings_that_attention_uses(place):
    data = small_graph()
    network = GlobalGNN(5, 8, 3, local="eda", global_layers=1, global_at=place, heads=2, decay=3.0)
    views = views_of(network, data)
    blocks = len(network.global_blocks)
    names = [*(f"global {number}" for number in range(blocks)), "local 0", "local 1", "output"]
    assert [view.name for view in views] == names
    shown = {view.name: view for view in view_layers(network, (data.x, data.edge_index))}
    for view in views[:blocks]:
        assert view.positions == pytest.approx(shown[view.name.replace(" ", "-")].positions.numpy())
        assert view.decay_global == pytest.approx([3.0, 3.0]) and view.decay_local is None
    assert views[-2].decay_local == [1.0, 1.0]
    assert views[-2].decay_global is None
    assert views[-2].edge_attention is None
    assert views[-1].positions.shape == (60, 1, 3)


def by_edge(attention):
    targets = np.repeat(np.arange(len(attention.starts) - 1), np.diff(attention.starts))
    pairs = zip(attention.sources, targets, strict=True)
    return dict(zip(pairs, attention.weights, strict=True))


def test_labelled_nodes_are_said_to_decide():
    data = small_graph()
    network = GlobalGNN(5, 8, 3, labels=True, heads=2)
    labelled = torch.arange(data.num_nodes) < 40
    network.label_path.attentions[0].keep_keys(torch.randn(60, 8), data.y, labelled)
    views = views_of(network, data, y=data.y, labelled=labelled)
    (view,) = [view for view in views if view.far_attention]
    assert view.note.startswith("These labelled nodes decided it: ") and len(view.note) < 300


def test_attention_that_is_not_by_distance_is_stored_by_edge():
    data = small_graph()
    network = GAT(5, 4, 3, heads=2)
    first, second, _ = views_of(network, data)
    shown = view_layers(network, (data.x, data.edge_index))
    for view, layer in zip((first, second), shown, strict=True):
        stored = by_edge(view.edge_attention)
        assert len(stored) == layer.edges.size(1)
        assert view.decay_local is None
        assert "no embedding" in view.note
        for (source, target), row in zip(layer.edges.T.tolist(), layer.weights, strict=True):
            assert stored[source, target] == pytest.approx(row.numpy(), abs=1e-5)
    assert first.positions.shape == (60, 2, 3), "at the model's output"


def test_weights_of_edges_change_attention_to_neighbours():
    data = small_graph()
    network = PHGCN(5, 4, 3, heads=2)
    assert views_of(network, data)[0].decay_local == [1.0, 1.0]
    weighted = views_of(network, data, edge_weight=torch.rand(data.edge_index.size(1)) + 0.1)[0]
    assert weighted.decay_local is None
    assert weighted.edge_attention.weights.shape == (data.edge_index.size(1) + 60, 2)


def test_a_model_without_attention_has_its_output_alone():
    data = small_graph()
    network = MLP(5, 4, 3)
    assert [view.name for view in views_of(network, data)] == ["output"]


def test_numbers_and_several_labels_are_columns():
    data = small_graph(nodes=4)
    data.y = torch.tensor([1.5, 2.5, torch.nan, 0.0])
    columns = {column.name: column.values.tolist() for column in gather_graph(data).columns}
    assert columns["label"][:2] == [1.5, 2.5]
    assert np.isnan(columns["label"][2])
    assert "class" not in columns
    found = prediction_columns(torch.tensor([1.0, 4.5, 1.0, 0.0]), None, data.y, [])
    said = {column.name: column.values.tolist() for column in found}
    assert said["prediction"] == [1.0, 4.5, 1.0, 0.0]
    assert said["error"][:2] == [0.5, 2.0]
    assert np.isnan(said["error"][2])
    data.y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [torch.nan, torch.nan], [1.0, 1.0]])
    data.classes = ["a", "b"]
    columns = {column.name: column.values.tolist() for column in gather_graph(data).columns}
    assert columns["label a"] == [1, 0, -1, 1] and columns["label b"] == [0, 1, -1, 1]
    (first, second) = prediction_columns(data.y.nan_to_num().bool(), data.y, data.y, ["a", "b"])
    assert (first.name, first.values.tolist()) == ("predicted a", [1, 0, 0, 1])
    assert second.categories == ["no", "yes"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A graph, and short runs of three models on it."""
    folder = tmp_path_factory.mktemp("runs")
    source, data = find(str(write_tables(small_graph(), folder / "small")))
    made = {}
    for name, more in (("phgcn", {}), ("global-gnn", {"global_layers": 1}), ("gcn", {})):
        settings = Settings(hidden_channels=4, heads=2, epochs=2, **more)
        plan = Plan(source, model=name, splits=2, settings=settings)
        made[name] = Run.create(folder / name, plan, data)
        made[name].train(data)
    return made


def test_the_command_writes_the_page_of_every_model(runs, tmp_path, capsys):
    pytest.importorskip("plotly")
    folder = runs["phgcn"].folder
    call("explore", folder)
    said = capsys.readouterr().out
    assert "phgcn, split-0" in said
    assert f"written to {folder / 'explore.html'}: open it in a browser" in said
    assert (folder / "explore.html").read_bytes().startswith(b"<!doctype html>")
    out = tmp_path / "both.html"
    call("explore", folder, runs["gcn"].folder, "--json -o", out)
    result = capsys.readouterr().out
    assert '"phgcn, split-0' in result and '"gcn, split-0' in result and out.stat().st_size < 3e6
    assert code_of("explore", folder, "-o - --json") == 2
    assert "allowed: one of them" in capsys.readouterr().err
    result = explore_runs([runs["global-gnn"]], out, [0, 1])
    assert result["sides"] == ["global-gnn, split-00", "global-gnn, split-01"]
    assert result["bytes"] == out.stat().st_size


def test_the_page_of_numbers_that_are_predicted(tmp_path):
    pytest.importorskip("plotly")
    data = small_graph()
    data.y = data.x[:, 0].clone()
    options = {"splits": 1, "task": "regression", "metric": "mae"}
    run = new_run(tmp_path / "run", data, "global-gnn", {}, **options)
    run.train(data)
    side = gather_side(run, run.plan.trials()[0], data)
    assert [column.name for column in side.columns] == ["prediction", "error", "split"]
    assert side.columns[0].categories is None
    assert "test mae" in side.facts and np.isfinite(side.columns[1].values).all()


def test_what_cannot_be_shown_side_by_side_is_refused(runs, tmp_path, capsys):
    phgcn, gcn = runs["phgcn"].folder, runs["gcn"].folder
    other = Run.create(tmp_path / "other", runs["gcn"].plan, small_graph(seed=5))
    for arguments, said in (
        (f"{phgcn} {gcn} --split 0", "1 splits are given; allowed: none, one for one run, or two"),
        (f"{phgcn} --split 2", "split is 2; allowed: 0 to 1"),
        (f"{phgcn} {other.folder}", "are of different graphs; allowed: two runs of one graph"),
        (tmp_path, "no run here"),
    ):
        assert code_of("explore", arguments) == 2
        assert said in capsys.readouterr().err


def test_training_ends_by_saying_the_command(runs, capsys, tmp_path):
    from phgcn.cli.display import show_result

    run = runs["gcn"]
    show_result(run.result(), tmp_path / "my run", as_json=False)
    assert f"in a browser: phgcn explore '{tmp_path / 'my run'}'" in capsys.readouterr().out


def test_a_block_that_the_best_epoch_did_without_is_shown_and_said_to_be():
    data, network = small_graph(), model("global-gnn")
    with torch.no_grad():
        output = network(data.x, data.edge_index)
    view = gather_views(network, (data.x, data.edge_index), output, used=False)[0]
    assert "the predictions do without this block" in view.note


def test_columns_of_categories_are_folded():
    data = small_graph()
    data.x = torch.cat([data.x[:, :1], torch.eye(3)[data.y]], dim=1)
    data.x[5, 1:] = 0
    data.feature_names = ["age", "city=Bern", "city=Oslo", "city=Rome"]
    data.feature_levels = {"city": ["Bern", "Oslo", "Rome"]}
    columns = {column.name: column for column in gather_graph(data).columns}
    assert set(columns) == {"class", "degree", "age", "city"}
    assert columns["city"].categories == ["Bern", "Oslo", "Rome"]
    wanted = data.y.clone()
    wanted[5] = -1
    assert columns["city"].values.tolist() == wanted.tolist()

r"""Tables as people have them: other column names and delimiters, categories, gaps, splits,
weights, and any kind of label."""

import math

import numpy as np
import pyarrow
import pytest
import torch
from graph_files import EDGE_ROWS, NODE_ROWS, write_csv, write_folder
from pyarrow import parquet

from phgcn.data import Columns, GraphFileError, describe_graph, load_graph, public_masks, save_graph
from phgcn.data.summary import is_uneven

EDGES = [["source", "target"], ["a", "b"], ["b", "c"]]


def graph(tmp_path, nodes, edges=EDGES, **options):
    return load_graph(write_folder(tmp_path / "own", edges, nodes), **options)


def labelled(tmp_path, labels, **options):
    """A graph of nodes with these labels."""
    ids = [f"n{number}" for number in range(len(labels))]
    rows = [[name, label, "1"] for name, label in zip(ids, labels, strict=True)]
    return graph(tmp_path, [["id", "label", "f"], *rows], EDGES[:1], **options)


# Columns


def test_columns_have_the_names_that_are_given(tmp_path):
    edges = [["from", "to", "since"], ["a", "b", "1"], ["b", "7", "2"]]
    rows = [["x", "1", row[1], row[0], row[2]] for row in NODE_ROWS[1:]]
    nodes = [["remark", "age", "kind", "who", "size"], *rows]
    ends = {"source": "from", "target": "to"}
    columns = Columns("who", "kind", ["size", "age"], **ends, edge_features=["since"])
    data = graph(tmp_path, nodes, edges, columns=columns)
    assert data.node_id == ["a", "b", "7", "x y"] and data.classes == ["ant", "cat", "dog"]
    assert data.feature_names == ["size", "age"]
    assert data.x.tolist() == [[1, 1], [-20, 1], [3, 1], [0, 1]]
    assert data.edge_attr.T.tolist() == [[1, 1, 2, 2]]
    assert data.notes == ["columns left out: remark"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns(id="name"), "nodes.csv, row 1, column name: column 'name' is missing; found: id"),
        (Columns(label="kind"), "column 'kind' is missing"),
        (Columns(features=["height", "age", "city"]), "columns 'age', 'city' are missing"),
        (Columns(split=["part"]), "column 'part' is missing"),
        (Columns(categorical=["colour"]), "column 'colour' is no feature; allowed: height, w"),
        (Columns(source="from"), "edges.csv, row 1, column from: column 'from' is missing"),
        (Columns(edge_features=["since"]), "edges.csv, row 1, column since: column 'since' is"),
        (Columns(edge_weight="since"), "edges.csv, row 1, column since: column 'since' is missing"),
    ],
)
def test_a_column_that_is_not_there_is_named(columns, said, tmp_path):
    with pytest.raises(GraphFileError, match=said):
        load_graph(write_folder(tmp_path / "own"), columns=columns)


def test_a_single_name_instead_of_a_list_is_refused():
    with pytest.raises(ValueError, match="features is 'age'; allowed: a list of names"):
        Columns(features="age")


def test_labels_need_not_be_there_where_none_are_wanted(tmp_path):
    nodes = [[row[0], *row[2:]] for row in NODE_ROWS]
    data = graph(tmp_path, nodes, EDGE_ROWS, columns=Columns(label=None))
    assert data.y.tolist() == [-1] * 4 and data.feature_names == ["height", "weight"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_found(delimiter, tmp_path):
    own = write_folder(tmp_path / "own")
    for name, rows in (("edges", EDGE_ROWS), ("nodes", NODE_ROWS)):
        (own / f"{name}.csv").write_text("\n".join(delimiter.join(row) for row in rows))
    data = load_graph(own)
    assert data.x.tolist() == [[1, 0.5], [-20, 0], [3, 4], [0, 1]] and data.edge_index.size(1) == 6


def test_decimal_commas_are_read_where_semicolons_delimit(tmp_path):
    own = write_folder(tmp_path / "own", EDGES)
    (own / "nodes.csv").write_text("id;label;size\na;1,5;0,25\nb;-2,5;3\nc;;1,0\n")
    data = load_graph(own)
    assert data.x.flatten().tolist() == [0.25, 3, 1]
    assert data.y[:2].tolist() == [1.5, -2.5]
    assert data.y[2].isnan()


# Categories and gaps


NODES = [
    ["id", "label", "age", "city", "member"],
    ["a", "x", "10", "Rome", "true"],
    ["b", "y", "", "Oslo", "false"],
    ["c", "x", "30", "", "true"],
    ["d", "y", "NaN", "Rome", "true"],
]


def test_categories_become_columns_of_0_and_1_and_gaps_are_kept(tmp_path):
    data = graph(tmp_path, NODES)
    assert data.feature_names == ["age", "city=Oslo", "city=Rome", "member=false", "member=true"]
    assert data.feature_columns == ["age", "city", "member"]
    assert data.feature_levels == {"city": ["Oslo", "Rome"], "member": ["false", "true"]}
    assert data.x[:, 0].nan_to_num(-1).tolist() == [10, -1, 30, -1]
    assert data.x[:, 1:].tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 1]]
    # two ages and a city
    assert data.summary["missing_values"] == 3 and data.summary["columns_with_gaps"] == 2


def test_gaps_survive_a_file_of_arrays_and_are_mistakes_in_others(tmp_path):
    data = graph(tmp_path, NODES)
    save_graph(data, tmp_path / "own.npz")
    again = load_graph(tmp_path / "own.npz")
    assert torch.equal(again.x.nan_to_num(-1), data.x.nan_to_num(-1))
    assert again.feature_names == data.feature_names
    arrays = dict(np.load(tmp_path / "own.npz"))
    del arrays["features_may_miss"]
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(GraphFileError, match="node_features is nan"):
        load_graph(tmp_path / "odd.npz")


def test_known_categories_are_kept_and_others_are_noted(tmp_path):
    columns = Columns(features=["city", "age"], levels={"city": ["Bern", "Rome"]})
    data = graph(tmp_path, NODES, columns=columns)
    assert data.feature_names == ["city=Bern", "city=Rome", "age"]
    assert data.x[:, :2].tolist() == [[0, 1], [0, 0], [0, 0], [0, 1]]
    note = "1 rows have a category that is not known, such as 'Oslo'; they count as none"
    assert data.notes[0] == f"city: {note}"


def test_many_categories_are_a_sparse_matrix_that_holds_the_same(tmp_path):
    towns = [f"town {number % 100}" for number in range(400)]
    rows = [[str(k), str(k % 2), town, str(k)] for k, town in enumerate(towns)]
    data = graph(tmp_path, [["id", "label", "town", "size"], *rows], EDGES[:1], sparse=True)
    assert data.x.is_sparse_csr and data.x.shape == (400, 101) and len(data.feature_names) == 101
    dense = data.x.to_dense()
    assert dense[:, :100].sum(dim=1).tolist() == [1] * 400
    assert dense[:, 100].tolist() == list(range(400))
    columns = [data.feature_names.index(f"town={town}") for town in towns]
    assert bool((dense[range(400), columns] == 1).all())


def test_texts_that_begin_after_many_gaps_are_categories(tmp_path):
    rows = [[str(k), "x", "1", ""] for k in range(5)]
    rows += [["5", "y", "2", "red"], ["6", "y", "2", "blue"]]
    data = graph(tmp_path, [["id", "label", "f", "colour"], *rows], EDGES[:1])
    assert data.x.tolist() == [[1, 0, 0]] * 5 + [[2, 0, 1], [2, 1, 0]]


def test_parquet_gives_the_same_categories_and_gaps(tmp_path):
    wanted = graph(tmp_path, NODES)
    own = tmp_path / "parquet"
    own.mkdir()
    write_csv(own / "edges.csv", EDGES)
    columns = {
        "id": ["a", "b", "c", "d"],
        "label": ["x", "y", "x", "y"],
        "age": [10.0, None, 30.0, math.nan],
        "city": pyarrow.array(["Rome", "Oslo", None, "Rome"]).dictionary_encode(),
        "member": ["true", "false", "true", "true"],
    }
    parquet.write_table(pyarrow.table(columns), own / "nodes.parquet")
    data = load_graph(own)
    assert torch.equal(data.x.nan_to_num(-1), wanted.x.nan_to_num(-1))
    assert data.feature_levels == wanted.feature_levels
    columns |= {"label": [0.5, None, 2.5, 1.0], "city": [1, 2, 1, 2]}
    parquet.write_table(pyarrow.table(columns), own / "nodes.parquet")
    data = load_graph(own, columns=Columns(categorical=["city"]))
    assert data.task == "regression" and data.y.nan_to_num(-1).tolist() == [0.5, -1, 2.5, 1]
    assert data.feature_levels["city"] == ["1", "2"]


# Splits


def test_split_columns_are_public_masks(tmp_path):
    parts = [["train", ""], ["TRAIN", "val"], ["val", "test"], ["test", "train"]]
    pairs = zip(NODE_ROWS, [["s0", "s1"], *parts], strict=True)
    nodes = [[*row, *part] for row, part in pairs]
    data = graph(tmp_path, nodes, EDGE_ROWS, columns=Columns(split=["s0", "s1"]))
    train, val, test = public_masks(data)
    assert train.T.tolist() == [[True, True, False, False], [False, False, False, True]]
    assert val.T.tolist() == [[False, False, True, False], [False, True, False, False]]
    assert test.T.tolist() == [[False, False, False, True], [False, False, True, False]]
    assert data.feature_names == ["height", "weight"]
    nodes[2][-1] = "learn"
    said = r"nodes\.csv, row 3, column 's1': the split is 'learn'; allowed: train, val, test"
    with pytest.raises(GraphFileError, match=said):
        graph(tmp_path, nodes, EDGE_ROWS, columns=Columns(split=["s0", "s1"]))


# Edges


WEIGHTED = [
    ["source", "target", "weight", "kind"],
    ["a", "b", "2", "road"],
    ["b", "a", "4", "rail"],
    ["b", "c", "1", "road"],
]


def test_weights_and_features_of_edges_are_means_of_both_directions(tmp_path):
    data = graph(tmp_path, NODES, WEIGHTED, columns=Columns(edge_features=["kind"]))
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.edge_weight.tolist() == [3, 3, 1, 1]
    assert data.edge_attr.tolist() == [[0.5, 0.5], [0.5, 0.5], [0, 1], [0, 1]]
    assert data.edge_table == {"columns": ["kind"], "levels": {"kind": ["rail", "road"]}}


def test_weights_of_directed_edges_are_those_of_the_file(tmp_path):
    data = graph(tmp_path, NODES, WEIGHTED, columns=Columns(edge_features=[]), directed=True)
    assert data.edge_weight.tolist() == [2, 4, 1] and "edge_attr" not in data


def test_weights_can_be_left_out_or_be_another_column(tmp_path):
    none = Columns(edge_weight="none", edge_features=[])
    assert "edge_weight" not in graph(tmp_path, NODES, WEIGHTED, columns=none)
    edges = [["source", "target", "metres"], ["a", "b", "2"]]
    data = graph(tmp_path, NODES, edges, columns=Columns(edge_weight="metres"))
    assert data.edge_weight.tolist() == [2, 2]


def test_edge_values_survive_a_file_of_arrays(tmp_path):
    nodes = [["id", "label", "f"], *([row[0], row[1], "1"] for row in NODES[1:])]
    data = graph(tmp_path, nodes, WEIGHTED, columns=Columns(edge_features=["kind"]))
    save_graph(data, tmp_path / "own.npz")
    again = load_graph(tmp_path / "own.npz")
    for name in ("edge_index", "edge_weight", "edge_attr", "x", "y"):
        assert torch.equal(again[name], data[name]), name
    assert again.feature_names == ["f"]


# Labels

AMOUNTS = [str(1000 + 3 * number) for number in range(60)]


@pytest.mark.parametrize(
    ("labels", "task", "reason"),
    [
        (["cat", "dog", ""], "classification", "labels are names"),
        (["1", "2", "1"], "classification", "labels are whole numbers"),
        (["1.0", "2.0", "1.0"], "classification", "labels are whole numbers"),
        (["0.5", "1.25", "", "7"], "regression", "labels are numbers with decimals"),
        (["0.5", "1", "2", "3"], "regression", "labels are numbers with decimals"),
        (["v1.5", "v2", "1.5"], "classification", "labels are names"),
        (AMOUNTS, "regression", "labels are 60 different whole numbers"),
        (["a;b", "b", ";", ""], "multilabel", "labels like 'a;b' are several of one node"),
        (["x|y", "z"], "multilabel", "labels like 'x|y' are several of one node"),
        (["", ""], "classification", "no node has a label"),
    ],
)
def test_the_task_is_what_the_labels_look_like(labels, task, reason, tmp_path):
    data = labelled(tmp_path, labels)
    assert (data.task, data.task_reason) == (task, reason)


def test_several_labels_are_a_column_each(tmp_path):
    data = labelled(tmp_path, ["a; b", "b", ";", ""])
    assert data.classes == ["a", "b"]
    assert data.y[:3].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert bool(data.y[3].isnan().all())


def test_the_task_can_be_asked_for(tmp_path):
    assert labelled(tmp_path, ["1", "2", "1"], task="regression").y.tolist() == [1, 2, 1]
    assert labelled(tmp_path, ["0.5", "1.5"], task="classification").classes == ["0.5", "1.5"]
    assert labelled(tmp_path, ["a", "b"], task="multilabel").y.tolist() == [[1, 0], [0, 1]]
    said = "task is 'ranking'; allowed: classification, regression, multilabel"
    with pytest.raises(ValueError, match=said):
        labelled(tmp_path, ["a", "b"], task="ranking")
    said = "row 3, column label: label is 'b'; allowed: a finite number"
    with pytest.raises(GraphFileError, match=said):
        labelled(tmp_path, ["1", "b"], task="regression")


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (np.array([0.5, 1.5, np.nan]), "regression"),
        (np.array([[1, 0], [0, 1], [1, 1]]), "multilabel"),
        (np.array([[True, False], [False, True], [False, False]]), "multilabel"),
        (np.array([0, 1, 0]), "classification"),
    ],
)
def test_arrays_of_labels_tell_the_task(labels, task, tmp_path):
    arrays = {"node_features": np.ones((3, 1)), "edges": np.array([[0, 1]]), "node_labels": labels}
    np.savez(tmp_path / "own.npz", **arrays)
    data = load_graph(tmp_path / "own.npz")
    assert data.task == task
    assert torch.equal(data.y.nan_to_num(-1), torch.tensor(labels).to(data.y.dtype).nan_to_num(-1))
    save_graph(data, tmp_path / "again.npz")
    again = load_graph(tmp_path / "again.npz", task=task)
    assert torch.equal(again.y.nan_to_num(-1), data.y.nan_to_num(-1))


def test_arrays_of_whole_numbers_are_amounts_where_that_is_said(tmp_path):
    arrays = {"node_features": np.ones((3, 1)), "edges": [[0, 1]], "node_labels": [3, 9, 4]}
    np.savez(tmp_path / "own.npz", **arrays, unlabelled_nodes=np.array([2]))
    data = load_graph(tmp_path / "own.npz", task="regression")
    assert data.y[:2].tolist() == [3, 9] and data.y[2].isnan()


def test_an_unknown_key_is_left_out_and_said(tmp_path):
    arrays = {"node_features": np.ones((2, 1)), "edges": [[0, 1]], "node_labels": [0, 1]}
    others = {"licence": np.array("CC0"), "pickled": np.array([{}], object)}
    np.savez(tmp_path / "own.npz", **arrays, **others)
    said = "own.npz: keys left out, as they are not known: 'licence, pickled'"
    with pytest.warns(UserWarning, match=said):
        data = load_graph(tmp_path / "own.npz")
    assert data.notes == ["own.npz: keys left out, as they are not known: 'licence, pickled'"]


def test_labels_need_not_be_in_a_file_of_arrays_where_none_are_wanted(tmp_path):
    np.savez(tmp_path / "own.npz", node_features=np.ones((2, 1)), edges=np.array([[0, 1]]))
    assert load_graph(tmp_path / "own.npz", columns=Columns(label=None)).y.tolist() == [-1, -1]
    torch.save({"x": torch.ones(2, 1), "edge_index": torch.tensor([[0], [1]])}, tmp_path / "own.pt")
    assert load_graph(tmp_path / "own.pt", columns=Columns(label=None)).y.tolist() == [-1, -1]


# Summary


def test_a_summary_tells_what_is_there_and_what_was_dropped(tmp_path):
    edges = [["source", "target"], ["a", "b"], ["b", "a"], ["a", "b"], ["c", "c"]]
    data = graph(tmp_path, NODES, edges)
    lines = describe_graph(data)
    assert lines[0] == (
        "graph own: 4 nodes, 1 edge (1 duplicate, 1 self-loop dropped), 2 isolated nodes, "
        "5 features, 3 missing values in 2 columns"
    )
    classes = "2 classes (x 2, y 2), 0 nodes without a label"
    assert lines[1] == f"task classification (labels are names): {classes}"


@pytest.mark.parametrize(
    ("numbers", "uneven"),
    [(["1", "2", "4"], False), (["2001", "2002", "2003"], True), (["0.01", "0.02", ""], True)],
)
def test_columns_of_different_size_are_told_from_even_ones(numbers, uneven, tmp_path):
    cities = ["Oslo", "Rome", "Oslo"]
    rows = [[str(k), str(k % 2), numbers[k], cities[k]] for k in range(3)]
    nodes = [["id", "label", "f", "city"], *rows]
    assert is_uneven(graph(tmp_path, nodes, EDGES[:1])) == uneven

import time

import numpy as np
import pytest
import torch
from graph_files import EDGE_ROWS, NODE_ROWS, write_csv, write_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from phgcn.data import GraphFileError, load_graph

FEATURES = [[1, 0.5], [-20, 0], [3, 4], [0, 1]]


def check(data) -> None:
    """That this is the graph of EDGE_ROWS and NODE_ROWS."""
    assert data.node_id == ["a", "b", "7", "x y"]
    assert data.classes == ["ant", "cat", "dog"]
    assert data.y.tolist() == [1, 2, -1, 0]
    assert data.num_classes == 3
    assert data.x.dtype == torch.float32
    assert data.x.tolist() == FEATURES
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0]]


def test_a_folder_of_two_tables(tmp_path):
    data = load_graph(write_folder(tmp_path / "own"))
    check(data)
    assert data.name == "own"


def test_a_pair_of_tables(tmp_path):
    edges, nodes = write_csv(tmp_path / "links.csv", EDGE_ROWS), write_csv(tmp_path / "pages.csv", NODE_ROWS)
    data = load_graph((edges, str(nodes)))
    check(data)
    assert data.name == "pages"


@pytest.mark.parametrize("given", ["my_edges.csv", "my_nodes.csv"])
def test_one_table_of_a_pair_finds_the_other(tmp_path, given):
    write_csv(tmp_path / "my_edges.csv", EDGE_ROWS)
    write_csv(tmp_path / "my_nodes.csv", NODE_ROWS)
    data = load_graph(str(tmp_path / given))
    check(data)
    assert data.name == "my"


def test_directed_keeps_loops_duplicates_and_order(tmp_path):
    data = load_graph(write_folder(tmp_path / "own"), directed=True)
    assert data.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 2], [3, 0]]


def test_columns_in_any_order_with_spaces_blank_lines_and_a_byte_order_mark(tmp_path):
    own = write_folder(tmp_path / "own")
    turned = [[target, source] for source, target in EDGE_ROWS]
    (own / "edges.csv").write_text("\ufeff" + "\n\n".join(", ".join(row) for row in turned) + "\n\n", encoding="utf-8")
    moved = [[row[2], row[1], row[3], row[0]] for row in NODE_ROWS]
    (own / "nodes.csv").write_bytes("\r\n".join(" , ".join(row) for row in moved).encode())
    check(load_graph(own))


def test_rows_are_counted_with_blank_lines(tmp_path):
    own = write_folder(tmp_path / "own")
    (own / "edges.csv").write_text("source,target\n\n\na,b\n\nb,q\n")
    with pytest.raises(GraphFileError, match=r"edges.csv, row 6, column target: target is 'q'"):
        load_graph(own)


def labelled(tmp_path, labels: list[str]):
    nodes = [["id", "label", "f"], *([str(row), label, "1"] for row, label in enumerate(labels))]
    return load_graph(write_folder(tmp_path / "own", [["source", "target"], ["0", "1"]], nodes))


def test_labels_that_are_integers_are_in_numerical_order(tmp_path):
    data = labelled(tmp_path, ["10", "9", "-1", "10", ""])
    assert data.classes == ["-1", "9", "10"]
    assert data.y.tolist() == [2, 1, 0, 2, -1]


def test_labels_from_0_keep_their_numbers(tmp_path):
    assert labelled(tmp_path, [str(number % 12) for number in range(24)]).y.tolist() == [number % 12 for number in range(24)]


def test_labels_that_are_not_all_integers_are_in_alphabetical_order(tmp_path):
    data = labelled(tmp_path, ["b", "10", "9", "B"])
    assert data.classes == ["10", "9", "B", "b"]


def test_a_label_of_thousands_of_digits_is_a_name(tmp_path):
    assert labelled(tmp_path, ["9" * 5000, "1"]).classes == ["1", "9" * 5000]


def test_no_label_at_all_gives_no_classes(tmp_path):
    data = labelled(tmp_path, ["", "", ""])
    assert (data.num_classes, data.classes, data.y.tolist()) == (0, [], [-1, -1, -1])


def test_no_edges_is_a_graph_too(tmp_path):
    data = load_graph(write_folder(tmp_path / "own", EDGE_ROWS[:1]))
    assert data.edge_index.shape == (2, 0)
    assert data.num_nodes == 4


def test_more_features_than_a_block_of_the_reader(tmp_path):
    values = np.random.default_rng(0).normal(size=(1300, 1001)).astype(np.float32)
    own = write_folder(tmp_path / "own", [["source", "target"], ["0", "1"]])
    header = "id,label," + ",".join(f"f{column}" for column in range(1001))
    lines = [f"{row},{row % 2}," + ",".join(map(repr, cells)) for row, cells in enumerate(values.tolist())]
    (own / "nodes.csv").write_text("\n".join([header, *lines]))
    assert np.array_equal(load_graph(own).x.numpy(), values)
    lines[1100] = lines[1100].rsplit(",", 1)[0] + ",inf"
    (own / "nodes.csv").write_text("\n".join([header, *lines]))
    with pytest.raises(GraphFileError, match=r"nodes.csv, row 1102, column 'f1000': the feature is inf"):
        load_graph(own)


def test_a_hundred_thousand_edges_take_less_than_a_second(tmp_path):
    ids = [f"n{number}" for number in range(1000)]
    ends = np.random.default_rng(0).integers(0, 1000, (100_000, 2)).tolist()
    nodes = [["id", "label", "f"], *([name, "x", "0"] for name in ids)]
    own = write_folder(tmp_path / "own", [["source", "target"], *([ids[s], ids[t]] for s, t in ends)], nodes)
    begin = time.process_time()  # which other programs hardly change
    data = load_graph(own, directed=True)
    seconds = time.process_time() - begin
    assert seconds < 1
    assert data.edge_index.T.tolist() == ends


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_bytes_are_changed_the_tables_load_or_are_refused_in_one_line(tmp_path_factory, data):
    own = write_folder(tmp_path_factory.mktemp("changed") / "own")
    path = own / data.draw(st.sampled_from(["edges.csv", "nodes.csv"]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"9", b"a"])
        )
    path.write_bytes(content)
    try:
        load_graph(own)
    except GraphFileError as error:
        assert str(own) in str(error) and str(error).isprintable()


# Parquet


def write_parquet(path, rows: list[list], **columns) -> None:
    """A table with its numbers as numbers, some columns given instead."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    header, *cells = rows
    content = {name: list(column) for name, column in zip(header, zip(*cells, strict=True), strict=True)}
    for name in ("height", "weight"):
        if name in content:
            content[name] = [float(value) for value in content[name]]
    if "label" in content:
        content["label"] = [label or None for label in content["label"]]
    content |= columns
    parquet.write_table(pyarrow.table(content), path)


def write_parquet_folder(folder, edges: dict | None = None, nodes: dict | None = None):
    folder.mkdir()
    write_parquet(folder / "edges.parquet", EDGE_ROWS, **(edges or {}))
    write_parquet(folder / "nodes.parquet", NODE_ROWS, **(nodes or {}))
    return folder


def test_parquet_gives_what_csv_gives(tmp_path):
    check(load_graph(write_parquet_folder(tmp_path / "own")))


def test_one_table_may_be_csv_and_the_other_parquet(tmp_path):
    own = write_parquet_folder(tmp_path / "own")
    (own / "edges.parquet").unlink()
    write_csv(own / "edges.csv", EDGE_ROWS)
    check(load_graph(own))


def test_integer_ids_floats_with_gaps_and_categories_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    nodes = {"id": [10, 20, 30, 40], "label": [2.0, float("nan"), None, 0.0], "height": [True, False, True, True]}
    edges = {"source": pyarrow.array(["10", "10", "20", "30", "40"]).dictionary_encode(), "target": [20, 20, 30, 30, 10]}
    data = load_graph(write_parquet_folder(tmp_path / "own", edges, nodes), directed=True)
    assert data.node_id == ["10", "20", "30", "40"]
    assert data.y.tolist() == [1, -1, -1, 0]
    assert data.classes == ["0", "2"]
    assert data.x[:, 0].tolist() == [1, 0, 1, 1]
    assert data.edge_index.tolist() == [[0, 0, 1, 2, 3], [1, 1, 2, 2, 0]]


@pytest.mark.parametrize(
    ("edges", "nodes", "text"),
    [
        ({"target": ["b", "a", "zz", "7", "a"]}, {}, r"edges.parquet, row 2, column target: target is 'zz'"),
        ({"target": ["b", "a", None, "7", "a"]}, {}, r"edges.parquet, row 2, column target: target is empty"),
        ({"target": [[1]] * 5}, {}, r"edges.parquet, column 'target': the column is of type list"),
        ({"source": [0.5] * 5}, {}, r"edges.parquet, row 0, column source: source is 0.5; allowed: text or integers"),
        ({"extra": [1] * 5}, {}, r"edges.parquet, column extra: column 'extra' has no use"),
        ({}, {"id": ["a", "b", "7", "a"]}, r"nodes.parquet, row 3, column id: id 'a' is there already, in row 0"),
        ({}, {"id": ["a", None, "7", "x y"]}, r"nodes.parquet, row 1, column id: the id is empty"),
        ({}, {"height": [1e300, 1.0, 1.0, 1.0]}, r"nodes.parquet, row 0, column 'height': the feature is inf"),
        ({}, {"height": ["1", "2", "tall", "4"]}, r"nodes.parquet, row 2, column 'height': the feature is 'tall'"),
        ({}, {"height": [[1]] * 4}, r"nodes.parquet, column 'height': the column is of type list"),
        ({}, {"label": ["a", "b\n", "c\nd", "e"]}, r"nodes.parquet, row 2, column label: label is 'c\\nd'"),
    ],
)
def test_mistakes_in_parquet_are_named(tmp_path, edges, nodes, text):
    with pytest.raises(GraphFileError, match=text) as caught:
        load_graph(write_parquet_folder(tmp_path / "own", edges, nodes))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"source,target\n1,2\n", None], ids=["empty", "magic only", "text", "cut"])
def test_a_damaged_parquet_file_is_refused(tmp_path, content):
    own = write_parquet_folder(tmp_path / "own")
    path = own / "nodes.parquet"
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(GraphFileError, match=r"nodes.parquet: this is no Parquet file, or a damaged one"):
        load_graph(own)


def test_a_parquet_file_without_rows_is_refused(tmp_path):
    own = write_parquet_folder(tmp_path / "own")
    write_parquet(own / "nodes.parquet", [["id"], ["a"]], id=[], label=[], height=[])
    with pytest.raises(GraphFileError, match=r"nodes.parquet: there are no rows"):
        load_graph(own)


def test_without_pyarrow_the_line_says_what_to_install(tmp_path, monkeypatch):
    own = write_parquet_folder(tmp_path / "own")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(GraphFileError, match=r"need the package pyarrow.*pip install 'phgcn\[parquet\]'"):
        load_graph(own)

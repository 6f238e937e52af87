import time

import numpy as np
import pyarrow
import pytest
import torch
from graph_files import EDGE_ROWS, NODE_ROWS, write_csv, write_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

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
    edges = write_csv(tmp_path / "links.csv", EDGE_ROWS)
    nodes = write_csv(tmp_path / "pages.csv", NODE_ROWS)
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
    text = "\n\n".join(", ".join(row) for row in turned)
    (own / "edges.csv").write_text(f"\ufeff{text}\n\n", encoding="utf-8")
    moved = [[row[2], row[1], row[3], row[0]] for row in NODE_ROWS]
    (own / "nodes.csv").write_bytes("\r\n".join(" , ".join(row) for row in moved).encode())
    check(load_graph(own))


def test_rows_are_counted_with_blank_lines(tmp_path):
    own = write_folder(tmp_path / "own")
    (own / "edges.csv").write_text("source,target\n\n\na,b\n\nb,q\n")
    with pytest.raises(GraphFileError, match=r"edges.csv, row 6, column target: target is 'q'"):
        load_graph(own)


DIGITS = "9" * 5000  # too many for an integer


@pytest.mark.parametrize(
    ("labels", "classes", "y"),
    [
        (["10", "9", "-1", "10", ""], ["-1", "9", "10"], [2, 1, 0, 2, -1]),
        (["11", "0", "2", "1"], ["0", "1", "2", "11"], [3, 0, 2, 1]),
        (["b", "10", "9", "B"], ["10", "9", "B", "b"], [3, 0, 1, 2]),
        ([DIGITS, "1"], ["1", DIGITS], [1, 0]),
        (["", "", ""], [], [-1, -1, -1]),
    ],
    ids=["integers", "integers of two digits", "texts", "thousands of digits", "none"],
)
def test_classes_are_in_order_of_numbers_or_of_the_alphabet(labels, classes, y, tmp_path):
    nodes = [["id", "label", "f"], *([str(row), label, "1"] for row, label in enumerate(labels))]
    data = load_graph(write_folder(tmp_path / "own", [["source", "target"], ["0", "1"]], nodes))
    assert (data.classes, data.y.tolist(), data.num_classes) == (classes, y, len(classes))


def test_no_edges_is_a_graph_too(tmp_path):
    data = load_graph(write_folder(tmp_path / "own", EDGE_ROWS[:1]))
    assert data.edge_index.shape == (2, 0)
    assert data.num_nodes == 4


def test_more_features_than_a_block_of_the_reader(tmp_path):
    values = np.random.default_rng(0).normal(size=(1300, 1001)).astype(np.float32)
    own = write_folder(tmp_path / "own", [["source", "target"], ["0", "1"]])
    header = "id,label," + ",".join(f"f{column}" for column in range(1001))
    rows = enumerate(values.tolist())
    lines = [f"{row},{row % 2}," + ",".join(map(repr, cells)) for row, cells in rows]
    (own / "nodes.csv").write_text("\n".join([header, *lines]))
    assert np.array_equal(load_graph(own).x.numpy(), values)
    lines[1100] = lines[1100].rsplit(",", 1)[0] + ",inf"
    (own / "nodes.csv").write_text("\n".join([header, *lines]))
    said = r"nodes.csv, row 1102, column 'f1000': the cell is inf"
    with pytest.raises(GraphFileError, match=said):
        load_graph(own)


def test_a_hundred_thousand_edges_take_less_than_a_second(tmp_path):
    ids = [f"n{number}" for number in range(1000)]
    ends = np.random.default_rng(0).integers(0, 1000, (100_000, 2)).tolist()
    nodes = [["id", "label", "f"], *([name, "x", "0"] for name in ids)]
    edges = [["source", "target"], *([ids[s], ids[t]] for s, t in ends)]
    own = write_folder(tmp_path / "own", edges, nodes)
    begin = time.process_time()  # which other programs hardly change
    data = load_graph(own, directed=True)
    seconds = time.process_time() - begin
    assert seconds < 1
    assert data.edge_index.T.tolist() == ends


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_bytes_are_changed_the_tables_load_or_are_refused_in_one_line(
    tmp_path_factory, data
):
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
    header, *cells = rows
    content = dict(zip(header, map(list, zip(*cells, strict=True)), strict=True))
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
    nodes = {
        "id": [10, 20, 30, 40],
        "label": [2.0, float("nan"), None, 0.0],
        "height": [True, False, True, True],
    }
    edges = {
        "source": pyarrow.array(["10", "10", "20", "30", "40"]).dictionary_encode(),
        "target": [20, 20, 30, 30, 10],
    }
    data = load_graph(write_parquet_folder(tmp_path / "own", edges, nodes), directed=True)
    assert data.node_id == ["10", "20", "30", "40"]
    assert data.y.tolist() == [1, -1, -1, 0]
    assert data.classes == ["0", "2"]
    assert data.x[:, 0].tolist() == [1, 0, 1, 1]
    assert data.edge_index.tolist() == [[0, 0, 1, 2, 3], [1, 1, 2, 2, 0]]


@pytest.mark.parametrize(
    ("name", "column", "cells", "text"),
    [
        ("edges", "target", ["b", "a", "zz", "7", "a"], "row 2, column target: target is 'zz'"),
        ("edges", "target", ["b", "a", None, "7", "a"], "row 2, column target: target is empty"),
        ("edges", "target", [[1]] * 5, "column 'target': the column is of type list"),
        ("edges", "source", [0.5] * 5, "source is 0.5; allowed: text or integers"),
        ("edges", "extra", [1] * 5, "column extra: column 'extra' has no use"),
        (
            "nodes",
            "id",
            ["a", "b", "7", "a"],
            "row 3, column id: id 'a' is there already, in row 0",
        ),
        ("nodes", "id", ["a", None, "7", "x y"], "row 1, column id: the id is empty"),
        ("nodes", "height", [1e300, 1.0, 1.0, 1.0], "row 0, column 'height': the cell is inf"),
        (
            "nodes",
            "height",
            ["1", "2", "tall", "4"],
            "row 2, column 'height': the cell is 'tall",
        ),
        ("nodes", "height", [[1]] * 4, "column 'height': the column is of type list"),
        ("nodes", "label", ["a", "b\n", "c\nd", "e"], r"row 2, column label: label is 'c\\nd'"),
    ],
)
def test_mistakes_in_parquet_are_named(tmp_path, name, column, cells, text):
    own = write_parquet_folder(tmp_path / "own", **{name: {column: cells}})
    with pytest.raises(GraphFileError, match=rf"{name}.parquet, .*{text}") as caught:
        load_graph(own)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"source,target\n1,2\n", None],
    ids=["empty", "magic only", "text", "cut"],
)
def test_a_damaged_parquet_file_is_refused(tmp_path, content):
    own = write_parquet_folder(tmp_path / "own")
    path = own / "nodes.parquet"
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    said = r"nodes.parquet: this is no Parquet file, or a damaged one"
    with pytest.raises(GraphFileError, match=said):
        load_graph(own)


def test_a_parquet_file_without_rows_is_refused(tmp_path):
    own = write_parquet_folder(tmp_path / "own")
    write_parquet(own / "nodes.parquet", [["id"], ["a"]], id=[], label=[], height=[])
    with pytest.raises(GraphFileError, match=r"nodes.parquet: there are no rows"):
        load_graph(own)

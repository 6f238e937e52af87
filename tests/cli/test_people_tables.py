r"""Tables as people keep them, through the command: money, dates, spreadsheets, names of files, faults, and changed data."""

import gzip
import json
import math
import random

import pytest

from phgcn.cli import app
from phgcn.data import Columns, GraphFileError, load_graph

QUICK = ("--model", "mlp", "--splits", "1", "--set", "epochs=2")


def said(capsys, *arguments):
    """The exit code, and the lines on stdout and stderr."""
    capsys.readouterr()
    code = app.run([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def write(folder, nodes, edges="source,target\na,b\nb,c\n"):
    """A folder of two tables, given as text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def column(tmp_path, cells, head="id\tlabel\tf", columns=None, delimiter="\t"):
    """A graph whose nodes a, b, c, ... have these cells."""
    rows = [delimiter.join(("abcdefgh"[number], "xy"[number % 2], cell)) for number, cell in enumerate(cells)]
    text = "\n".join([head.replace("\t", delimiter), *rows])
    return load_graph(write(tmp_path / "own", text), columns=columns)


# Numbers as people write them


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,200", "950", "1,200,300.5"], [1200, 950, 1200300.5]),
        (["$1,200.50", "-$3", "$ 7"], [1200.5, -3, 7]),
        (["12 €", "€7", "1 200 €"], [12, 7, 1200]),
        (["EUR 5", "7 USD", ""], [5, 7, None]),
        (["45%", "5.5 %", "-1%"], [0.45, 0.055, -0.01]),
        (["1'200", "3", "1’000’000"], [1200, 3, 1e6]),
        (["2024-03-01", "1970-01-02", ""], [19783, 1, None]),
        (["2024-03-01 12:00:00", "1970-01-02T06:00", "1970-01-01"], [19783.5, 1.25, 0]),
        (["01.03.2024", "2.1.1970", "2.1.1970"], [19783, 1, 1]),
        (["12:30", "06:15:00", "0:00"], [12.5, 6.25, 0]),
    ],
)
def test_money_percents_and_dates_are_numbers_and_a_note_says_so(cells, numbers, tmp_path):
    data = column(tmp_path, cells)
    wanted = [math.nan if value is None else value for value in numbers]
    assert data.x.flatten().tolist() == pytest.approx(wanted, rel=1e-6, nan_ok=True) and data.feature_names == ["f"]
    assert len(data.notes) == 1 and data.notes[0].startswith("f: cells like ") and " are read as " in data.notes[0]


@pytest.mark.parametrize(
    ("decimal", "cells", "numbers"),
    [
        (",", ["1,5", "1.200", "3"], [1.5, 1200, 3]),
        (",", ["1.200,25", "-2,5 €", "12"], [1200.25, -2.5, 12]),
        (".", ["1,200", "2.5", "3"], [1200, 2.5, 3]),
    ],
)
def test_the_decimal_sign_is_an_option(decimal, cells, numbers, tmp_path):
    for delimiter in ("\t", ";"):
        data = column(tmp_path, cells, columns=Columns(decimal=decimal), delimiter=delimiter)
        assert data.x.flatten().tolist() == numbers


def test_semicolons_allow_either_sign_where_it_is_there_once(tmp_path):
    data = column(tmp_path, ["1,5", "2.5", "1.234.567", "1.200,5"], delimiter=";")
    assert data.x.flatten().tolist() == [1.5, 2.5, 1234567, 1200.5]


@pytest.mark.parametrize(
    ("cells", "allowed"),
    [
        (["1,5", "2,25", "3"], "numbers with a decimal point; `--decimal ,` reads commas as decimal signs"),
        (["03/04/2024", "05/06/2024", "07/08/2024"], "dates like 2024-12-31 or 31.12.2024"),
    ],
)
def test_what_can_be_read_in_two_ways_is_asked_for(cells, allowed, tmp_path, capsys):
    with pytest.raises(GraphFileError, match=f"row 2, column 'f': the feature is '{cells[0]}'; allowed: {allowed}"):
        column(tmp_path, cells)
    data = column(tmp_path, cells, columns=Columns(categorical=["f"]))
    assert len(data.feature_names) == 3


def test_the_way_that_numbers_are_read_is_kept_with_the_run(tmp_path, capsys):
    rows = "\n".join(f"n{k}\t{'xy'[k % 2]}\t{k},5\t{k + 1}.01.2024" for k in range(20))
    graph = write(tmp_path / "own", f"id\tlabel\tsize\tsince\n{rows}", "source\ttarget\nn1\tn2\n")
    code, _, err = said(capsys, "train", graph, "--decimal", ",", *QUICK, "--out", tmp_path / "run")
    assert code == 0 and "size" not in err, "a decimal comma was asked for"
    assert "since: cells like '1.01.2024' are read as days since 1970, here 19723" in err
    assert said(capsys, "predict", tmp_path / "run", graph, "-o", tmp_path / "out.csv")[0] == 0
    code, _, err = said(capsys, "train", graph, "--decimal", "comma", *QUICK, "--out", tmp_path / "other")
    assert code == 2 and "decimal is 'comma'; allowed: '.', ','" in err


# Files


NODES = "id,label,f\na,x,1\nb,y,2\nc,x,3\nd,y,4\n"


def test_excel_files_and_compressed_ones_are_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    import datetime

    book = openpyxl.Workbook()
    rows = [("id", "label", "f", "when"), (1, "x", 1.5, datetime.date(1970, 1, 2)), (2, "y", None, None), (None,) * 4]
    for row in [*rows, (3, "x", 7, datetime.date(1970, 1, 3))]:
        book.active.append(row)
    own = tmp_path / "own"
    own.mkdir()
    book.save(own / "nodes.xlsx")
    with gzip.open(own / "edges.csv.gz", "wt") as file:
        file.write("source,target\n1,2\n2,3\n")
    data = load_graph(own)
    assert data.node_id == ["1", "2", "3"] and data.x.nan_to_num(-1).tolist() == [[1.5, 1], [-1, -1], [7, 2]]
    assert data.edge_index.size(1) == 4
    book.active["C5"], book.active["C6"], book.active["A6"] = "much", 9, 4
    book.save(own / "nodes.xlsx")
    with pytest.raises(GraphFileError, match=r"nodes.xlsx, row 5, column 'f': the feature is 'much'"):
        load_graph(own)
    (own / "nodes.xlsx").write_bytes(b"no workbook")
    with pytest.raises(GraphFileError, match=r"nodes.xlsx: this is no Excel file, or a damaged one"):
        load_graph(own)


def test_without_openpyxl_the_line_says_what_to_install(tmp_path, monkeypatch):
    own = write(tmp_path / "own", NODES)
    (own / "nodes.csv").rename(own / "nodes.xlsx")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(GraphFileError, match=r"need the package openpyxl.*pip install 'phgcn\[excel\]'"):
        load_graph(own)


def test_latin_1_is_offered_and_read(tmp_path, capsys):
    own = write(tmp_path / "own", "")
    rows = "\n".join(f"n{k},{('café', 'thé')[k % 2]},{k}" for k in range(20))
    (own / "nodes.csv").write_bytes(f"id,label,f\n{rows}".encode("latin-1"))
    (own / "edges.csv").write_text("source,target\nn0,n1\n")
    code, _, err = said(capsys, "train", own, *QUICK, "--out", tmp_path / "run")
    assert code == 2 and "row 2: the text is not UTF-8; allowed: UTF-8; --encoding latin-1 reads files of older" in err
    code, _, err = said(capsys, "train", own, "--encoding", "latin-1", *QUICK, "--out", tmp_path / "run")
    assert code == 0 and "café 10, thé 10" in err
    with pytest.raises(ValueError, match="encoding is 'klingon'; allowed: utf-8, latin-1"):
        Columns(encoding="klingon")


def test_no_column_of_ids_is_needed(tmp_path):
    own = write(tmp_path / "own", "label,f\nx,1\ny,2\nx,3\n", "source,target\n1,2\n2,3\n")
    data = load_graph(own)
    assert data.node_id == ["1", "2", "3"] and data.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert data.notes == ["nodes.csv has no column id: nodes are numbered from 1, in their order"]
    write(own, "label,f\nx,1\ny,2\nx,3\n", "source,target\n0,1\n1,2\n")
    with pytest.raises(GraphFileError, match=r"source is '0'; allowed: 1 to 3, as nodes.csv has no column id; --id names"):
        load_graph(own)


def test_files_may_have_any_name(tmp_path, capsys):
    own = write(tmp_path / "own", "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))]), "")
    (own / "edges.csv").write_text("source,target\nn0,n1\nn2,n3\n")
    people, calls = (own / "nodes.csv").rename(own / "people.csv"), (own / "edges.csv").rename(own / "calls.csv")
    pair = ("--nodes", people, "--edges", calls)
    code, _, err = said(capsys, "train", *pair, *QUICK, "--out", tmp_path / "run")
    assert code == 0 and "graph people: 20 nodes, 2 edges" in err
    for command in (("predict", tmp_path / "run", *pair, "-o", "-"), ("evaluate", tmp_path / "run")):
        code, _, err = said(capsys, *command)
        assert code == 0, err
    assert said(capsys, "evaluate", tmp_path / "run", "--graph", f"{people}::{calls}")[0] == 0
    for wrong, line in (
        (pair[:2], "--edges is missing; allowed: --nodes FILE --edges FILE"),
        ((own, *pair), "and --nodes are given; allowed: one of them"),
        ((), "GRAPH is missing; allowed: a known name, the path of a graph, or --nodes FILE --edges FILE"),
    ):
        code, _, err = said(capsys, "train", *wrong)
        assert code == 2 and line in err


# Faults


def test_edges_to_unknown_ids_can_be_dropped_and_are_counted(tmp_path):
    own = write(tmp_path / "own", NODES, "source,target,weight\na,b,1\nz,c,2\nb,zz,3\nc,d,4\n")
    with pytest.raises(GraphFileError, match=r"source is 'z'; allowed: the ids in nodes.csv; `--unknown-ids drop` leaves"):
        load_graph(own)
    data = load_graph(own, columns=Columns(unknown_ids="drop"))
    assert data.edge_weight.tolist() == [1, 1, 4, 4]
    assert "2 edges left out, which lead to unknown ids such as 'z'" in data.notes
    write(own, NODES, "source,target\na,b\na,\n")
    with pytest.raises(GraphFileError, match="target is empty"):
        load_graph(own, columns=Columns(unknown_ids="drop"))


def test_all_faults_are_in_one_answer_the_first_of_each_kind_with_its_count(tmp_path, capsys):
    rows = [f"n{k},{'xy'[k % 2]},{k},{k}" for k in range(20)]
    rows[3], rows[4], rows[5] = "n3,y,much,3", "n4,x,4", "n4,x,many,5"
    rows[6], rows[7] = ",x,6,6", "n1,y,7,inf"
    edges = "source,target\nn0,n1\nn2,zz\nn2,yy\nqq,n1\n"
    code, _, err = said(capsys, "train", write(tmp_path / "own", "\n".join(["id,label,f,g", *rows]), edges))
    lines = [line.split("own/")[-1] for line in err.splitlines()]
    assert code == 2 and len(lines) == 7
    assert lines[0].startswith("nodes.csv, row 6, column g: the row has 3 cells")
    assert any(line.startswith("nodes.csv, row 5, column 'f': the feature is 'much'") for line in lines)
    assert sum(line.endswith("(and 1 more)") for line in lines) == 2, "two words in f, two unknown targets"
    assert any("the id is empty" in line for line in lines) and any(
        "id 'n1' is there already, in row 3" in line for line in lines
    )
    assert any("source is 'qq'" in line for line in lines) and any("target is 'zz'" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--label", "lable"), "column 'lable' is missing (did you mean 'label'?); found: 'id, label, f'"),
        (("--features", "g,F"), "columns 'g', 'F' are missing"),
        (("--model", "globalgnn"), "model is 'globalgnn' (did you mean 'global-gnn'?); allowed: "),
        (("--set", "drop_out=0.5"), "the setting 'drop_out' is not known to mlp (did you mean 'dropout'?)"),
    ],
)
def test_slips_of_the_pen_are_answered_with_what_was_meant(options, line, tmp_path, capsys):
    code, _, err = said(capsys, "train", write(tmp_path / "own", NODES), *QUICK, *options, "--out", tmp_path / "run")
    assert code == 2 and line in err
    if options[0] == "--label":
        assert err.count("lable") == 2, "not among the columns that are there"


def test_the_ends_of_edges_have_options_that_say_so(tmp_path, capsys):
    rows = "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))])
    own = write(tmp_path / "own", rows, "from,to\nn0,n1\n")
    code, _, err = said(capsys, "train", own, "--edge-source", "from", "--edge-target", "to", *QUICK, "--out", tmp_path / "a")
    assert code == 0 and "deprecated" not in err
    code, _, err = said(capsys, "train", own, "--source", "from", "--target", "to", *QUICK, "--out", tmp_path / "b")
    assert code == 0 and "--target is deprecated and goes in 0.4: write --edge-target" in err
    code, out, _ = said(capsys, "train", "--help")
    assert "--edge-target" in out and " --target" not in out


def test_negative_weights_are_named_where_they_are_read(tmp_path, capsys):
    rows = "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))])
    own = write(tmp_path / "own", rows, "source,target,weight\nn0,n1,-3\nn1,n2,2\n")
    code, _, err = said(capsys, "train", own, "--model", "gcn", "--out", tmp_path / "run")
    assert code == 2 and "the smallest edge weight is -3; allowed: weights from 0 on for gcn, or --edge-weight none" in err
    assert not (tmp_path / "run").exists()
    assert said(capsys, "train", own, *QUICK, "--out", tmp_path / "run")[0] == 0, "an MLP reads none"


# Runs


def test_a_folder_that_is_not_empty_is_refused_in_a_whole_sentence(tmp_path, capsys):
    own = write(tmp_path / "own", "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))]), "source,target\n")
    code, _, err = said(capsys, "train", own, *QUICK, "--out", own)
    assert code == 2 and f"{own} holds files that are no run: choose another folder with --out" in err
    assert said(capsys, "train", own, *QUICK, "--out", tmp_path / "run")[0] == 0
    code, _, err = said(capsys, "train", own, *QUICK, "--out", tmp_path / "run")
    assert code == 2 and "run holds a run already: continue it with --resume, or choose another folder with --out" in err


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda nodes, edges: (nodes, edges + "n4,n5\n"), "4 edges, in both directions, before 2"),
        (lambda nodes, edges: (nodes + "\nn20,x,3", edges), "21 nodes, before 20"),
        (lambda nodes, edges: (nodes.replace("n1,y", "n1,x"), edges), "other values of labels"),
        (lambda nodes, edges: (nodes.replace("n1,y,1", "n1,y,7"), edges), "other values of features"),
    ],
)
def test_changed_data_is_named_with_what_changed(change, line, tmp_path, capsys):
    nodes, edges = "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))]), "source,target\nn0,n1\n"
    own = write(tmp_path / "own", nodes, edges)
    assert said(capsys, "train", own, *QUICK, "--out", tmp_path / "run")[0] == 0
    write(own, *change(nodes, edges))
    for command in (("train", own, "--out", tmp_path / "run", "--resume"), ("plot", tmp_path / "run")):
        code, _, err = said(capsys, *command)
        assert code == 2 and f"own has changed since {tmp_path / 'run'} was begun: {line}" in err


# Frames


def test_text_and_categories_of_frames_are_names_and_columns_have_their_options(tmp_path):
    pd = pytest.importorskip("pandas")
    from phgcn import NodeClassifier

    chance = random.Random(0)
    zips = [chance.choice(["00123", "10999", "80331"]) for _ in range(40)]
    nodes = pd.DataFrame(
        {"who": [f"p{k}" for k in range(40)], "zip": zips, "kind": pd.Categorical([k % 3 for k in range(40)]),
         "age": [float(k) for k in range(40)], "floor": [k % 4 for k in range(40)],
         "since": pd.date_range("1970-01-02", periods=40)}
    )  # fmt: skip
    nodes.loc[3, "age"] = None
    edges = pd.DataFrame({"source": ["p0", "p1"], "target": ["p1", "p2"], "metres": [5, 7], "way": ["road", "rail"]})
    y = [k % 2 for k in range(40)]
    estimator = NodeClassifier(
        model="gat-eda", epochs=2, hidden_channels=4, heads=1, id="who", categorical=["floor"], edge_weight="metres",
        edge_features=["way"],
    )  # fmt: skip
    data = estimator.fit((nodes, edges), y).graph_
    levels = {"zip": ["00123", "10999", "80331"], "kind": ["0", "1", "2"], "floor": ["0", "1", "2", "3"]}
    assert {name: data.feature_levels[name] for name in levels} == levels
    assert data.feature_names[-1] == "since" and data.x[:2, -1].tolist() == [1, 2]
    assert data.edge_weight.tolist() == [5, 5, 7, 7] and data.edge_attr.shape == (4, 2)
    assert estimator.predict((nodes.sample(10, random_state=0), edges.iloc[:0])).shape == (10,)
    again = NodeClassifier.load(estimator.save(tmp_path / "saved"))
    assert again.predict((nodes, edges)).tolist() == estimator.predict().tolist() == again.predict().tolist()
    assert again.get_params()["categorical"] == ["floor"]


def test_json_results_of_a_pair_name_both_files(tmp_path, capsys):
    rows = "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20))])
    own = write(tmp_path / "own", rows, "source,target\nn0,n1\n")
    pair = ("--nodes", own / "nodes.csv", "--edges", own / "edges.csv")
    code, out, _ = said(capsys, "train", *pair, *QUICK, "--out", tmp_path / "run", "--json")
    assert code == 0 and json.loads(out)["source"] == f"{own / 'nodes.csv'}::{own / 'edges.csv'}"

r"""Tables as people keep them, through the command: money, dates, spreadsheets, names of files,
faults, and changed data."""

import gzip
import json
import math
import random

import numpy as np
import pytest
from commands import call

from phgcn.data import Columns, GraphFileError, load_graph

QUICK = "--model mlp --splits 1 --set epochs=2"


def write(folder, nodes, edges="source,target\na,b\nb,c\n"):
    """A folder of two tables, given as text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def twenty(*extra):
    """A table of twenty nodes."""
    return "\n".join(["id,label,f", *(f"n{k},{'xy'[k % 2]},{k}" for k in range(20)), *extra])


def column(tmp_path, cells, head="id\tlabel\tf", columns=None, delimiter="\t"):
    """A graph whose nodes a, b, c, ... have these cells."""
    rows = [delimiter.join(("abcdefgh"[k], "xy"[k % 2], cell)) for k, cell in enumerate(cells)]
    text = "\n".join([head.replace("\t", delimiter), *rows])
    return load_graph(write(tmp_path / "own", text), columns=columns)


POINT = r"numbers with a decimal point; `--decimal ,` \(Python: decimal=','\) reads commas"

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
        (["1:30 PM", "12:15am", "12:00 pm"], [13.5, 0.25, 12]),
        (["Mar 1, 2024", "1 March 2024", "2. Jan. 1970"], [19783, 19783, 1]),
        (["2024-03", "1970-02", "1970-01"], [19783, 31, 0]),
        (["−5", "US$ 1,200", "₹ 1,00,000"], [-5, 1200, 100000]),
    ],
)
def test_money_percents_and_dates_are_numbers_and_a_note_says_so(cells, numbers, tmp_path):
    data = column(tmp_path, cells)
    wanted = [math.nan if value is None else value for value in numbers]
    assert data.x.flatten().tolist() == pytest.approx(wanted, rel=1e-6, nan_ok=True)
    assert data.feature_names == ["f"]
    assert len(data.notes) == 1
    assert data.notes[0].startswith("f: cells like ")
    assert " are read as " in data.notes[0]


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
    assert data.notes == ["f: cells like '1,5' are read as numbers, here 1.5"]


@pytest.mark.parametrize(
    ("cells", "allowed"),
    [
        (["1,5", "2,25", "3"], POINT),
        (["1.234.567", "2.345.678", "3"], POINT),
        (["03/04/2024", "05/06/2024", "07/08/2024"], "dates like 2024-12-31 or 31.12.2024"),
        (["03.04.24", "05.06.24", "07.08.24"], "dates like 2024-12-31 or 31.12.2024"),
        (["2024-02-30", "2024-02-01", "2024-02-03"], "a date like 2024-12-31, or nothing if"),
        (["noon", "11:30", "12:30"], "a time like 18:30, or nothing if it is not known"),
    ],
)
def test_what_can_be_read_in_two_ways_is_asked_for(cells, allowed, tmp_path):
    message = f"row 2, column 'f': the cell is '{cells[0]}'; allowed: {allowed}"
    with pytest.raises(GraphFileError, match=message):
        column(tmp_path, cells)
    data = column(tmp_path, cells, columns=Columns(categorical=["f"]))
    assert len(data.feature_names) == 3


@pytest.mark.parametrize(
    ("decimal", "rows", "sign"),
    [
        (",", ("x,1.5", "y,2.75", "x,3.25"), "comma"),
        (",", ("1.5,a", "2.5,b", "1.5,a"), "comma"),
        (".", ('"1,5",a', '"2,5",b', '"1,5",a'), "point"),
    ],
)
def test_numbers_with_the_other_sign_are_no_categories(decimal, rows, sign, tmp_path):
    text = "\n".join(["id,label,f", *(f"{id},{row}" for id, row in zip("abc", rows, strict=True))])
    message = rf"row 2, column '?(f|label).*numbers with a decimal {sign}; `--decimal .` .* reads"
    with pytest.raises(GraphFileError, match=message):
        load_graph(write(tmp_path / "own", text), columns=Columns(decimal=decimal))


def test_the_way_that_numbers_are_read_is_kept_with_the_run(tmp_path, said):
    rows = "\n".join(f"n{k}\t{'xy'[k % 2]}\t{k},5\t{k + 1}.01.2024" for k in range(20))
    graph = write(tmp_path / "own", f"id\tlabel\tsize\tsince\n{rows}", "source\ttarget\nn1\tn2\n")
    code, _, err = said("train", graph, "--decimal ,", QUICK, "--out", tmp_path / "run")
    assert code == 0 and "size" not in err, "a decimal comma was asked for"
    assert "since: cells like '1.01.2024' are read as days since 1970, here 19723" in err
    assert said("predict", tmp_path / "run", graph, "-o", tmp_path / "out.csv")[0] == 0
    code, _, err = said("train", graph, "--decimal comma", QUICK, "--out", tmp_path / "other")
    assert code == 2 and "decimal is 'comma'; allowed: '.', ','" in err


@pytest.mark.parametrize(
    ("delimiter", "cells", "note"),
    [
        (",", ["08001", "12345", ""], "f: cells like '08001' are read as numbers; `--categorical`"),
        (";", ["1.234", "-22.500", "7"], "f: cells like '1.234' are read as numbers, here 1.234;"),
        (",", ["1.234", "22.500", "7"], None),
        (";", ["1.234", "22.5", "7"], None),
        (",", ["0", "0.5", "-01"], None),
    ],
)
def test_numbers_that_may_be_something_else_are_noted(delimiter, cells, note, tmp_path):
    notes = column(tmp_path, cells, delimiter=delimiter).notes
    assert len(notes) == (note is not None) and all(line.startswith(note) for line in notes)


@pytest.mark.parametrize("unknown", ["NA", "nan", "#N/A", "?", "null"])
def test_labels_that_are_not_known_are_no_class(unknown, tmp_path):
    text = f"id,label,f\na,0,1\nb,1,2\nc,{unknown},3\n"
    data = load_graph(write(tmp_path / "own", text))
    assert data.classes == ["0", "1"] and data.y.tolist() == [0, 1, -1]
    assert data.notes == [f"label: cells like '{unknown}' are read as not known"]
    signs = load_graph(write(tmp_path / "signs", "id,label,f\na,+,1\nb,-,2\nc,+,3\n"))
    assert signs.classes == ["+", "-"]


# Files


NODES = "id,label,f\na,x,1\nb,y,2\nc,x,3\nd,y,4\n"


def test_excel_files_and_compressed_ones_are_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    import datetime

    book = openpyxl.Workbook()
    rows = [
        ("id", "label", "f", "when"),
        (1, "x", 1.5, datetime.date(1970, 1, 2)),
        (2, "y", None, None),
        (None,) * 4,
    ]
    for row in [*rows, (3, "x", 7, datetime.date(1970, 1, 3))]:
        book.active.append(row)
    own = tmp_path / "own"
    own.mkdir()
    book.save(own / "nodes.xlsx")
    with gzip.open(own / "edges.csv.gz", "wt") as file:
        file.write("source,target\n1,2\n2,3\n")
    data = load_graph(own)
    assert data.node_id == ["1", "2", "3"]
    assert data.x.nan_to_num(-1).tolist() == [[1.5, 1], [-1, -1], [7, 2]]
    assert data.edge_index.size(1) == 4
    book.active["C5"], book.active["C6"], book.active["A6"] = "much", 9, 4
    book.save(own / "nodes.xlsx")
    message = r"nodes.xlsx, row 5, column 'f': the cell is 'much'"
    with pytest.raises(GraphFileError, match=message):
        load_graph(own)
    (own / "nodes.xlsx").write_bytes(b"no workbook")
    message = r"nodes.xlsx: this is no Excel file, or a damaged one"
    with pytest.raises(GraphFileError, match=message):
        load_graph(own)


def test_without_openpyxl_the_line_says_what_to_install(tmp_path, monkeypatch):
    own = write(tmp_path / "own", NODES)
    (own / "nodes.csv").rename(own / "nodes.xlsx")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    message = r"need the package openpyxl.*pip install 'phgcn\[excel\]'"
    with pytest.raises(GraphFileError, match=message):
        load_graph(own)


def test_latin_1_is_offered_and_read(tmp_path, said):
    own = write(tmp_path / "own", "")
    rows = "\n".join(f"n{k},{('café', 'thé')[k % 2]},{k}" for k in range(20))
    (own / "nodes.csv").write_bytes(f"id,label,f\n{rows}".encode("latin-1"))
    (own / "edges.csv").write_text("source,target\nn0,n1\n")
    code, _, err = said("train", own, QUICK, "--out", tmp_path / "run")
    assert code == 2
    line = "row 2: the text is not UTF-8; allowed: UTF-8; --encoding (Python: encoding=) latin-1 or"
    assert line in err
    code, _, err = said("train", own, "--encoding latin-1", QUICK, "--out", tmp_path / "run")
    assert code == 0 and "café 10, thé 10" in err
    with pytest.raises(ValueError, match="encoding is 'klingon'; allowed: utf-8, latin-1"):
        Columns(encoding="klingon")


def test_no_column_of_ids_is_needed(tmp_path):
    own = write(tmp_path / "own", "label,f\nx,1\ny,2\nx,3\n", "source,target\n1,2\n2,3\n")
    data = load_graph(own)
    assert data.node_id == ["1", "2", "3"]
    assert data.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert data.notes == ["nodes.csv has no column id: nodes are numbered from 1, in their order"]
    write(own, "label,f\nx,1\ny,2\nx,3\n", "source,target\n0,1\n1,2\n")
    message = r"source is '0'; allowed: 1 to 3, as nodes.csv has no column id; --id .* names"
    with pytest.raises(GraphFileError, match=message):
        load_graph(own)


def test_the_column_of_ids_is_found_in_capitals_too(tmp_path):
    own = write(tmp_path / "own", "ID,label,f\n3,x,1\n1,y,2\n2,x,3\n", "source,target\n3,1\n")
    data = load_graph(own)
    assert data.node_id == ["3", "1", "2"] and data.feature_names == ["f"]
    assert data.edge_index.T.tolist() == [[0, 1], [1, 0]] and not data.notes


@pytest.mark.parametrize(
    ("nodes", "columns", "line"),
    [
        (",label,f\n0,x,1\n", None, "the column has no name; .* pandas writes one without by"),
        (NODES, Columns(features=["f", "f"]), "feature 'f' is named twice; allowed: each name"),
        (
            NODES.encode("utf-16"),
            None,
            "not UTF-8; allowed: UTF-8; --encoding .* utf-16 reads this",
        ),
    ],
)
def test_headers_and_encodings_of_other_programs_are_answered(nodes, columns, line, tmp_path):
    own = write(tmp_path / "own", "")
    (own / "nodes.csv").write_bytes(nodes if isinstance(nodes, bytes) else nodes.encode())
    with pytest.raises(GraphFileError, match=line):
        load_graph(own, columns=columns)


def test_files_may_have_any_name(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\nn0,n1\nn2,n3\n")
    people = (own / "nodes.csv").rename(own / "people.csv")
    calls = (own / "edges.csv").rename(own / "calls.csv")
    pair = ("--nodes", people, "--edges", calls)
    code, _, err = said("train", *pair, QUICK, "--out", tmp_path / "run")
    assert code == 0 and "graph people: 20 nodes, 2 edges" in err
    call("predict", tmp_path / "run", *pair, "-o -")
    call("evaluate", tmp_path / "run")
    assert said("evaluate", tmp_path / "run", "--graph", f"{people}::{calls}")[0] == 0
    for wrong, line in (
        (pair[2:], "--nodes is missing; allowed: --nodes FILE --edges FILE"),
        ((own, *pair), "and --nodes are given; allowed: one of them"),
        ((), "the path of a graph, or --nodes FILE --edges FILE"),
    ):
        code, _, err = said("train", *wrong)
        assert code == 2 and line in err


# Faults


def test_edges_to_unknown_ids_can_be_dropped_and_are_counted(tmp_path):
    own = write(tmp_path / "own", NODES, "source,target,weight\na,b,1\nz,c,2\nb,zz,3\nc,d,4\n")
    drop = r"`--unknown-ids drop` \(Python: unknown_ids='drop'\)"
    message = f"source is 'z'; allowed: the ids in nodes.csv; {drop} leaves"
    with pytest.raises(GraphFileError, match=message):
        load_graph(own)
    data = load_graph(own, columns=Columns(unknown_ids="drop"))
    assert data.edge_weight.tolist() == [1, 1, 4, 4]
    assert "2 edges left out, to unknown ids such as 'z'" in data.notes
    write(own, NODES, "source,target\na,b\na,\n")
    with pytest.raises(GraphFileError, match="target is empty"):
        load_graph(own, columns=Columns(unknown_ids="drop"))


def test_all_faults_are_in_one_answer_the_first_of_each_kind_with_its_count(tmp_path, said):
    lines = [line.split("own/")[-1] for line in faulty(tmp_path, said, "source,target,weight")]
    assert lines[0].startswith("nodes.csv, row 6, column g: the row has 3 cells")
    # two words in f, two unknown targets
    assert sum(line.endswith("(and 1 more)") for line in lines) == 2
    assert_all_said(lines, *OF_NODES, *OF_EDGES)
    assert len(lines) == 1 + len(OF_NODES) + len(OF_EDGES)


def test_a_fault_of_a_header_hides_none_of_the_other_table(tmp_path, said):
    lines = faulty(tmp_path, said, "source,goal,weight")
    assert_all_said(lines, "column 'target' is missing", *OF_NODES)


OF_NODES = (
    "row 5, column 'f': the cell is 'much'",
    "row 9, column 'g': the cell is inf",
    "the id is empty",
    "id 'n1' is there already, in row 3",
)
OF_EDGES = (
    "row 5, column source: source is 'qq'",
    "row 6, column source: source is empty",
    "row 3, column target: target is 'zz'",
    "row 3, column 'weight': the cell is inf",
    "row 5, column 'weight': the cell is empty",
    "row 6, column 'weight': the weight is -2.0; allowed: 0 or more in models that read weights",
)


def faulty(tmp_path, said, edge_header):
    """The lines that a table with many faults is answered with."""
    rows = [f"n{k},{'xy'[k % 2]},{k},{k}" for k in range(20)]
    rows[3], rows[4], rows[5] = "n3,y,much,3", "n4,x,4", "n4,x,many,5"
    rows[6], rows[7] = ",x,6,6", "n1,y,7,inf"
    edges = f"{edge_header}\nn0,n1,1\nn2,zz,inf\nn2,yy,1\nqq,n1,\n,n1,-2\n"
    code, _, err = said("train", write(tmp_path / "own", "\n".join(["id,label,f,g", *rows]), edges))
    assert code == 2
    return err.splitlines()


def assert_all_said(lines, *faults):
    for fault in faults:
        assert any(fault in line for line in lines), (fault, lines)


def test_cells_that_are_no_numbers_hide_no_empty_ones(tmp_path):
    edges = "source,target,weight\n" + "\n".join(f"n{k},n{k + 1},{k}" for k in range(9))
    own = write(tmp_path / "own", twenty(), f"{edges}\nn1,n5,heavy\nn1,n6,\nn1,n7,-3\n")
    with pytest.raises(GraphFileError) as caught:
        load_graph(own)
    assert_all_said(caught.value.lines, "is 'heavy'", "the cell is empty", "the weight is -3.0")
    assert len(caught.value.lines) == 3


def test_a_fault_is_said_once_with_advice_for_its_table(tmp_path):
    rows = [f"n{k},{'xy'[k % 2]},{k}.5" for k in range(60)]
    rows[7] = "n7,y,much"
    edges = "source,target,weight\nn0,n1,2\nn1,n2,heavy\nn2,n3,3\n"
    with pytest.raises(GraphFileError) as caught:
        load_graph(write(tmp_path / "own", "\n".join(["id,label,size", *rows]), edges))
    of_nodes, of_edges = caught.value.lines
    assert "row 9, column 'size': the cell is 'much'" in of_nodes and "--categorical" in of_nodes
    assert "row 3, column 'weight': the cell is 'heavy'" in of_edges
    assert of_edges.endswith("allowed: a number, or nothing if it is not known")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--label lable", "'lable' is missing (did you mean 'label'?); found: id, label, f"),
        ("--features g,F", "columns 'g', 'F' are missing (did you mean 'f'?); found"),
        ("--features labell,idd", "(did you mean 'label' and 'id'?); found"),
        ("--features f --categorical F", "column 'F' is no feature (did you mean 'f'?); allowed"),
        ("--model globalgnn", "model is 'globalgnn' (did you mean 'global-gnn'?); allowed: "),
        ("--set drop_out=0.5", "'drop_out' is not known to mlp (did you mean 'dropout'?)"),
    ],
)
def test_slips_of_the_pen_are_answered_with_what_was_meant(options, line, tmp_path, said):
    own = write(tmp_path / "own", NODES)
    code, _, err = said("train", own, QUICK, options, "--out", tmp_path / "run")
    assert code == 2 and line in err
    if options == "--label lable":
        assert err.count("lable") == 2, "not among the columns that are there"


def test_the_ends_of_edges_have_options_that_say_so(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "from,to\nn0,n1\n")
    ends = "--edge-source from --edge-target to"
    code, _, err = said("train", own, ends, QUICK, "--out", tmp_path / "a")
    assert code == 0 and "deprecated" not in err
    code, _, err = said("train", own, "--source from --target to", QUICK, "--out", tmp_path / "b")
    assert code == 0 and "--target is deprecated and goes in 0.4: write --edge-target" in err
    code, out, _ = said("train --help")
    assert "--edge-target" in out and " --target" not in out


def test_a_wrong_coordinate_leaves_no_folder_and_the_right_one_trains(tmp_path, said):
    rows = "\n".join(f"{50 + k / 7},{8 + k / 9},{k % 5}.5" for k in range(30))
    (tmp_path / "houses.csv").write_text(f"lat,lon,price\n{rows}")
    options = "--label price --set epochs=2 --splits 1 --out"
    command = ("train", tmp_path / "houses.csv", options, tmp_path / "run", "--coordinates")
    for search in ("", "--model table"):
        code, _, err = said(*command, "lat,lng", search)
        assert code == 2 and "coordinates has 'lng' (did you mean 'lon'?)" in err
        assert not (tmp_path / "run").exists()
    assert said(*command, "lat,lon")[0] == 0


def test_negative_weights_are_named_where_they_are_read(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target,weight\nn0,n1,-3\nn1,n2,2\n")
    code, _, err = said("train", own, "--model gcn --out", tmp_path / "run")
    assert code == 2
    line = "smallest edge weight is -3; allowed: weights from 0 on for gcn, or --edge-weight none"
    assert line in err
    assert not (tmp_path / "run").exists()
    assert said("train", own, QUICK, "--out", tmp_path / "run")[0] == 0, "an MLP reads none"


# Runs


def test_a_folder_that_is_not_empty_is_refused_in_a_whole_sentence(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\n")
    code, _, err = said("train", own, QUICK, "--out", own)
    assert code == 2
    assert f"{own} holds files that are no run: choose another folder with --out" in err
    assert said("train", own, QUICK, "--out", tmp_path / "run")[0] == 0
    code, _, err = said("train", own, QUICK, "--out", tmp_path / "run")
    assert code == 2
    line = "run holds a run already: continue it with --resume, or choose another folder with --out"
    assert line in err


def test_renamed_ids_of_a_table_without_edges_are_noticed(tmp_path, said):
    rows = [f"h{k},{k % 7},{k % 5}.5" for k in range(30)]
    table = tmp_path / "houses.csv"
    table.write_text("\n".join(["id,area,price", *rows]))
    command = ("train", table, "--label price --out", tmp_path / "run")
    assert said(*command, "--model mlp --splits 1 --set epochs=2")[0] == 0
    assert said(*command, "--resume")[0] == 0
    table.write_text(table.read_text().replace("h7,", "house-7,"))
    code, _, err = said(*command, "--resume")
    assert (
        code == 2 and f"has changed since {tmp_path / 'run'} was begun: other values of ids" in err
    )
    assert said("evaluate", tmp_path / "run", "--graph", table)[0] == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda nodes, edges: (nodes, edges + "n4,n5\n"), "4 edges, in both directions, before 2"),
        (lambda nodes, edges: (nodes + "\nn20,x,3", edges), "21 nodes, before 20"),
        (lambda nodes, edges: (nodes.replace("n1,y", "n1,x"), edges), "other values of labels"),
        (lambda nodes, edges: (nodes.replace("y,1\n", "y,7\n"), edges), "other values of features"),
    ],
)
def test_changed_data_is_named_with_what_changed(change, line, tmp_path, said):
    nodes, edges = twenty(), "source,target\nn0,n1\n"
    own = write(tmp_path / "own", nodes, edges)
    assert said("train", own, QUICK, "--out", tmp_path / "run")[0] == 0
    write(own, *change(nodes, edges))
    for command in (
        ("train", own, "--out", tmp_path / "run", "--resume"),
        ("plot", tmp_path / "run"),
    ):
        code, _, err = said(*command)
        assert code == 2 and f"own has changed since {tmp_path / 'run'} was begun: {line}" in err


# Frames


def test_text_and_categories_of_frames_are_names_and_columns_have_their_options(tmp_path):
    pd = pytest.importorskip("pandas")
    from phgcn import NodeClassifier

    chance = random.Random(0)
    zips = [chance.choice(["00123", "10999", "80331"]) for _ in range(40)]
    nodes = pd.DataFrame(
        {
            "who": [f"p{k}" for k in range(40)],
            "zip": zips,
            "kind": pd.Categorical([k % 3 for k in range(40)]),
            "age": [float(k) for k in range(40)],
            "floor": [k % 4 for k in range(40)],
            "since": pd.date_range("1970-01-02", periods=40),
        }
    )
    nodes.loc[3, "age"] = None
    edges = pd.DataFrame(
        {"source": ["p0", "p1"], "target": ["p1", "p2"], "metres": [5, 7], "way": ["road", "rail"]}
    )
    y = [k % 2 for k in range(40)]
    quick = {"model": "gat-eda", "epochs": 2, "hidden_channels": 4, "heads": 1}
    columns = {"id": "who", "categorical": ["floor"], "edge_weight": "metres"}
    estimator = NodeClassifier(**quick, **columns, edge_features=["way"])
    data = estimator.fit((nodes, edges), y).graph_
    levels = {"zip": ["00123", "10999", "80331"], "kind": [*"012"], "floor": [*"0123"]}
    assert {name: data.feature_levels[name] for name in levels} == levels
    assert data.feature_names[-1] == "since" and data.x[:2, -1].tolist() == [1, 2]
    assert data.edge_weight.tolist() == [5, 5, 7, 7] and data.edge_attr.shape == (4, 2)
    assert estimator.predict((nodes.sample(10, random_state=0), edges.iloc[:0])).shape == (10,)
    again = NodeClassifier.load(estimator.save(tmp_path / "saved"))
    predicted = estimator.predict().tolist()
    assert again.predict((nodes, edges)).tolist() == predicted == again.predict().tolist()
    assert again.get_params()["categorical"] == ["floor"]


AMOUNTS = {"pay": ["€1,200.00", "€950", None, "$ 7"], "rise": ["29.0%", "-1 %", "5%", "NA"]}
NUMBERS = [[1200, 0.29], [950, -0.01], [math.nan, 0.05], [7, math.nan]]


def test_money_and_percents_in_frames_are_numbers_and_digits_are_names():
    pd = pytest.importorskip("pandas")
    zips = ["00123", "80331", "00123", "80331"]
    frame = pd.DataFrame({"id": list("abcd"), **AMOUNTS, "zip": zips, "size": ["1", "2", "1", "2"]})
    data = load_graph((None, frame), columns=Columns(label=None))
    assert data.feature_columns == ["pay", "rise", "zip", "size"]
    assert data.feature_levels == {"zip": ["00123", "80331"], "size": ["1", "2"]}
    np.testing.assert_allclose(data.x[:, :2], NUMBERS, rtol=1e-6)
    assert "rise: cells like '29.0%' are read as numbers, here 0.29" in data.notes


@pytest.mark.parametrize("kind", ["nodes", "rows"])
def test_estimators_read_amounts_and_warn_of_a_copy_of_the_label(kind):
    pd = pytest.importorskip("pandas")
    from phgcn import AttentionClassifier, NodeClassifier

    y = np.arange(40) % 2
    cells = {name: values * 10 for name, values in AMOUNTS.items()}
    frame = pd.DataFrame({**cells, "copy": y, "chance": np.random.default_rng(0).random(40)})
    edges = np.array([[0, 1], [2, 3]])
    with pytest.warns(UserWarning, match="the feature copy alone predicts 100 % of the label"):
        if kind == "nodes":
            NodeClassifier("mlp", epochs=2).fit((frame, edges), y)
        else:
            AttentionClassifier("network", epochs=2).fit(frame, y)
    frame["copy"] = frame["chance"].astype(object).where(frame.index != 3, "many")
    with pytest.raises(ValueError, match=r"'many'; allowed: .*; in pandas, the dtype category"):
        NodeClassifier("mlp", epochs=2).fit((frame, edges), y)


def test_json_results_of_a_pair_name_both_files(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\nn0,n1\n")
    pair = ("--nodes", own / "nodes.csv", "--edges", own / "edges.csv")
    code, out, _ = said("train", *pair, QUICK, "--out", tmp_path / "run", "--json")
    assert code == 0 and json.loads(out)["source"] == f"{own / 'nodes.csv'}::{own / 'edges.csv'}"

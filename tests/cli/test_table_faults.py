r"""Tables without edges of any name, dates, and faults that say what is so and what helps."""

import numpy as np
import pytest
from test_people_tables import NODES, QUICK, column, twenty, write

from phgcn.data import Columns, GraphFileError, load_graph


@pytest.mark.parametrize("name", ["hedges", "customer_nodes", "nodes"])
def test_a_file_without_its_partner_is_a_table_without_edges(name, tmp_path, said):
    table = tmp_path / f"{name}.csv"
    table.write_text(twenty())
    code, _, err = said("train", table, QUICK, "--out", tmp_path / "run")
    assert code == 0 and "20 nodes, 0 edges" in err


def test_nodes_alone_are_a_table_without_edges(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\nn0,n1\n")
    nodes = ("--nodes", own / "nodes.csv")
    code, _, err = said("train", *nodes, QUICK, "--out", tmp_path / "run")
    assert code == 0 and "20 nodes, 0 edges, 20 isolated nodes, 1 feature\n" in err
    assert said("train", *nodes, "--out", tmp_path / "run", "--resume")[0] == 0
    assert said("evaluate", tmp_path / "run")[0] == 0


def test_advice_is_for_what_the_caller_has():
    pd = pytest.importorskip("pandas")
    from phgcn import AttentionClassifier, NodeClassifier

    frame = pd.DataFrame({"who": [f"p{k}" for k in range(40)], "age": range(40)})
    y = np.arange(40) % 2
    with pytest.raises(ValueError, match=r"or leave the column out$"):
        AttentionClassifier("network", epochs=2).fit(frame, y)
    edges = pd.DataFrame({"source": ["p1"], "target": ["p99"]})
    with pytest.raises(ValueError, match=r"leave the column out; id='who' makes it the ids$"):
        NodeClassifier("mlp", epochs=2).fit((frame, edges.iloc[:0]), y)
    with pytest.raises(ValueError, match=r"nodes; unknown_ids='drop' leaves such edges out$"):
        NodeClassifier("mlp", epochs=2, id="who").fit((frame, edges), y)


def test_labels_with_the_index_of_the_frame_go_by_position():
    pd = pytest.importorskip("pandas")
    from phgcn import NodeClassifier

    churn = ["no", "yes"] * 20
    nodes = pd.DataFrame({"cust": [f"c{k}" for k in range(40)], "f": range(40), "churn": churn})
    nodes = nodes.iloc[::-1]
    edges = pd.DataFrame({"source": ["c1"], "target": ["c2"]})
    estimator = NodeClassifier("mlp", epochs=2, id="cust", edge_features="none")
    with pytest.warns(UserWarning, match="'churn' is no feature"):
        estimator.fit((nodes, edges), nodes["churn"])
    assert [estimator.classes_[y] for y in estimator.graph_.y] == nodes["churn"].tolist()
    assert estimator.score(y=nodes["churn"]) == estimator.score((nodes, edges), nodes["churn"])


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["02/15/2024", "03/04/2024", ""], [19768, 19786]),
        (["15/02/2024", "04/03/2024 12:00", ""], [19768, 19786.5]),
        (["2-15-2024", "3-4-2024", "3-4-2024"], [19768, 19786, 19786]),
    ],
)
def test_a_day_above_12_shows_the_order_of_dates(cells, days, tmp_path):
    data = column(tmp_path, cells)
    assert data.x.flatten()[: len(days)].tolist() == days
    assert "are read as days since 1970" in data.notes[0]


@pytest.mark.parametrize("cells", [["02/03/2024", "03/04/2024"], ["15/02/2024", "02/15/2024"]])
def test_dates_of_no_clear_order_are_refused_in_frames_too(cells, tmp_path):
    pd = pytest.importorskip("pandas")
    said = "allowed: dates like 2024-12-31 or 31.12.2024; like 12/31/2024 only where days above 12"
    with pytest.raises(GraphFileError, match=said):
        column(tmp_path, cells)
    frame = pd.DataFrame({"when": cells * 4})
    columns = Columns(label=None)
    with pytest.raises(GraphFileError, match=f"{said}.*; in pandas, the dtype category"):
        load_graph((None, frame), columns=columns)
    frame["when"] = frame["when"].astype("category")
    assert load_graph((None, frame), columns=columns).feature_levels == {"when": sorted(cells)}


def test_durations_of_frames_are_days():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"stay": pd.to_timedelta([36, 12, None], unit="h")})
    data = load_graph((None, frame), columns=Columns(label=None))
    assert data.x.nan_to_num(-1).flatten().tolist() == [1.5, 0.5, -1]


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (lambda text: text + "\nn20,z,3", "the run knows no class 'z'"),
        (lambda text: text.replace("label,f", "label,g"), "column 'f' is missing"),
    ],
)
def test_new_classes_and_missing_columns_are_changes_of_the_file(nodes, line, tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\nn0,n1\n")
    command = ("train", own, "--out", tmp_path / "run")
    assert said(*command, QUICK)[0] == 0
    write(own, nodes(twenty()), "source,target\nn0,n1\n")
    code, _, err = said(*command, "--resume")
    assert code == 2 and f"own has changed since {tmp_path / 'run'} was begun: " in err
    assert line in err


def test_the_file_of_a_pair_that_has_changed_is_named(tmp_path, said):
    own = write(tmp_path / "own", twenty(), "source,target\nn0,n1\n")
    pair = ("--nodes", own / "nodes.csv", "--edges", own / "edges.csv")
    assert said("train", *pair, QUICK, "--out", tmp_path / "run")[0] == 0
    (own / "edges.csv").write_text("source,target\nn0,n2\n")
    code, _, err = said("train", *pair, "--out", tmp_path / "run", "--resume")
    assert code == 2 and "edges.csv has changed since" in err and "nodes.csv" not in err


def test_missing_columns_hide_no_slips_and_are_listed_whole(tmp_path, said):
    names = [f"a_column_with_a_long_name_{k}" for k in range(6)]
    (tmp_path / "t.csv").write_text(",".join(["target", *names]) + "\n" + ",".join("1234567"))
    code, _, err = said("train", tmp_path / "t.csv", f"--features {names[0]},typo --categorical x")
    assert code == 2 and f"found: {', '.join(['target', *names])}; allowed" in err
    assert "such as `--label target` (Python: label='target')" in err
    assert "column 'typo' is missing" in err


def test_rows_that_cannot_be_read_make_no_unknown_ids(tmp_path):
    edges = "source,target\na,p20\nb,zz\n"
    with pytest.raises(GraphFileError) as caught:
        load_graph(write(tmp_path / "own", f"{NODES}p20,x\n", edges))
    assert "the row has 2 cells" in caught.value.lines[0]
    assert "target is 'zz'" in caught.value.lines[1] and len(caught.value.lines) == 2
    with pytest.raises(GraphFileError) as caught:
        load_graph(write(tmp_path / "own", "label,f\nx\n", "source,target\n1,2\n"))
    assert len(caught.value.lines) == 1


def test_a_column_of_unique_texts_is_advised_as_ids(tmp_path, said):
    rows = "\n".join(f"p{k},{'xy'[k % 2]},{k}" for k in range(30))
    (tmp_path / "t.csv").write_text(f"customer,label,f\n{rows}")
    code, _, err = said("train", tmp_path / "t.csv")
    assert code == 2 and "`--id customer` (Python: id='customer') makes it the ids" in err


def test_one_thing_is_no_plural(tmp_path):
    own = write(tmp_path / "own", NODES, "source,target\na,b\nb,zz\n")
    data = load_graph(own, columns=Columns(unknown_ids="drop"))
    assert "1 edge left out, to unknown ids such as 'zz'" in data.notes

r"""Every kind of mistake in a graph file is refused with one clear line.  Each kind is a function that makes such a file and
returns what to load, with the text that the line must hold: the file, the row, the column, and what is wrong there."""

import io
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_files import EDGE_ROWS, NODE_ROWS, npz_arrays, write_arrays, write_csv, write_folder
from malformed_npz import KINDS, kind
from torch_geometric.data import Data, HeteroData

from phgcn.data import GraphFileError, load_graph

# npz: files that are damaged, or something else


def file(name: str, end: str, content: Callable[[], bytes], text: str) -> None:
    def make(folder: Path) -> Path:
        path = folder / f"own{end}"
        path.write_bytes(content())
        return path

    kind(f"{end[1:]}: {name}", make, f"own{end}{text}")


def good_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **npz_arrays())
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


BOMB = "exploded"


file("empty", ".npz", lambda: b"", ": this is no .npz file, or a damaged one (No data left in file)")
file("truncated", ".npz", lambda: good_npz()[:-40], ": this is no .npz file, or a damaged one")
file("cut in half", ".npz", lambda: good_npz()[: len(good_npz()) // 2], ": this is no .npz file, or a damaged one")
file("text", ".npz", lambda: b"source,target\n1,2\n", ": this is no .npz file, or a damaged one")
file("a bare pickle", ".npz", lambda: pickle.dumps(Bomb(BOMB)), ": this is no .npz file, or a damaged one")
file("a single array", ".npz", lambda: npy(np.ones(3)), ": this is a single array; allowed: an .npz file")
file("objects", ".npz", lambda: zipped(edges=npy(np.array([Bomb(BOMB)], object))), ": edges holds pickled objects")
file("no array inside", ".npz", lambda: zipped(edges=b"hello"), ": edges is damaged")
file(
    "an array that ends early",
    ".npz",
    lambda: zipped(edges=npy(np.ones((9, 2)))[:-8]),
    ": edges has shape (9, 2) but 136 bytes",
)
file("an empty archive", ".npz", lambda: zipped(), ": key node_labels is missing")


def flipped() -> bytes:
    """A good file with bytes changed in the middle of its largest member."""
    content = bytearray(zipped(**{name: npy(array) for name, array in npz_arrays().items()}))
    at = bytes(content).index(npz_arrays()["edges"].tobytes())
    content[at + 8] ^= 1
    return bytes(content)


file("a flipped bit", ".npz", flipped, ": edges is damaged (Bad CRC-32")


# CSV


def table(name: str, text: str, edges: list[list[str]] | None = None, nodes: list[list[str]] | None = None) -> None:
    def make(folder: Path) -> Path:
        return write_folder(folder / "own", edges or EDGE_ROWS, nodes or NODE_ROWS)

    kind(f"csv: {name}", make, text)


def cell(rows: list[list[str]], row: int, column: int, value: str) -> list[list[str]]:
    """The table with one cell changed; rows as the messages count them, from 1 with the header."""
    changed = [list(cells) for cells in rows]
    changed[row - 1][column] = value
    return changed


table("no source column", "edges.csv, row 1, column source: column 'source' is missing", cell(EDGE_ROWS, 1, 0, "from"))
table("no target column", "edges.csv, row 1, column target: column 'target' is missing", cell(EDGE_ROWS, 1, 1, "to"))
table(
    "no id column",
    "edges.csv, row 2, column source: source is 'a'; allowed: 1 to 4, as nodes.csv has no column id",
    nodes=cell(NODE_ROWS, 1, 0, "node"),
)
table("no label column", "nodes.csv, row 1, column label: column 'label' is missing", nodes=cell(NODE_ROWS, 1, 1, "class"))
table("column of no use", "edges.csv, row 1, column kind: column 'kind' has no use", [[*row, "kind"] for row in EDGE_ROWS])
table(
    "weight of text",
    "edges.csv, column 'weight': the weight is 'heavy'; allowed: numbers",
    [["source", "target", "weight"], *([*row, "heavy"] for row in EDGE_ROWS[1:])],
)
table(
    "empty weight",
    "edges.csv, row 3, column 'weight': the cell is empty",
    [["source", "target", "weight"], ["a", "b", "1"], ["b", "a", ""]],
)
table(
    "column twice", "nodes.csv, row 1, column 'height': column 'height' is there twice", nodes=cell(NODE_ROWS, 1, 3, "height")
)
table("column without a name", "nodes.csv, row 1, column 3: the column has no name", nodes=cell(NODE_ROWS, 1, 2, " "))
table("no features", "nodes.csv, row 1: there are no feature columns", nodes=[row[:2] for row in NODE_ROWS])
table(
    "unknown source",
    "edges.csv, row 3, column source: source is 'z'; allowed: the ids in nodes.csv",
    cell(EDGE_ROWS, 3, 0, "z"),
)
table("unknown target", "edges.csv, row 6, column target: target is '8'", cell(EDGE_ROWS, 6, 1, "8"))
table("empty target", "edges.csv, row 2, column target: target is empty", cell(EDGE_ROWS, 2, 1, ""))
table("id twice", "nodes.csv, row 5, column id: id 'b' is there already, in row 3", nodes=cell(NODE_ROWS, 5, 0, "b"))
table("empty id", "nodes.csv, row 4, column id: the id is empty", nodes=cell(NODE_ROWS, 4, 0, " "))
table("word for a number", "nodes.csv, row 3, column 'weight': the feature is 'much'", nodes=cell(NODE_ROWS, 3, 3, "much"))
table("decimal comma", "nodes.csv, row 3, column 'height': the feature is '1,5'", nodes=cell(NODE_ROWS, 3, 2, "1,5"))
table(
    "numbers after a word",
    "nodes.csv, row 2, column 'height': the feature is 'tall'; allowed: a number, or nothing",
    nodes=cell(NODE_ROWS, 2, 2, "tall"),
)
table(
    "remarks",
    "nodes.csv, column 'remark': the column holds 30 different texts in 30 rows; allowed: at most 1000 categories",
    EDGE_ROWS[:1],
    [["id", "label", "remark"], *([str(k), "x", f"a remark, number {k}"] for k in range(30))],
)
table(
    "a text among labels that are numbers",
    "nodes.csv, row 4, column label: label is 'tall'; allowed: a finite number",
    EDGE_ROWS[:1],
    [["id", "label", "f"], ["a", "1.5", "1"], ["b", "2.5", "1"], ["c", "tall", "1"], ["d", "0.5", "1"]],
)
table("infinity", "nodes.csv, row 2, column 'weight': the feature is -inf", nodes=cell(NODE_ROWS, 2, 3, "-inf"))
table("beyond float32", "nodes.csv, row 2, column 'weight': the feature is inf", nodes=cell(NODE_ROWS, 2, 3, "1e39"))
table(
    "label is NaN",
    "nodes.csv, row 3, column label: label is 'nan'; allowed: a name, or nothing",
    nodes=cell(NODE_ROWS, 3, 1, "nan"),
)
table(
    "short row", "nodes.csv, row 3, column weight: the row has 3 cells; allowed: 4", nodes=[*NODE_ROWS[:2], ["b", "dog", "1"]]
)
table("long row", "edges.csv, row 4, column 3: the row has 3 cells; allowed: 2", [*EDGE_ROWS[:3], ["a", "b", "c"]])
table("only a header", "nodes.csv, row 1: there are no rows below the header", nodes=NODE_ROWS[:1])
table("line break in an id", r"nodes.csv, row 2, column id: id is 'a\nb'", nodes=cell(NODE_ROWS, 2, 0, "a\nb"))
table("NUL in a label", r"nodes.csv, row 2", nodes=cell(NODE_ROWS, 2, 1, "ca\0t"))


def raw_table(name: str, text: str, **content: bytes | None) -> None:
    """A folder of good tables with one file given as bytes, or left out."""

    def make(folder: Path) -> Path:
        own = write_folder(folder / "own")
        for stem, changed in content.items():
            if changed is None:
                (own / f"{stem}.csv").unlink()
            else:
                (own / f"{stem}.csv").write_bytes(changed)
        return own

    kind(f"csv: {name}", make, text)


raw_table("empty file", "edges.csv, row 1: the file is empty", edges=b"")
raw_table("blank lines only", "nodes.csv, row 1: the file is empty", nodes=b"\n\n\n")
raw_table("Latin-1", "nodes.csv, row 3: the text is not UTF-8", nodes=b"id,label,f\na,x,1\nb,caf\xe9,2\n")
raw_table("UTF-16", "edges.csv, row 1: the text is not UTF-8", edges="source,target\na,b\n".encode("utf-16"))
raw_table("binary", "edges.csv, row 2: the text is not UTF-8", edges=bytes(range(256)))
raw_table("quote left open", "edges.csv, row 3: this row is no CSV", edges=b'source,target\na,b\n"a,b\nb,a\n')
raw_table("text after a quote", "edges.csv, row 2: this row is no CSV", edges=b'source,target\n"a"x,b\n')
raw_table(
    "another delimiter than in the header",
    "edges.csv, row 2, column target: the row has 1 cells; allowed: 2",
    edges=b"source;target\na,b\n",
)
raw_table("no nodes file", "own: there is no nodes.csv (nor .csv.gz", nodes=None)
raw_table("no edges file", "own: there is no edges.csv (nor .csv.gz", edges=None)
raw_table("no file at all", "own: there is no edges.csv (nor .csv.gz", edges=None, nodes=None)


def other(name: str, text: str):
    """Marks a function as the maker of a kind."""

    def mark(make: Callable[[Path], object]) -> Callable[[Path], object]:
        kind(name, make, text)
        return make

    return mark


@other("csv: both formats", "own: there is both edges.csv and edges.parquet")
def both_formats(folder: Path) -> Path:
    own = write_folder(folder / "own")
    (own / "edges.parquet").write_bytes(b"")
    return own


@other("csv: a table alone", ": there is no my_nodes.csv (nor .csv.gz")
def table_alone(folder: Path) -> Path:
    return write_csv(folder / "my_edges.csv", EDGE_ROWS)


@other("csv: a folder instead of a file", "nodes.csv: this is a folder")
def folder_as_table(folder: Path) -> tuple[Path, Path]:
    own = write_folder(folder / "own")
    (own / "nodes.csv").unlink()
    (own / "nodes.csv").mkdir()
    return own / "edges.csv", own / "nodes.csv"


@other("pair: one is missing", "nodes.csv: there is no such file")
def pair_with_a_missing_file(folder: Path) -> tuple[Path, Path]:
    return write_csv(folder / "edges.csv", EDGE_ROWS), folder / "nodes.csv"


@other("pair: of another kind", "nodes.ods: files of kind '.ods' are not read; allowed: .csv, .csv.gz")
def pair_of_another_kind(folder: Path) -> tuple[Path, Path]:
    return write_csv(folder / "edges.csv", EDGE_ROWS), write_csv(folder / "nodes.ods", NODE_ROWS)


@other("path: does not exist", "nowhere.npz: there is no such file or folder")
def nowhere(folder: Path) -> Path:
    return folder / "nowhere.npz"


@other("path: a name that is not known", "no graph of this name (did you mean wisconsin?)")
def misspelled(folder: Path) -> str:
    return "wisconsen"


@other("path: a folder that is empty", "empty: there is no edges.csv (nor .csv.gz")
def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@other("path: a folder named like a file", "own.npz: there is no edges.csv")
def folder_as_npz(folder: Path) -> Path:
    (folder / "own.npz").mkdir()
    return folder / "own.npz"


@other("path: of another kind", "graph.gml: files of kind '.gml' are not read; allowed: an .npz")
def another_kind(folder: Path) -> Path:
    (folder / "graph.gml").write_text("graph []")
    return folder / "graph.gml"


# Files of torch.save


def saved(name: str, text: str, content: Callable[[], object]) -> None:
    def make(folder: Path) -> Path:
        torch.save(content(), folder / "own.pt")
        return folder / "own.pt"

    kind(f"pt: {name}", make, f"own.pt{text}")


def tensors(**changed: object) -> dict:
    good = {"x": torch.ones(3, 2), "y": torch.tensor([0, 1, 0]), "edge_index": torch.tensor([[0, 1], [1, 2]])}
    return {key: value for key, value in (good | changed).items() if value is not None}


saved("a pickle that runs code", ": the pickle inside asks for posix.mkdir, which could run code", lambda: Bomb(BOMB))
saved("the same beside tensors", ": the pickle inside asks for posix.mkdir", lambda: tensors(extra=Bomb(BOMB)))
saved("the same in a Data", ": the pickle inside asks for posix.mkdir", lambda: Data(**tensors(), extra=Bomb(BOMB)))
saved("a tensor", ": it holds a Tensor; allowed: a Data of PyG, or a dict", lambda: torch.ones(3))
saved(
    "several kinds of nodes",
    ": the pickle inside asks for torch_geometric.data.storage.BaseStorage",
    lambda: HeteroData(paper={"x": torch.ones(3, 2)}),
)
saved("no x", ": x is missing", lambda: tensors(x=None))
saved("no y", ": y is missing", lambda: Data(**tensors(y=None)))
saved("no edges", ": edge_index is missing", lambda: tensors(edge_index=None))
saved("a list of labels", ": y is a list; allowed: a tensor", lambda: tensors(y=[0, 1, 0]))
saved("float labels", ": y is float32; allowed: integers", lambda: tensors(y=torch.ones(3)))
saved("label below -1", ", row 2: y is -2", lambda: tensors(y=torch.tensor([0, 1, -2])))
saved("label gap", ": y goes up to 2 but no node has label 1", lambda: tensors(y=torch.tensor([0, 2, 0])))
saved("edge out of range", ", row 1, column 1: edge_index is 3", lambda: tensors(edge_index=torch.tensor([[0, 1], [1, 3]])))
saved(
    "edges in rows", ": edge_index has shape (3, 2); allowed: (2, edges)", lambda: tensors(edge_index=torch.ones(3, 2).long())
)
saved("NaN", ", row 1, column 0: x is nan", lambda: tensors(x=torch.tensor([[1.0], [float("nan")], [0.0]])))
saved("bfloat16", ": x is torch.bfloat16", lambda: tensors(x=torch.ones(3, 2).bfloat16()))
saved("one mask", ": val_mask is missing though train_mask is there", lambda: tensors(train_mask=torch.ones(3) > 0))
saved("ids of numbers", ": node_id is [1, 2, 3]; allowed: a list of strings", lambda: tensors(node_id=[1, 2, 3]))
file("empty", ".pt", lambda: b"", ": this was not written by torch.save, or is damaged")
file("a bare pickle", ".pt", lambda: pickle.dumps(Bomb(BOMB)), ": the pickle inside is of a kind that could run code")


def good_pt() -> bytes:
    buffer = io.BytesIO()
    torch.save(tensors(), buffer)
    return buffer.getvalue()


file("truncated", ".pt", lambda: good_pt()[:-100], ": this was not written by torch.save, or is damaged")


# All of them


def test_there_are_more_than_fifty_kinds_and_no_two_have_the_same_name():
    names = [name for name, _, _ in KINDS]
    assert len(set(names)) == len(names) > 100


@pytest.mark.parametrize(("make", "text"), [entry[1:] for entry in KINDS], ids=[entry[0] for entry in KINDS])
def test_it_is_refused_in_one_line_that_names_the_place(tmp_path, monkeypatch, make, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphFileError, match=re.escape(text)) as caught:
        load_graph(make(tmp_path))
    message = str(caught.value)
    assert message.isprintable(), "more than one line"
    assert len(message) < 900
    assert not Path(BOMB).exists(), "the file ran code"


def test_the_files_that_the_kinds_start_from_are_good(tmp_path):
    for dense in (False, True):
        load_graph(write_arrays(tmp_path / "own.npz", npz_arrays(dense=dense)))
    load_graph(write_folder(tmp_path / "own"))
    (tmp_path / "own.pt").write_bytes(good_pt())
    load_graph(tmp_path / "own.pt")


def test_the_bomb_goes_off_where_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb(BOMB)))
    assert Path(BOMB).exists()

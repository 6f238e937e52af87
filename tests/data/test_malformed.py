r"""Every kind of mistake in a graph file is refused with one clear line.  Each is a function that
makes such a file and returns what to load, with the text that the line must hold: the file, the
row, the column, and what is wrong there."""

import contextlib
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
from malformed_npz import MISTAKES
from torch_geometric.data import Data, HeteroData

from phgcn.data import GraphFileError, load_graph

# Files of bytes


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (BOMB,)


BOMB = "exploded"


def file(end: str, content: Callable[[], bytes], text: str) -> None:
    def make(folder: Path) -> Path:
        path = folder / f"own{end}"
        path.write_bytes(content())
        return path

    MISTAKES.append((make, f"own{end}{text}"))


def written(write: Callable, *content: object, **options: object) -> bytes:
    """What a function writes into a file."""
    buffer = io.BytesIO()
    write(buffer, *content, **options)
    return buffer.getvalue()


def good_npz() -> bytes:
    return written(np.savez_compressed, **npz_arrays())


def npy(array: np.ndarray) -> bytes:
    return written(np.save, array, allow_pickle=True)


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def flipped() -> bytes:
    """A good file with a bit changed in the edges."""
    content = bytearray(zipped(**{name: npy(array) for name, array in npz_arrays().items()}))
    content[bytes(content).index(npz_arrays()["edges"].tobytes()) + 8] ^= 1
    return bytes(content)


NO_NPZ = ": this is no .npz file, or a damaged one"
file(".npz", lambda: b"", f"{NO_NPZ} (No data left in file)")
file(".npz", lambda: good_npz()[:-40], NO_NPZ)
file(".npz", lambda: good_npz()[: len(good_npz()) // 2], NO_NPZ)
file(".npz", lambda: b"source,target\n1,2\n", NO_NPZ)
file(".npz", lambda: pickle.dumps(Bomb()), NO_NPZ)
file(".npz", lambda: npy(np.ones(3)), ": this is a single array; allowed: an .npz file")
objects = np.array([Bomb()], object)
file(".npz", lambda: zipped(edges=npy(objects)), ": edges holds pickled objects")
file(".npz", lambda: zipped(edges=b"hello"), ": edges is damaged")
ends_early = ": edges has shape (9, 2) but 136 bytes"
file(".npz", lambda: zipped(edges=npy(np.ones((9, 2)))[:-8]), ends_early)
file(".npz", lambda: zipped(), ": key node_labels is missing")
file(".npz", flipped, ": edges is damaged (Bad CRC-32")


# Tables


def table(
    text: str, edges: list[list[str]] | None = None, nodes: list[list[str]] | None = None
) -> None:
    def make(folder: Path) -> Path:
        return write_folder(folder / "own", edges or EDGE_ROWS, nodes or NODE_ROWS)

    MISTAKES.append((make, text))


def changed(rows: list[list[str]], row: int, column: int, value: str) -> list[list[str]]:
    """The table with one cell changed; rows as the messages count them, from 1 with the header."""
    cells = [list(cells) for cells in rows]
    cells[row - 1][column] = value
    return cells


def edges(row: int, column: int, value: str, text: str) -> None:
    table(f"edges.csv, {text}", changed(EDGE_ROWS, row, column, value))


def nodes(row: int, column: int, value: str, text: str) -> None:
    table(f"nodes.csv, {text}", nodes=changed(NODE_ROWS, row, column, value))


edges(1, 0, "from", "row 1, column source: column 'source' is missing")
edges(1, 1, "to", "row 1, column target: column 'target' is missing")
edges(3, 0, "z", "row 3, column source: source is 'z'; allowed: the ids in nodes.csv")
edges(6, 1, "8", "row 6, column target: target is '8'")
edges(2, 1, "", "row 2, column target: target is empty")
nodes(1, 1, "class", "row 1, column label: column 'label' is missing")
nodes(1, 3, "height", "row 1, column 'height': column 'height' is there twice")
nodes(1, 2, " ", "row 1, column 3: the column has no name")
nodes(5, 0, "b", "row 5, column id: id 'b' is there already, in row 3")
nodes(4, 0, " ", "row 4, column id: the id is empty")
nodes(3, 3, "much", "row 3, column 'weight': the cell is 'much'")
nodes(3, 2, "1,5", "row 3, column 'height': the cell is '1,5'")
no_number = "the cell is 'tall'; allowed: a number, or nothing"
nodes(2, 2, "tall", f"row 2, column 'height': {no_number}")
nodes(2, 3, "-inf", "row 2, column 'weight': the cell is -inf")
nodes(2, 3, "1e39", "row 2, column 'weight': the cell is inf")
nodes(3, 1, "None", "row 3, column label: label is 'None'; allowed: a name, or nothing")
nodes(2, 0, "a\nb", r"row 2, column id: id is 'a\nb'")
nodes(2, 1, "ca\0t", "row 2")
no_ids = "source is 'a'; allowed: 1 to 4, as nodes.csv has no column id"
unnamed = changed(NODE_ROWS, 1, 0, "node")
table(f"edges.csv, row 2, column source: {no_ids}", nodes=unnamed)
use = "edges.csv, row 1, column kind: column 'kind' has no use"
table(use, [[*row, "kind"] for row in EDGE_ROWS])
heavy = "edges.csv, column 'weight': the weight is 'heavy'; allowed: numbers"
table(heavy, [["source", "target", "weight"], *([*row, "heavy"] for row in EDGE_ROWS[1:])])
gap = "edges.csv, row 3, column 'weight': the cell is empty"
table(gap, [["source", "target", "weight"], ["a", "b", "1"], ["b", "a", ""]])
no_features = "nodes.csv, row 1: there are no feature columns"
table(no_features, nodes=[row[:2] for row in NODE_ROWS])
remarks = "nodes.csv, column 'remark': the column holds 30 different texts in 30 rows; allowed: at"
remark_rows = [[str(k), "x", f"a remark, number {k}"] for k in range(30)]
table(f"{remarks} most 1000", EDGE_ROWS[:1], [["id", "label", "remark"], *remark_rows])
tall = "nodes.csv, row 4, column label: label is 'tall'; allowed: a finite number"
label_rows = [
    [id, label, "1"] for id, label in zip("abcd", ("1.5", "2.5", "tall", "0.5"), strict=True)
]
table(tall, EDGE_ROWS[:1], [["id", "label", "f"], *label_rows])
few_cells = "nodes.csv, row 3, column weight: the row has 3 cells; allowed: 4"
table(few_cells, nodes=[*NODE_ROWS[:2], ["b", "dog", "1"]])
many_cells = "edges.csv, row 4, column 3: the row has 3 cells; allowed: 2"
table(many_cells, [*EDGE_ROWS[:3], ["a", "b", "c"]])
table("nodes.csv, row 1: there are no rows below the header", nodes=NODE_ROWS[:1])


def raw_table(text: str, **content: bytes | None) -> None:
    """A folder of good tables with one file given as bytes, or left out."""

    def make(folder: Path) -> Path:
        own = write_folder(folder / "own")
        for stem, changed in content.items():
            if changed is None:
                (own / f"{stem}.csv").unlink()
            else:
                (own / f"{stem}.csv").write_bytes(changed)
        return own

    MISTAKES.append((make, text))


raw_table("edges.csv, row 1: the file is empty", edges=b"")
raw_table("nodes.csv, row 1: the file is empty", nodes=b"\n\n\n")
latin = b"id,label,f\na,x,1\nb,caf\xe9,2\n"
raw_table("nodes.csv, row 3: the text is not UTF-8", nodes=latin)
utf_16 = "source,target\na,b\n".encode("utf-16")
raw_table("edges.csv, row 1: the text is not UTF-8", edges=utf_16)
raw_table("edges.csv, row 2: the text is not UTF-8", edges=bytes(range(256)))
quote = "edges.csv, row 3, column target: this row is no CSV; allowed: double quotes in pairs"
raw_table(quote, edges=b'source,target\na,b\n"a,b\nb,a\n')
after_quote = "edges.csv, row 2, column source: source is 'ax'; allowed: the ids"
raw_table(after_quote, edges=b'source,target\n"a"x,b\n')
delimiter = "edges.csv, row 2, column target: the row has 1 cells; allowed: 2"
raw_table(delimiter, edges=b"source;target\na,b\n")
raw_table("own: there is no nodes.csv (nor .csv.gz", nodes=None)
raw_table("own: there is no edges.csv (nor .csv.gz", edges=None)


# Paths


def mistake(text: str) -> Callable:
    """Marks a function as the maker of a mistake."""
    return lambda make: MISTAKES.append((make, text))


@mistake("own: there is both edges.csv and edges.parquet")
def both_formats(folder: Path) -> Path:
    own = write_folder(folder / "own")
    (own / "edges.parquet").write_bytes(b"")
    return own


@mistake("my_edges.csv, row 1, column label: column 'label' is missing; found: source, target")
def table_alone(folder: Path) -> Path:
    return write_csv(folder / "my_edges.csv", EDGE_ROWS)


@mistake("nodes.csv: this is a folder")
def folder_as_table(folder: Path) -> tuple[Path, Path]:
    (folder / "nodes.csv").mkdir()
    return write_csv(folder / "edges.csv", EDGE_ROWS), folder / "nodes.csv"


@mistake("nodes.csv: there is no such file")
def pair_with_a_missing_file(folder: Path) -> tuple[Path, Path]:
    return write_csv(folder / "edges.csv", EDGE_ROWS), folder / "nodes.csv"


@mistake("nodes.ods: files of kind '.ods' are not read; allowed: .csv, .csv.gz")
def pair_of_another_kind(folder: Path) -> tuple[Path, Path]:
    return write_csv(folder / "edges.csv", EDGE_ROWS), write_csv(folder / "nodes.ods", NODE_ROWS)


@mistake("nowhere.npz: there is no such file or folder")
def nowhere(folder: Path) -> Path:
    return folder / "nowhere.npz"


@mistake("no graph of this name (did you mean 'wisconsin'?)")
def misspelled(folder: Path) -> str:
    return "wisconsen"


@mistake("own.npz: there is no edges.csv (nor .csv.gz")
def folder_as_npz(folder: Path) -> Path:
    (folder / "own.npz").mkdir()
    return folder / "own.npz"


@mistake("graph.gml: files of kind '.gml' are not read; allowed: an .npz")
def another_kind(folder: Path) -> Path:
    (folder / "graph.gml").write_text("graph []")
    return folder / "graph.gml"


# Files of torch.save


def saved(text: str, content: Callable[[], object]) -> None:
    def make(folder: Path) -> Path:
        torch.save(content(), folder / "own.pt")
        return folder / "own.pt"

    MISTAKES.append((make, f"own.pt{text}"))


def tensors(**changed: object) -> dict:
    edges = torch.tensor([[0, 1], [1, 2]])
    good = {"x": torch.ones(3, 2), "y": torch.tensor([0, 1, 0]), "edge_index": edges}
    return {key: value for key, value in (good | changed).items() if value is not None}


RUNS = ": the pickle inside asks for posix.mkdir, which could run code"
saved(RUNS, lambda: Bomb())
saved(RUNS, lambda: tensors(extra=Bomb()))
saved(RUNS, lambda: Data(**tensors(), extra=Bomb()))
saved(": it holds a Tensor; allowed: a Data of PyG, or a dict", lambda: torch.ones(3))
hetero = ": the pickle inside asks for torch_geometric.data.storage.BaseStorage"
saved(hetero, lambda: HeteroData(paper={"x": torch.ones(3, 2)}))
saved(": x is missing", lambda: tensors(x=None))
saved(": y is missing", lambda: Data(**tensors(y=None)))
saved(": edge_index is missing", lambda: tensors(edge_index=None))
saved(": y is a list; allowed: a tensor", lambda: tensors(y=[0, 1, 0]))
saved(": y is float32; allowed: integers", lambda: tensors(y=torch.ones(3)))
saved(", row 2: y is -2", lambda: tensors(y=torch.tensor([0, 1, -2])))
saved(": y goes up to 2 but no node has label 1", lambda: tensors(y=torch.tensor([0, 2, 0])))
outside = torch.tensor([[0, 1], [1, 3]])
saved(", row 1, column 1: edge_index is 3", lambda: tensors(edge_index=outside))
in_rows = ": edge_index has shape (3, 2); allowed: (2, edges)"
saved(in_rows, lambda: tensors(edge_index=torch.ones(3, 2).long()))
nan = torch.tensor([[1.0], [float("nan")], [0.0]])
saved(", row 1, column 0: x is nan", lambda: tensors(x=nan))
saved(": x is torch.bfloat16", lambda: tensors(x=torch.ones(3, 2).bfloat16()))
one_mask = ": val_mask is missing though train_mask is there"
saved(one_mask, lambda: tensors(train_mask=torch.ones(3) > 0))
saved(": node_id is [1, 2, 3]; allowed: a list of strings", lambda: tensors(node_id=[1, 2, 3]))
NOT_SAVED = ": this was not written by torch.save, or is damaged"
file(".pt", lambda: b"", NOT_SAVED)
file(".pt", lambda: written(lambda at, what: torch.save(what, at), tensors())[:-100], NOT_SAVED)
bare_pickle = ": the pickle inside is of a kind that could run code"
file(".pt", lambda: pickle.dumps(Bomb()), bare_pickle)


# All of them


@pytest.mark.parametrize(("make", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_it_is_refused_in_one_line_that_names_the_place(tmp_path, monkeypatch, make, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphFileError, match=re.escape(text)) as caught:
        load_graph(make(tmp_path))
    message = str(caught.value)
    assert message.isprintable(), "more than one line"
    assert len(message) < 900
    assert not Path(BOMB).exists(), "the file ran code"


def test_the_files_that_the_mistakes_start_from_are_good(tmp_path):
    for dense in (False, True):
        load_graph(write_arrays(tmp_path / "own.npz", npz_arrays(dense=dense)))
    load_graph(write_folder(tmp_path / "own"))
    torch.save(tensors(), tmp_path / "own.pt")
    load_graph(tmp_path / "own.pt")


def load_unsafely(path: Path) -> None:
    """Loads a file without a refusal; what else is wrong with it does not matter."""
    with contextlib.suppress(Exception):
        if path.suffix == ".pt":
            torch.load(path, weights_only=False)
        else:
            np.load(path, allow_pickle=True)["edges"]


def test_the_bombs_go_off_where_nothing_is_refused(tmp_path, monkeypatch):
    exploded = 0
    for number, (make, _) in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        path = make(folder)
        if isinstance(path, Path) and path.is_file() and BOMB.encode() in path.read_bytes():
            load_unsafely(path)
            assert Path(BOMB).exists()
            exploded += 1
    assert exploded == 6

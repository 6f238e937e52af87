"""Graphs divided into parts, in memory and as files."""

import json

import numpy as np
import pytest
import torch
from real_graphs import needs

from phgcn.cli.app import run as command
from phgcn.distributed.part_files import is_partition, join_parts, read_for_process, read_part
from phgcn.distributed.partition import divide_graph, make_part
from phgcn.train import find
from phgcn.train.graph import digest

EDGES = torch.tensor([[0, 1, 4, 2, 5, 3, 3], [1, 0, 1, 5, 2, 3, 4]])


def test_a_part_has_all_edges_that_end_in_its_nodes():
    part = make_part(EDGES, torch.tensor([0, 0, 1, 1, 1, 2]), 0, 3)
    assert (
        part.nodes.tolist() == [0, 1]
        and part.boundary.tolist() == [4]
        and part.receive == [0, 1, 0]
    )
    assert part.edge_index.tolist() == [[0, 1, 2], [1, 0, 1]] and part.edges.tolist() == [0, 1, 2]


def test_contiguous_parts_and_their_cut():
    divided = divide_graph(EDGES, 6, 2, "contiguous")
    assert divided.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert divided.cut == pytest.approx(3 / 7)


@needs("texas")
def test_metis_cuts_fewer_edges():
    pytest.importorskip("pymetis")
    data = find("cora")[1]
    by_metis, in_order = (
        divide_graph(data.edge_index, data.num_nodes, 4, method)
        for method in ("metis", "contiguous")
    )
    assert by_metis.cut < 0.2 < in_order.cut
    assert by_metis.owner.bincount().max() < 1.1 * data.num_nodes / 4
    assert divide_graph(data.edge_index, data.num_nodes, 4, "auto").method == "metis"


@pytest.mark.parametrize(
    ("method", "said"),
    [("spectral", "division is 'spectral'"), ("metis", "needs the package pymetis")],
)
def test_a_division_that_is_not_there_is_refused(monkeypatch, method, said):
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(ValueError, match=said):
        divide_graph(EDGES, 6, 2, method)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The folder of three parts of texas."""
    folder = tmp_path_factory.mktemp("parts") / "texas"
    assert command(["partition", "texas", "--parts", "3", "--out", str(folder)]) == 0
    return folder


@needs("texas")
def test_parts_make_the_whole_graph(parts):
    data, joined = find("texas")[1], join_parts(parts)
    assert digest(joined) == digest(data)
    for key, value in data.to_dict().items():
        if isinstance(value, torch.Tensor):
            same = [value, joined[key]]
            assert torch.equal(*(t if t.layout == torch.strided else t.to_dense() for t in same)), (
                key
            )
        else:
            assert json.loads(json.dumps(value)) == json.loads(json.dumps(joined[key])), key
    assert digest(find(str(parts))[1]) == digest(data)


@needs("texas")
def test_a_process_reads_its_part_alone(parts):
    whole, sizes = find("texas")[1], []
    for rank in range(3):
        data, part = read_part(parts, rank)
        assert data.x.size(0) == len(part.nodes) and data.edge_index.size(1) == len(part.edges)
        assert torch.equal(data.y, whole.y) and digest(data) == digest(whole)
        sizes.append(len(part.nodes))
    assert sum(sizes) == whole.num_nodes
    mapped = np.load(parts / "part-000" / "edge_index.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    with pytest.raises(ValueError, match="has 3 parts for 2 processes; allowed: 3 processes, or 1"):
        read_for_process(parts, 0, 2)


@needs("texas")
def test_damaged_and_missing_files_are_named(parts, tmp_path):
    import shutil

    folder = shutil.copytree(parts, tmp_path / "copy")
    file = folder / "part-001" / "edge_index.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"part-001/edge_index.npy: its checksum is wrong"):
        read_part(folder, 1)
    read_part(folder, 0)  # the other parts are whole
    file.unlink()
    with pytest.raises(ValueError, match=r"part-001/edge_index.npy: is missing"):
        read_part(folder, 1)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"manifest.json: not the parts of a graph"):
        read_part(folder, 0)
    assert is_partition(folder) and not is_partition(tmp_path)


@needs("texas")
def test_wrong_numbers_of_parts_and_full_folders_are_refused(parts, tmp_path, capsys):
    assert command(["partition", "texas", "--parts", "0", "--out", str(tmp_path / "new")]) == 2
    assert "parts is 0; allowed: 1 to 183" in capsys.readouterr().err
    assert command(["partition", "texas", "--parts", "2", "--out", str(parts)]) == 2
    assert "is not empty; allowed: a new folder" in capsys.readouterr().err
    assert command(["train", str(parts), "--directed", "--out", str(tmp_path / "run")]) == 2
    assert "its parts were made with directed False" in capsys.readouterr().err

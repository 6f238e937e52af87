"""What docs/architecture.md says of files, functions and hops is in the code."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "phgcn"
MOST_HOPS = 8
WALKS = ("walk-cpu", "walk-gpu")


def rows(name):
    """The cells of the table between two marks, without its heading."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end {name} -->", text, flags=re.DOTALL)[1]
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in block.splitlines()[2:]
    ]


def hops(name, way):
    """File, function and what it calls, of each hop of one way, which are numbered from 1 on. Hops
    that a walk leaves out are those on the CPU.
    """
    own, cpu = (
        [row for row in rows(walk) if row[0].split()[0] == way] for walk in (name, "walk-cpu")
    )
    found = [*cpu[: int(own[0][0].split()[1]) - 1], *own]
    assert [row[0] for row in found] == [f"{way} {number}" for number in range(1, len(found) + 1)]
    return [tuple(row[1:]) for row in found]


def function_source(file, name):
    """The text of a function, or of a method as ``Class.method``; :obj:`None` if the file has none
    of this name.
    """
    text = (SOURCE / file).read_text(encoding="utf-8")
    body = ast.parse(text).body
    *classes, function = name.split(".")
    for owner in classes:
        body = next(
            (node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner),
            [],
        )
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    # the last, as overloads come before
    return ast.get_source_segment(text, found[-1]) if found else None


@pytest.mark.parametrize("way", ["forward", "back"])
@pytest.mark.parametrize("name", WALKS)
def test_every_hop_of_a_walk_is_in_the_code(name, way):
    walk = hops(name, way)
    for file, function, calls in walk:
        source = function_source(file, function)
        assert source is not None, f"{file} has no {function}"
        assert calls in re.sub(r"\s+", "", source) or calls in source, (
            f"{function} in {file} does not call {calls}"
        )
    assert all(calls for _, _, calls in walk[:-1]) and not walk[-1][2]
    for (_, _, calls), (_, function, _) in pairwise(walk):
        assert calls.startswith("torch.ops.") or function.split(".")[-1] in calls, (
            f"{calls} does not lead to {function}"
        )


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_leads_from_the_layer_to_the_ladder(name):
    walk = hops(name, "forward")
    assert walk[0][:2] == ("nn/phgcn_conv.py", "PHGCNConv.forward")
    assert walk[-1][0] in ("lattice/numba/moves.py", "lattice/joint/ladder.py")


def test_a_walk_is_short():
    assert max(len(hops(name, way)) for name in WALKS for way in ("forward", "back")) <= MOST_HOPS


def test_the_rooms_are_those_of_the_package():
    there = {
        path.name
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert {room.strip("` ") for rooms, _ in rows("rooms") for room in rooms.split(",")} == there


@pytest.mark.parametrize(
    "changed", [("nn/phgcn_conv.py", "PHGCNConv.gone"), ("functional.py", "gone")]
)
def test_a_function_that_is_gone_is_noticed(changed):
    assert function_source(*changed) is None

"""The examples of docs/layers.md are the files in examples/, and they run."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(name, capsys):
    """What an example prints."""
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["swap_gat.py", "points.py", "global_block.py"])
def test_the_document_shows_the_example_as_it_is(name):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/layers.md").read_text(), flags=re.DOTALL)
    assert (ROOT / "examples" / name).read_text() in blocks


def test_the_other_snippets_of_the_document_run():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/layers.md").read_text(), flags=re.DOTALL)
    files = {path.read_text() for path in (ROOT / "examples").glob("*.py")}
    snippets = [block for block in blocks if block not in files]
    assert len(snippets) >= 3
    names = {}
    for snippet in snippets:  # one after the other, as they are read
        exec(compile(snippet, "docs/layers.md", "exec"), names)


def test_swapping_the_layer_helps_where_edges_say_nothing(capsys):
    found = dict(re.findall(r"(\w+) +accuracy ([\d.]+)", run("swap_gat.py", capsys)))
    assert float(found["PHGCNConv"]) > float(found["GATConv"]) + 0.05


def test_points_learn_what_only_their_cloud_tells(capsys):
    found = re.search(r"accuracy ([\d.]+), .* gets ([\d.]+)", run("points.py", capsys))
    assert float(found[1]) > 0.9 > float(found[2])


def test_a_global_block_tells_what_a_few_neighbours_do_not(capsys):
    printed = run("global_block.py", capsys)
    found = {name.strip(): float(value) for name, value in re.findall(r"(.+?) accuracy ([\d.]+)", printed)}
    assert found["GraphSAGE"] < 0.85
    assert found["GraphSAGE + GlobalBlock"] > 0.9 and found["GPSConv + GlobalBlock"] > 0.9

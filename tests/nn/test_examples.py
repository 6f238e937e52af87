"""The examples that docs/layers.md names, and its snippets, run."""

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
def test_the_document_names_the_example(name):
    assert f"[{name}](../examples/{name})" in (ROOT / "docs/layers.md").read_text()


def test_the_snippets_of_the_document_run():
    snippets = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/layers.md").read_text(), flags=re.DOTALL
    )
    assert len(snippets) >= 9
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
    found = {
        name.strip(): float(value)
        for name, value in re.findall(r"(.+?) accuracy ([\d.]+)", printed)
    }
    assert found["GraphSAGE"] < 0.85
    assert found["GraphSAGE + GlobalBlock"] > 0.9 and found["GPSConv + GlobalBlock"] > 0.9

"""The examples that docs/own-graphs.md names run, and learn what they are about."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def numbers(name, capsys):
    """The numbers that an example prints, which the document names."""
    assert f"examples/{name}" in (ROOT / "docs" / "own-graphs.md").read_text(encoding="utf-8")
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return [float(number) for number in re.findall(r"\d\.\d+", capsys.readouterr().out)]


def test_whole_graphs_are_classified_and_measured(capsys):
    accuracy, error, error_of_the_mean = numbers("graph_tasks.py", capsys)
    assert accuracy > 0.95 and error < 0.6 * error_of_the_mean


def test_links_are_found(capsys):
    area, area_of_features = numbers("link_prediction.py", capsys)
    assert area > 0.8 and area > area_of_features + 0.1

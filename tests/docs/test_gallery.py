"""The examples of the gallery do what its page says."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = {
    row["example"]: row
    for row in json.loads((ROOT / "docs/results/gallery.json").read_text(encoding="utf-8"))["rows"]
}


def run(name, capsys, monkeypatch, **constants):
    """What an example prints; constants of it may be replaced."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr(sys, "argv", [name])
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    for constant, value in constants.items():
        text, count = re.subn(
            rf"^(.*\b{constant}\b.* = .*)$",
            rf"\1\n{constant} = {value}",
            text,
            count=1,
            flags=re.MULTILINE,
        )
        assert count == 1
    exec(compile(text, name, "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out


def numbers(printed):
    return [float(number) for number in re.findall(r"\d+\.\d+", printed)]


@pytest.mark.parametrize("name", ["bilateral", "smooth_cloud"])
def test_an_example_prints_what_the_page_says(name, capsys, monkeypatch):
    assert numbers(run(name, capsys, monkeypatch)) == pytest.approx(
        numbers(KEPT[name]["printed"]), rel=0.01
    )


def test_edges_stay_and_noise_goes():
    noisy, blurred, bilateral = numbers(KEPT["bilateral"]["printed"])
    assert bilateral > max(noisy, blurred) + 3


def test_attention_finds_the_other_token(capsys, monkeypatch):
    attentive, blind = numbers(run("transformer", capsys, monkeypatch, STEPS=100))
    assert attentive > 0.5 > 0.2 > blind


def test_the_demo_tells_time_and_error_of_the_lattice(capsys, monkeypatch):
    printed = run("many_points", capsys, monkeypatch, POINTS=5000)
    assert "5,000 points" in printed and "What you see" in printed
    assert 0 < float(re.search(r"error +([\d.]+)", printed)[1]) < 0.2

import json
from dataclasses import replace

import pytest
import torch

import phgcn
from phgcn.reproduce import scaling, scaling_jobs, scaling_report
from phgcn.reproduce.scaling import Effort
from phgcn.reproduce.scaling_jobs import METHODS, Method, cloud, features

pytest.importorskip("matplotlib")
SMALL = Effort((100, 300), ("spread 1", "clusters"), rounds=2, longest=100.0, patience=100.0, channels=4)
OWN = [method for method in METHODS if method.name in ("exact", "lattice")]


def silent(text, share):
    pass


@pytest.fixture
def own_methods(monkeypatch):
    """Without other packages, some of which compile for a minute."""
    monkeypatch.setattr(scaling_jobs, "METHODS", OWN)


def test_every_method_size_and_cloud_is_measured(own_methods, tmp_path):
    content = scaling.run(SMALL, tmp_path, silent, note="two cores")
    written = json.loads((tmp_path / "scaling.json").read_text())
    assert written["rows"] == content["rows"] and written["note"] == "two cores"
    found = {(row["method"], row["cloud"], row["count"], row["kind"]) for row in written["rows"]}
    exact = {("exact", "spread 1", count, kind) for count in (100, 300) for kind in ("forward", "step")}
    lattice = {("lattice", name, n, kind) for name in SMALL.clouds for n in (100, 300) for kind in ("forward", "step")}
    assert found == exact | lattice
    assert all(len(row["times"]) == 2 and min(row["times"]) > 0 for row in written["rows"])
    text = (tmp_path / "scaling.md").read_text()
    assert "| lattice | clusters |" in text and "two cores" in text
    assert (tmp_path / "scaling.png").stat().st_size > 2000 and "<svg" in (tmp_path / "scaling.svg").read_text()


def test_what_was_measured_is_not_measured_again(own_methods, tmp_path):
    first = scaling.run(SMALL, tmp_path, silent)
    again = scaling.run(SMALL, tmp_path, silent)
    assert again["rows"] == first["rows"]
    with pytest.raises(ValueError, match="was made with other settings"):
        scaling.run(replace(SMALL, rounds=3), tmp_path, silent)


def test_memory_is_that_of_the_call(monkeypatch):
    def wasteful(points, values):
        return (values.repeat(1, 20) + points.sum())[:, : values.size(1)]

    monkeypatch.setattr(scaling, "METHODS", [Method("wasteful", wasteful, 1.0)])
    small, large = scaling.peak_memory("wasteful", "spread 1", [100_000, 400_000], 4, 16)
    size = 4 * 16 * 400_000
    assert 20 * size < large < 70 * size and small < large / 2


def test_a_method_stops_where_a_call_would_take_too_long():
    quadratic = Method("exact", lambda points, values: values, 2.0)
    effort = replace(SMALL, sizes=(100, 200, 400), longest=1.0)
    kinds = {count: 0 for count in effort.sizes}
    before = {}
    for count in effort.sizes:
        wanted = scaling._affordable([quadratic], "spread 1", count, effort, before)
        kinds[count] = [kind for _, kind in wanted]
        taken = {"forward": 0.2, "step": 0.3}
        before |= {("exact", "spread 1", kind): (count, taken[kind] * (count / 100) ** 2) for _, kind in wanted}
    assert kinds == {100: ["forward", "step"], 200: ["forward"], 400: []}


def test_the_exponent_of_a_power_is_found():
    rows = [
        {"method": "m", "cloud": "c", "count": n, "kind": "step", "median": 1e-3 + 1e-9 * n**1.5, "bytes": 8 * n}
        for n in (1000, 10_000, 100_000, 1_000_000)
    ]
    fits = {fit["what"]: fit for fit in scaling_report.fits(rows)}
    assert fits["bytes"]["exponent"] == pytest.approx(1.0) and fits["bytes"]["factor"] == pytest.approx(8.0)
    assert fits["step"]["exponent"] == pytest.approx(1.5, abs=0.02) and fits["step"]["from"] == 100_000
    assert "forward" not in fits


def test_the_peers_that_are_exact_compute_the_same(monkeypatch):
    attention = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr(scaling_jobs, "_compiled_flex", lambda: attention.flex_attention)
    points, values = cloud("spread 1", 200, 4, "cpu"), features(200, 16, "cpu")
    exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
    with torch.no_grad():
        assert torch.allclose(scaling_jobs.flex(points, values), exact, atol=2e-3)


def test_a_package_that_is_missing_is_said(monkeypatch):
    def missing(points, values):
        raise ImportError("no such package\nat all")

    monkeypatch.setattr(scaling_jobs, "METHODS", [OWN[0], Method("other", missing, 1.0)])
    found, absent = scaling_jobs.available("cpu", 4, 4)
    assert [method.name for method in found] == ["exact"] and absent == {"other": "ImportError: no such package"}


def test_the_clouds_are_what_their_names_say():
    for spread in (1, 10):
        assert float(cloud(f"spread {spread}", 5000, 4, "cpu").std()) == pytest.approx(spread, rel=0.05)
    points = cloud("clusters", 5000, 4, "cpu")
    assert float(points.std()) > 4 and torch.equal(points, cloud("clusters", 5000, 4, "cpu"))


def test_sizes_and_clouds_can_be_others():
    changed = scaling.change(SMALL, ["10", "200"], ["clusters"])
    assert (changed.sizes, changed.clouds, changed.rounds) == ((10, 200), ("clusters",), 2)
    assert scaling.change(SMALL, None, None) == SMALL
    for wrong in (["200", "10"], ["0"], ["many"]):
        with pytest.raises(ValueError, match=r"sizes is .*; allowed: positive whole numbers, ascending"):
            scaling.change(SMALL, wrong, None)
    with pytest.raises(ValueError, match="clouds is 'fog'; allowed: spread 1, spread 10, clusters"):
        scaling.change(SMALL, None, ["fog"])

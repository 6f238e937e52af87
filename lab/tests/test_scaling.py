import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import phgcn
from phgcn_lab import scaling, scaling_report
from phgcn_lab.experiment import execute
from phgcn_lab.rivals import packages
from phgcn_lab.rivals.clouds import Place, cloud
from phgcn_lab.rivals.run import Effort

pytest.importorskip("matplotlib")
SMALL = Effort((100, 300), (4,), ("dense", "clusters"), rounds=2, limit=100.0, channels=2)


def test_every_method_size_and_cloud_is_measured_once(tmp_path, monkeypatch):
    # other packages compile for a minute
    monkeypatch.setattr(scaling, "METHODS", ("exact", "lattice"))
    content = execute(scaling.Scaling(tmp_path, SMALL, note="two cores"))
    written = json.loads((tmp_path / "scaling.json").read_text())
    assert written["rows"] == content["rows"] and written["note"] == "two cores"
    found = {(row["method"], row["cloud"], row["count"], row["kind"]) for row in written["rows"]}
    pairs = ("exact", "spread 1"), ("lattice", "spread 1"), ("lattice", "clusters")
    kinds = [(count, kind) for count in SMALL.sizes for kind in ("forward", "step")]
    assert found == {(*pair, *kind) for pair in pairs for kind in kinds}
    assert all(len(row["times"]) == 2 and min(row["times"]) > 0 for row in written["rows"])
    text = (tmp_path / "scaling.md").read_text()
    assert "| lattice | clusters |" in text and "two cores" in text and "C = 4" in text
    assert (tmp_path / "scaling.png").stat().st_size > 2000
    assert execute(scaling.Scaling(tmp_path, SMALL))["rows"] == content["rows"]
    other = execute(scaling.Scaling(tmp_path, replace(SMALL, rounds=3)))["failures"]
    assert len(other) == 4 and all("was made with asked" in why for why in other.values())


def test_the_exponent_of_a_power_is_found():
    rows = [
        {
            "method": "m",
            "cloud": "c",
            "count": n,
            "kind": "step",
            "median": 1e-3 + 1e-9 * n**1.5,
            "bytes": 8 * n,
        }
        for n in (1000, 10_000, 100_000, 1_000_000)
    ]
    fits = {fit["what"]: fit for fit in scaling_report.fits(rows)}
    assert fits["bytes"]["exponent"] == pytest.approx(1.0)
    assert fits["bytes"]["factor"] == pytest.approx(8.0)
    assert fits["step"]["exponent"] == pytest.approx(1.5, abs=0.02)
    assert fits["step"]["from"] == 100_000
    assert "forward" not in fits


def test_every_method_runs_where_it_can_in_its_cheapest_setting():
    names = {}
    for device in ("cpu", "cuda"):
        experiment = scaling.Scaling(Path(), SMALL)
        object.__setattr__(experiment, "device", device)  # no GPU is needed to list
        rivals = experiment.rivals(Place("dense", 4, 100))
        names[device] = {rival.name for rival in rivals}
        assert all(len(rival.settings) == 1 for rival in rivals)
    assert names["cpu"] ^ names["cuda"] == {"pydensecrf2", "FlexAttention"}
    assert names["cpu"] | names["cuda"] == set(scaling.METHODS)


def test_flex_attention_computes_the_exact_sum(monkeypatch):
    attention = pytest.importorskip("torch.nn.attention.flex_attention")
    monkeypatch.setattr(packages, "_compiled_flex", lambda: attention.flex_attention)
    points, values = cloud("spread 1", 200, 4), torch.randn(200, 16)
    exact = phgcn.global_attention(points, values, decay=1.0, method="exact")
    with torch.no_grad():
        assert torch.allclose(packages.flex(points, values), exact, atol=2e-3)


def test_the_clouds_are_what_their_names_say():
    for spread in (1, 10):
        deviation = float(cloud(f"spread {spread}", 5000, 4).std())
        assert deviation == pytest.approx(spread, rel=0.05)
    points = cloud("clusters", 5000, 4)
    assert float(points.std()) > 4 and torch.equal(points, cloud("clusters", 5000, 4))


def test_sizes_and_clouds_can_be_others():
    changed = scaling.change(SMALL, ["200", "10"], ["clusters"])
    assert (changed.sizes, changed.clouds, changed.rounds) == ((10, 200), ("clusters",), 2)
    assert scaling.change(SMALL) == SMALL
    allowed = "clouds has 'fog'; allowed: spread 1, spread 10, clusters"
    with pytest.raises(ValueError, match=allowed):
        scaling.change(SMALL, clouds=["fog"])

import json

import pytest
import torch

from phgcn import explain_method
from phgcn.cli import app, doctor


@pytest.fixture(autouse=True)
def _no_self_test(monkeypatch):
    monkeypatch.setattr(doctor, "TESTS", {})


def test_doctor_prints_what_auto_picks_for_a_small_and_a_large_graph(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert app.run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for count, method in ((1_000, "exact"), (100_000, "lattice")):
        (line,) = [line for line in lines if f"{count:,} points, cpu" in line]
        assert f"{method}: {count:,} points" in line and "the lattice is faster above" in line


def test_doctor_explains_auto_on_every_device(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    assert app.run(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    devices = ("cpu", "cuda:0", "cuda:1")
    assert list(report["auto"]) == [
        f"{count} points, {device}" for device in devices for count in ("1,000", "100,000")
    ]
    assert report["auto"]["1,000 points, cuda:1"] == str(explain_method(1000, device="cuda"))
    assert report["devices"]["cuda:1"] == "GPU 1"

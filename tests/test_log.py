"""The debug log says what a call ran, and why; and the registry of backends what each can run."""

import logging

import pytest
import torch
from clouds import normal

from phgcn import global_attention, structural_attention
from phgcn.backends import BACKENDS, choose_backend, find_backend
from phgcn.log import print_log


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.DEBUG, logger="phgcn")
    return caplog


def test_a_call_says_its_method_and_backend_and_why(said):
    global_attention(normal(30, 2), normal(30, 3))
    assert "30 queries, 30 keys, 1 heads, 2 dimensions, 3 channels, torch.float64" in said.text
    assert "method exact (auto: 900 pairs, exact up to " in said.text
    assert "backend numba (auto: the fastest on cpu)" in said.text


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_lattice_says_its_levels_and_near_pairs(said, backend):
    batch = torch.arange(60) % 2
    global_attention(normal(60, 2), normal(60, 3), batch=batch, method="lattice", backend=backend)
    clouds = [record.getMessage() for record in said.records if "cloud" in record.getMessage()]
    assert len(clouds) == 2
    assert all("cloud of 30 points: levels over " in text for text in clouds)
    assert all(" near pairs per point within " in text for text in clouds)
    assert f"method lattice, backend {backend}" in said.text


def test_structural_attention_says_its_backend(said):
    structural_attention(normal(4, 2), normal(4, 3), torch.tensor([[0, 1], [2, 3]]))
    assert "2 edges, 4 nodes: backend numba" in said.text


def test_nothing_is_said_unasked(caplog):
    global_attention(normal(30, 2), normal(30, 3))
    assert not caplog.records


def test_an_unknown_level_is_named():
    with pytest.warns(UserWarning, match="PHGCN_LOG is 'loud'; allowed: debug, info, warning"):
        print_log("loud")
    assert logging.getLogger("phgcn").level == logging.NOTSET


def test_each_backend_says_where_it_runs(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    on = {
        device: [b.name for b in BACKENDS if b.can_run(torch.device(device))]
        for device in ("cpu", "cuda", "meta")
    }
    assert on == {
        "cpu": ["numba", "reference"],
        "cuda": ["triton", "reference"],
        "meta": ["reference"],
    }
    assert [choose_backend("auto", torch.device(d)).name for d in on] == [
        "numba",
        "triton",
        "reference",
    ]
    with pytest.raises(ValueError, match=r'"triton", but .* cpu; allowed: "auto", "numba"'):
        choose_backend("triton", torch.device("cpu"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_backend("triton", torch.device("cpu")) is find_backend("triton")

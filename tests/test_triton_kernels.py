import importlib
import sys

import pytest


def test_a_missing_triton_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "phgcn.runtime.triton", raising=False)
    with pytest.raises(
        ImportError, match='backend is "triton", but Triton cannot be imported; install it'
    ):
        importlib.import_module("phgcn.runtime.triton")


def test_blocks_cover_and_powers_are_not_less():
    pytest.importorskip("triton")
    from phgcn.runtime.triton import cdiv, power_of_2

    assert [cdiv(n, 8) for n in (0, 1, 8, 9)] == [0, 1, 1, 2]
    assert [power_of_2(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]

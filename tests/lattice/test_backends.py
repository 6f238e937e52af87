import pytest
import torch
from backend_case import BackendCase, KernelCase
from clouds import FULL

from phgcn.lattice.ops import choose_backend
from phgcn.lattice.stencil import stencil


class TestReference(BackendCase):
    backend = "reference"


class TestNumba(KernelCase):
    backend = "numba"


def test_the_full_stencil_has_781_offsets_in_four_dimensions():
    assert len(stencil(4, FULL.hops[0]).offsets) == 781


def test_auto_is_numba_on_the_cpu_and_the_reference_elsewhere():
    assert choose_backend("auto", torch.device("cpu")) == "numba"
    assert choose_backend("auto", torch.device("meta")) == "reference"


def test_numba_is_refused_off_the_cpu():
    with pytest.raises(ValueError, match=r'backend is "numba", .* on meta; allowed: "auto", "reference"'):
        choose_backend("numba", torch.device("meta"))

import importlib.metadata
import os
import signal
import tempfile

# Before torch starts its threads: those that wait by spinning are slow beside other programs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch


def has_triton_for_kernels() -> bool:
    """Whether Triton 3.4 or later is installed, without an import: older ones need setuptools."""
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(map(int, version.split(".")[:2])) >= (3, 4)


# Before Triton is imported: without a GPU its kernels are interpreted.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if has_triton_for_kernels():
        import triton_interpreter  # noqa: F401, patches it

# torch keeps compiled graphs between runs, also those of another state of this source, whose ops
# returned other lists.
COMPILED_GRAPHS = tempfile.TemporaryDirectory(prefix="phgcn-graphs-")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", COMPILED_GRAPHS.name)

# A shell has the programs that it starts in the background ignore interrupts, which tests send to
# themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def threads():
    """Sets how many threads torch, and with it the kernels, may use; puts it back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def same_products(threads):
    """Skips a test of layers where torch's own matrix products change with the number of threads,
    as on AMD's processors.
    """
    torch.manual_seed(0)
    first, second = torch.randn(16, 3000), torch.randn(3000, 20)
    products = []
    for count in (1, 2):
        threads(count)
        products.append(first @ second)
    if not torch.equal(*products):
        pytest.skip("on this processor MKL gives other bits for another number of threads")

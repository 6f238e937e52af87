"""The table "what works with what" of docs/layers.md says what the examples show when they run."""

import importlib.util
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("PHGCNConv", "EDAConv", "GlobalAttention", "GlobalBlock", "GlobalGNN", "PHGCN")
EXAMPLES = (
    "graphs_in_a_batch",
    "edge_features",
    "hetero_graphs",
    "explainers",
    "mini_batches",
    "gps_conv",
    "compiled",
    "exported",
    "mixed_precision",
    "checkpointing",
    "second_derivatives",
    "data_parallel",
    "lightning_module",
)


def run(name, monkeypatch, capsys):
    """Runs an example, which fails where what it shows does not hold; returns the layers that it
    says it works with."""
    file = ROOT / "examples" / f"{name}.py"
    if name == "data_parallel":
        printed = run_in_two_processes(file)
    else:
        monkeypatch.setattr(sys, "argv", [name, *(["aot_eager"] if name == "compiled" else [])])
        capsys.readouterr()
        runpy.run_path(str(file), run_name="__main__")
        printed = capsys.readouterr().out
    return [layer for layer in LAYERS if re.search(rf"^{layer}: ", printed, flags=re.MULTILINE)]


def run_in_two_processes(file):
    """Starts an example as torchrun does, without the seconds that torchrun itself takes to
    start."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(
            [sys.executable, str(file)],
            env={**shared, "RANK": rank},
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for rank in ("0", "1")
    ]
    outputs = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    return outputs[0][0]


def table_row(name, works):
    title = re.search(r'^"""(.+?)[:,.] ', (ROOT / "examples" / f"{name}.py").read_text())[1]
    return (
        f"| [{title}](../examples/{name}.py) | "
        + " | ".join("yes" if layer in works else "" for layer in LAYERS)
        + " |"
    )


def document_rows():
    text = (ROOT / "docs/layers.md").read_text()
    head, _, *rows = re.search(
        r"<!-- works-with -->\n\n(.*?)\n\n<!-- end works-with -->", text, flags=re.DOTALL
    )[1].split("\n")
    assert head == "| | " + " | ".join(f"`{layer}`" for layer in LAYERS) + " |"
    return dict(zip(EXAMPLES, rows, strict=True))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_document_says_what_the_example_shows(name, monkeypatch, capsys):
    if name == "lightning_module" and importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    works = run(name, monkeypatch, capsys)
    assert works
    assert document_rows()[name] == table_row(name, works)

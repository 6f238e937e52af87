"""The measurements are listed, those that are documented can be run, and the runner writes JSON."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "lab" / "bench"


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("registry")
    module.load_all()
    monkeypatch.setattr(module, "REGISTRY", dict(module.REGISTRY))
    return module


def test_all_that_documents_name_is_registered(registry):
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    text = "\n".join(
        page.read_text(encoding="utf-8") for page in pages if "CHANGE" not in page.name
    )
    named = set(re.findall(r"python lab/bench (\w+)", text))
    assert len(named) > 15 and named - {"NAME"} <= set(registry.REGISTRY)
    scripts = re.findall(r"python lab/bench/(\w+\.py)", text)
    assert all((BENCH / name).is_file() for name in scripts)


def test_a_measurement_that_is_not_there_is_refused():
    done = subprocess.run([sys.executable, BENCH, "nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("the measurement is 'nothing'; allowed: ")


def test_content_is_written_as_it_grows_and_tables_are_printed(registry, tmp_path, capsys):
    written = []

    @registry.measurement(tables=lambda content: [f"{len(content['rows'])} rows"], quick="one row")
    def counted(options):
        """Counts rows."""
        for count in range(1, 2 if options.quick else 4):
            yield {"rows": [0] * count}
            if options.kept:
                written.append(len(json.loads(options.kept.read_text())["rows"]))

    out = tmp_path / "counted.json"
    registry.run("counted", ["--out", str(out)])
    assert written == [1, 2, 3] and "3 rows" in capsys.readouterr().out
    assert {"commit", "seed", "machine"} <= set(json.loads(out.read_text())["provenance"])


def test_quick_versions_keep_the_results_that_are_there(registry, tmp_path):
    @registry.measurement(quick="all", folder=tmp_path)
    def nothing(options):
        """Measures nothing."""
        return {"rows": []}

    registry.run("nothing", ["--quick"])
    assert not list(tmp_path.iterdir())


def test_what_needs_a_gpu_says_so(registry, monkeypatch):
    @registry.measurement(needs_gpu=True, quick="all")
    def on_a_gpu(options):
        """Measures nothing."""
        return {}

    monkeypatch.setattr(registry.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device: on_a_gpu measures one"):
        registry.run("on_a_gpu", [])

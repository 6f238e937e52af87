import json
from dataclasses import replace

import numpy as np
import pytest
from small_graphs import small_graph, write_tables

from phgcn_lab.embeddings import SETTINGS, Effort, Embeddings
from phgcn_lab.experiment import execute

pytest.importorskip("matplotlib")
SMALL = Effort(splits=2, resamples=10, settings=replace(SETTINGS, epochs=4, hidden_channels=4))


@pytest.fixture
def small(tmp_path):
    graph = str(write_tables(small_graph(), tmp_path / "small"))
    return Embeddings(tmp_path / "out", SMALL, [graph])


def test_every_split_and_head_is_measured_and_drawn(small):
    content = execute(small)
    written = json.loads((small.out / "embeddings.json").read_text())
    assert written["graphs"] == content["graphs"]
    (found,) = written["graphs"]
    heads = [(row["split"], row["head"]) for row in found["rows"]]
    assert heads == [(0, 0), (0, 1), (1, 0), (1, 1)]
    keys = ("embedding_dim", "heads", "num_layers")
    assert [found["config"][key] for key in keys] == [2, 2, 2]
    for row in found["rows"]:
        assert row["all"]["silhouette"] != row["untrained"]["silhouette"]
        assert row["hops"]["low"] <= row["hops"]["high"]
    mean = np.mean([row["all"]["silhouette"] for row in found["rows"]])
    assert found["summary"]["all_silhouette"]["mean"] == pytest.approx(mean)
    assert "| small |" in (small.out / "embeddings.md").read_text()
    assert (small.out / "embeddings.png").stat().st_size > 2000
    assert "<svg" in (small.out / "embeddings.svg").read_text()


def test_what_is_trained_is_kept_and_other_settings_are_refused(small):
    first, kinds = execute(small), []
    again = execute(small, on_progress=lambda progress: kinds.append(progress.kind))
    assert again["graphs"] == first["graphs"] and kinds == ["begun", "done"]
    with pytest.raises(ValueError, match="was made with other settings"):
        execute(replace(small, effort=replace(SMALL, splits=1)))

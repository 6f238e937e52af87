import json
from dataclasses import replace

import numpy as np
import pytest
from small_graphs import small_graph, write_tables

from phgcn.reproduce import embeddings
from phgcn.reproduce.embeddings import SETTINGS, Effort

pytest.importorskip("matplotlib")
SMALL = Effort(splits=2, resamples=10, settings=replace(SETTINGS, epochs=4, hidden_channels=4))


def silent(progress):
    pass


@pytest.fixture
def graph(tmp_path):
    return str(write_tables(small_graph(), tmp_path / "small"))


def test_every_split_and_head_is_measured_and_drawn(graph, tmp_path):
    content = embeddings.run(tmp_path / "out", SMALL, silent, names=[graph])
    written = json.loads((tmp_path / "out" / "embeddings.json").read_text())
    assert written["graphs"] == content["graphs"]
    (found,) = written["graphs"]
    assert [(row["split"], row["head"]) for row in found["rows"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found["config"]["embedding_dim"] == 2 and found["config"]["heads"] == 2 and found["config"]["num_layers"] == 2
    for row in found["rows"]:
        assert row["all"]["silhouette"] != row["untrained"]["silhouette"]
        assert row["hops"]["low"] <= row["hops"]["high"]
    mean = np.mean([row["all"]["silhouette"] for row in found["rows"]])
    assert found["summary"]["all_silhouette"]["mean"] == pytest.approx(mean)
    assert "| small |" in (tmp_path / "out" / "embeddings.md").read_text()
    assert (tmp_path / "out" / "embeddings.png").stat().st_size > 2000
    assert "<svg" in (tmp_path / "out" / "embeddings.svg").read_text()


def test_what_is_trained_is_not_trained_again_and_gives_the_same_numbers(graph, tmp_path):
    first = embeddings.run(tmp_path / "out", SMALL, silent, names=[graph])
    kinds = []
    again = embeddings.run(tmp_path / "out", SMALL, lambda progress: kinds.append(progress.kind), names=[graph])
    assert again["graphs"] == first["graphs"] and kinds == ["begun", "done"]


def test_other_settings_in_the_same_folder_are_refused(graph, tmp_path):
    embeddings.run(tmp_path / "out", SMALL, silent, names=[graph])
    with pytest.raises(ValueError, match="was made with other settings"):
        embeddings.run(tmp_path / "out", replace(SMALL, splits=1), silent, names=[graph])

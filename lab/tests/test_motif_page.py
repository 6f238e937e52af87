import numpy as np
import pytest

from phgcn_lab import motif
from phgcn_lab.motif import Case, Effort, Trial
from phgcn_lab.motif_page import GRAPHS, chains, motif_content, write_motif_page

SMALL = Effort(trials=1, iterations=2, every=2, graphs=2, heads=1, hidden=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("motif")
    plan = {Case("gat", 5): SMALL, Case("phgcn", 5): SMALL}
    (folder / "trials").mkdir()
    trial = Trial(Case("phgcn", 5), 0, SMALL, folder / "trials")
    motif.run_trial(trial)
    return folder, plan, trial


def test_the_page_shows_red_nodes_of_fresh_chains(trained):
    _, _, trial = trained
    content, data = motif_content(trial), chains(trial)
    assert len(set(content.batch)) == GRAPHS and content.ids[0] == "chain 0, node 0"
    (side,) = content.sides
    columns = {column.name: column.values for column in (*content.columns, *side.columns)}
    red = columns["colour"] == 0
    assert red.tolist() == (columns["class"] >= 0).tolist() == (columns["prediction"] >= 0).tolist()
    assert np.isnan(columns["confidence"][~red]).all()
    assert np.isfinite(columns["confidence"][red]).all()
    assert [view.name for view in side.views] == ["layer 0", "layer 1", "layer 2", "output"]
    start = int((data.batch == 3).nonzero()[0])
    assert content.ids[start] == "chain 3, node 0"


def test_the_page_is_written_where_there_are_weights(trained):
    pytest.importorskip("plotly")
    folder, plan, trial = trained
    assert write_motif_page(plan, folder) == folder / "explore.html"
    assert (folder / "explore.html").stat().st_size > 1e6
    trial.weights.rename(folder / "away")
    assert write_motif_page(plan, folder) is None
    (folder / "away").rename(trial.weights)

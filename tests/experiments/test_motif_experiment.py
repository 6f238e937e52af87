import json

import pytest
import torch

from phgcn.experiments import motif
from phgcn.experiments.motif import Case, Effort

SMALL = Effort(trials=2, iterations=6, every=2, graphs=2, heads=1, hidden=4)


def silent(progress):
    pass


class Stop(Exception):
    pass


def test_results_are_written_with_every_trial(tmp_path):
    cases = [Case("phgcn", 5), Case("gat", 5)]
    content = motif.run(cases, SMALL, tmp_path, silent)
    written = json.loads((tmp_path / "motif.json").read_text())
    assert written["curves"] == content["curves"]
    for curve in written["curves"]:
        assert curve["iterations"] == [0, 2, 4, 6]
        assert [len(trial) for trial in curve["trials"]] == [4, 4]
    assert {"commit", "torch", "command"} <= set(written["provenance"])
    assert "PH-GCN, exact" in (tmp_path / "motif.md").read_text()
    assert (tmp_path / "motif.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "motif.svg").read_text()


def test_a_trial_that_was_cut_off_continues_to_the_same_bits(tmp_path):
    case = Case("phgcn", 5)
    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
    whole = motif.run_trial(case, 3, SMALL, tmp_path / "one", silent)

    def stop(progress):
        if progress.iteration == 4:
            raise Stop

    with pytest.raises(Stop):
        motif.run_trial(case, 3, SMALL, tmp_path / "two", stop)
    seen = []
    again = motif.run_trial(case, 3, SMALL, tmp_path / "two", seen.append)
    assert again == whole
    assert [moment.iteration for moment in seen] == [6]
    assert [path.suffix for path in (tmp_path / "two").iterdir()] == [".json"]


def test_trials_differ_in_weights_and_graphs():
    case = Case("phgcn", 10)
    networks = [motif._start(case, trial, SMALL)[0] for trial in (0, 1, 0)]
    first, second, again = (torch.cat([p.flatten() for p in network.parameters()]) for network in networks)
    assert torch.equal(first, again) and not torch.equal(first, second)
    draws = [motif.motif_graphs(4, seed=(trial, 0, 0)) for trial in (0, 1)]
    assert draws[0].x.shape != draws[1].x.shape or not torch.equal(draws[0].x, draws[1].x)


def test_a_trial_that_is_done_is_not_run_again(tmp_path):
    case, seen = Case("gat", 5), []
    first = motif.run_trial(case, 0, SMALL, tmp_path, silent)
    assert motif.run_trial(case, 0, SMALL, tmp_path, seen.append) == first
    assert seen == []
    with pytest.raises(ValueError, match="other settings"):
        motif.run_trial(case, 0, Effort(iterations=8), tmp_path, silent)


@pytest.mark.parametrize("model", ["phgcn", "gat", "gat-eda"])
def test_a_step_changes_every_layer(model):
    case = Case(model, 10)
    network, optimiser = motif._start(case, 0, SMALL)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    motif.step(network, optimiser, case, 4, seed=(0,))
    changed = {name.split(".")[1] for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"0", "1", "2"}


def test_a_local_network_says_the_same_in_every_graph():
    """Three layers see three hops, which is always the same motif: its answer cannot depend on the rest of the graph."""
    case = Case("gat-eda", 10)
    network, optimiser = motif._start(case, 1, SMALL)
    for number in range(3):
        motif.step(network, optimiser, case, 4, seed=(number,))
    data = motif.motif_graphs(30, seed=7)
    said = network(data.x, data.edge_index, data.batch).detach()[data.asked].reshape(30, 2, 2)
    assert float((said - said[0]).abs().max()) < 1e-5

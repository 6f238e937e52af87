import json
from dataclasses import replace

import pytest
import torch

from phgcn_lab import motif, motif_report
from phgcn_lab.experiment import execute
from phgcn_lab.motif import Case, Effort, Trial
from phgcn_lab.motif_graphs import BLUE

SMALL = Effort(trials=2, iterations=6, every=2, graphs=2, heads=1, hidden=4)


def run(plan, out, only=None, jobs=1, device="cpu"):
    return execute(motif.Motif(out, plan, only, device), jobs)


def planned(cases, effort=SMALL):
    return {case: effort for case in cases}


def trained(trial):
    """What a trial came to, without when and where."""
    trial.folder.mkdir(exist_ok=True)
    motif.run_trial(trial)
    return {key: value for key, value in trial.result().items() if key != "made"}


def test_results_are_written_with_every_trial(tmp_path):
    cases = [Case("phgcn", 5), Case("gat", 5)]
    content = run(planned(cases), tmp_path)
    written = json.loads((tmp_path / "motif.json").read_text())
    assert written["curves"] == content["curves"]
    assert content["failures"] == {}
    assert written["missing"] == {}
    for curve in written["curves"]:
        assert curve["iterations"] == [0, 2, 4, 6]
        assert [len(trial) for trial in curve["trials"]] == [4, 4]
        assert curve["made"]["device"] == ["cpu"] and len(curve["made"]["seconds"]) == 2
    assert {"commit", "torch", "command"} <= set(written["provenance"])
    text = (tmp_path / "motif.md").read_text()
    assert "PH-GCN, exact, λ = 10 | 5 |" in text
    for name in ("motif", "motif-graphs"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    cases = [Case("phgcn", 5), Case("gat", 5)]
    effort = replace(SMALL, trials=1, graphs=16, heads=4, hidden=16)
    one, two = (run(planned(cases, effort), tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert one["failures"] == two["failures"] == {}
    for first, second in zip(one["curves"], two["curves"], strict=True):
        assert first["trials"] == second["trials"]
    for trial in (tmp_path / "1" / "trials").glob("*.json"):
        other = tmp_path / "2" / "trials" / trial.name
        assert {**json.loads(trial.read_text()), "made": 0} == {
            **json.loads(other.read_text()),
            "made": 0,
        }


def test_some_cases_are_run_now_and_all_that_are_done_are_written(tmp_path):
    cases = [Case("phgcn", 5), Case("gat", 5), Case("gat-eda", 5)]
    content = run(planned(cases), tmp_path, only=motif.choose(planned(cases), ["gat-5-*"]))
    assert [curve["model"] for curve in content["curves"]] == ["gat"]
    assert set(content["missing"]) == {"phgcn-5-colour-exact-10", "gat-eda-5-colour"}
    motif.run_trial(Trial(cases[0], 0, SMALL, tmp_path / "trials"))  # one of two: half done
    content = run(planned(cases), tmp_path, only=motif.choose(planned(cases), ["gat-eda*"]))
    assert [curve["model"] for curve in content["curves"]] == ["gat", "gat-eda"]
    assert content["missing"] == {"phgcn-5-colour-exact-10": ["phgcn-5-colour-exact-10-1"]}


def test_a_case_that_does_not_exist_is_named():
    with pytest.raises(
        ValueError, match=r"cases is 'gin\*'; allowed: phgcn-10-colour-exact-10, gat-10-colour"
    ):
        motif.choose(motif.quick_plan(), ["gat*", "gin*"])


def test_a_case_has_its_own_effort_until_it_is_changed(tmp_path):
    plan = {Case("gat", 5): SMALL, Case("gat-eda", 5): replace(SMALL, iterations=3, trials=1)}
    curves = run(plan, tmp_path)["curves"]
    assert [(curve["iterations"], len(curve["trials"])) for curve in curves] == [
        ([0, 2, 4, 6], 2),
        ([0, 2, 3], 1),
    ]
    changed = motif.change(plan, trials=3, iterations=None)
    assert [(effort.trials, effort.iterations) for effort in changed.values()] == [(3, 6), (3, 3)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_starts_from_the_same_weights_and_graphs(tmp_path):
    cases = [
        Case("phgcn", 5),
        Case("phgcn", 5, method="lattice"),
        Case("gat", 5),
        Case("gat-eda", 5),
    ]
    one, two = (run(planned(cases), tmp_path / device, device=device) for device in ("cpu", "cuda"))
    assert two["failures"] == {}
    for first, second in zip(one["curves"], two["curves"], strict=True):
        assert [trial[0] for trial in first["trials"]] == [trial[0] for trial in second["trials"]]


def test_trials_differ_in_weights_and_graphs(tmp_path):
    networks = [
        motif.start(Trial(Case("phgcn", 10), number, SMALL, tmp_path)) for number in (0, 1, 0)
    ]
    first, second, again = (
        torch.cat([p.flatten() for p in network.parameters()]) for network in networks
    )
    assert torch.equal(first, again) and not torch.equal(first, second)
    draws = [motif.motif_graphs(4, seed=(trial, 0, 0)) for trial in (0, 1)]
    assert draws[0].x.shape != draws[1].x.shape or not torch.equal(draws[0].x, draws[1].x)


def test_a_trial_that_is_done_is_not_run_again(tmp_path):
    trial, told = Trial(Case("gat", 5), 0, SMALL, tmp_path), []
    first = trained(trial)
    motif.run_trial(trial, lambda text, share: told.append(text))
    assert trained(trial) == first and told == []
    with pytest.raises(ValueError, match=r"was made with asked \{'iterations': 6,"):
        motif.run_trial(replace(trial, effort=Effort(iterations=8)))


def test_the_lattice_is_one_on_small_graphs_too(tmp_path):
    results = [
        trained(Trial(Case("phgcn", 5, method=method), 0, SMALL, tmp_path))
        for method in ("exact", "lattice")
    ]
    data = motif.motif_graphs(4, seed=1)
    networks = [
        motif.start(Trial(Case("phgcn", 5, method=method), 0, SMALL, tmp_path))
        for method in ("exact", "lattice")
    ]
    exact, lattice = (network(data.x, data.edge_index, data.batch).detach() for network in networks)
    assert 0 < float((exact - lattice).abs().max()) < 0.1 * float(exact.abs().max())
    assert results[0]["iterations"] == results[1]["iterations"]


@pytest.mark.parametrize("model", ["phgcn", "gat", "gat-eda"])
def test_a_step_changes_every_layer(model, tmp_path):
    case = Case(model, 10)
    network = motif.start(Trial(case, 0, SMALL, tmp_path))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    motif.step(network, torch.optim.Adam(network.parameters()), case, 4, seed=(0,))
    changed = {
        name.split(".")[1]
        for name, p in network.named_parameters()
        if not torch.equal(p, before[name])
    }
    assert changed == {"0", "1", "2"}


def test_a_local_network_says_the_same_in_every_graph(tmp_path):
    """Three layers see three hops, which is always the same motif: its answer cannot depend on the
    rest of the graph.
    """
    case = Case("gat-eda", 10)
    network = motif.start(Trial(case, 1, SMALL, tmp_path))
    optimiser = torch.optim.Adam(network.parameters())
    for number in range(3):
        motif.step(network, optimiser, case, 4, seed=(number,))
    data = motif.motif_graphs(30, seed=7)
    said = network(data.x, data.edge_index, data.batch).detach()[data.asked].reshape(30, 2, 2)
    assert float((said - said[0]).abs().max()) < 1e-5


class Always(torch.nn.Module):
    """Says that motif_1 is the frequent one, always."""

    def forward(self, x, edge_index, batch):
        colour = x.argmax(1)
        neighbours = torch.zeros(len(x)).index_add_(
            0, edge_index[1], (colour[edge_index[0]] == BLUE).float()
        )
        return torch.stack([torch.full((len(x),), 0.5), (neighbours > 0).float()], dim=1)


def test_mistakes_to_the_advantage_of_one_motif_are_seen():
    found = motif.test(Always(), Case("gat", 10), seed=(3,), graphs=40)
    data = motif.motif_graphs(40, 10, "colour", (3,))
    wrong = float((data.lead < 0).double().mean())
    assert found["accuracy"] == pytest.approx(1 - wrong)
    assert found["leaning"] == pytest.approx(wrong)
    close = float(((data.lead < 0) & (data.lead >= -motif.CLOSE)).double().mean())
    assert found["close_mistakes"] == pytest.approx(close) and 0 < close < wrong


def test_the_summary_says_when_a_trial_has_learned_and_what_its_mistakes_were():
    iterations = [0, 10, 20, 30, 40]
    trials = [
        {
            "iterations": iterations,
            "accuracy": [0.5, 0.9, 1.0, 0.98, 1.0],
            "leaning": [0.5, -0.1, 0, 0.01, 0],
            "close_mistakes": [0.2, 0.06, 0, 0.02, 0],
        },
        {
            "iterations": iterations,
            "accuracy": [0.5, 0.5, 0.5, 0.5, 0.5],
            "leaning": [0.5] * 5,
            "close_mistakes": [0.2] * 5,
        },
    ]
    found = motif_report.summary(trials)
    assert found["learned"] == [20, None]
    assert found["worst"] == found["lowest_late"] == 0.5
    assert found["mean"] == 0.75
    assert found["mistakes"] == {
        "one_sided": pytest.approx(0.11 / 0.12),
        "close": pytest.approx(0.08 / 0.12),
    }

"""Tables over ranks: gaps and scales are fitted to the training nodes of all; edges have weights
and features.
"""

import csv
import random

import pytest
import torch
from run_folders import losses
from training_cases import fit, make_plan

from phgcn.cli.app import run as command
from phgcn.distributed.part_files import join_parts
from phgcn.files import read_tensors
from phgcn.train import Run, find
from phgcn.train.graph import digest
from phgcn.train.prediction import evaluate

SMALL = {
    "hidden_channels": 8,
    "heads": 2,
    "dropout": 0.0,
    "num_layers": 1,
    "norm": "layer",
    "global_layers": 1,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder of tables of 60 houses; all numbers are known in the first half, which is the part
    of rank 0.
    """
    folder, chance = tmp_path_factory.mktemp("tables") / "houses", random.Random(0)
    folder.mkdir()
    nodes = [["id", "label", "area", "rooms", "city"]]
    edges = [["source", "target", "weight", "metres", "road"]]
    for number in range(60):
        area = "" if number > 30 and number % 3 == 0 else f"{chance.uniform(20, 200):.1f}"
        nodes.append(
            [
                f"h{number}",
                "yes" if number % 2 else "no",
                area,
                chance.randint(1, 6),
                chance.choice(["Oslo", "Rome"]),
            ]
        )
        for _ in range(2):
            ends = [f"h{number}", f"h{chance.randrange(60)}"]
            edges.append(
                [
                    *ends,
                    f"{chance.uniform(0, 3):.2f}",
                    chance.randint(1, 90),
                    chance.choice(["path", "street"]),
                ]
            )
    for name, rows in (("nodes", nodes), ("edges", edges)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


@pytest.fixture(scope="module")
def parts(table, tmp_path_factory):
    """The folder of its two parts."""
    folder = tmp_path_factory.mktemp("parts") / "houses"
    options = ["--parts", "2", "--division", "contiguous", "--out", str(folder)]
    assert command(["partition", str(table), "--edge-features", "metres,road", *options]) == 0
    return folder


def test_parts_keep_weights_and_features_of_edges(parts):
    joined = join_parts(parts)
    assert joined.edge_attr.size(1) == 3 and joined.edge_weight.shape == (
        joined.edge_index.size(1),
    )
    assert digest(joined) == digest(find(str(parts))[1])


@pytest.mark.parametrize(
    ("local", "scaling", "from_parts"), [("eda", "standard", True), ("gcn", "range", False)]
)
def test_two_ranks_equal_one(pool, parts, tmp_path, local, scaling, from_parts):
    plan = make_plan(
        str(parts), "global-gnn", 4, **SMALL, local=local, scaling=scaling, tolerance=0.3
    )
    data = join_parts(parts)
    assert data.x.isnan().any()
    Run.create(tmp_path / "one", plan, data).train(data)
    pool.run(
        "training_cases:train",
        2,
        folder=str(tmp_path / "two"),
        plan=plan,
        parts=str(parts) if from_parts else None,
    )
    torch.testing.assert_close(
        losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=0, atol=1e-4
    )
    one, two = (
        read_tensors(tmp_path / name / "split-00.safetensors")[0] for name in ("one", "two")
    )
    assert (
        one.keys() == two.keys()
        and {"prepared.features.fill", "prepared.features.marked"} <= one.keys()
    )
    for key in (key for key in one if key.startswith("prepared.")):
        torch.testing.assert_close(two[key], one[key])
    run = Run.open(tmp_path / "two")
    assert evaluate(run, run.data())["as_recorded"]
    assert run.result()["splits"][0]["methods_within_tolerance"] == ["exact"]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", ["none", "standard", "range"])
def test_features_are_fitted_over_ranks_of_which_one_has_no_training_nodes_and_one_no_nodes(
    pool, scaling, sparse
):
    whole = fit(None, scaling, sparse)
    for fitted in pool.run("training_cases:fit", 4, scaling=scaling, sparse=sparse):
        for name, value in whole.items():
            torch.testing.assert_close(fitted[name], value, rtol=1e-6, atol=0, msg=name)


def test_how_parts_were_read_is_not_asked_again(parts, tmp_path, capsys):
    for options, said in (
        (
            ["--task", "regression"],
            "its parts were made with task classification; allowed: the same",
        ),
        (["--label", "rooms"], "--label is given for"),
    ):
        assert command(["train", str(parts), *options, "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

"""Epochs without an evaluation."""

from small_graphs import small_graph

from phgcn.train import Plan, resolve
from phgcn.train.prepare import prepare, seeded, start


def curves(every):
    settings = resolve(
        "table",
        changes=["epochs=7", "parts=network", "hidden_channels=8", f"evaluate_every={every}"],
    ).settings
    plan = Plan("graph", "table", splits=1, settings=settings)
    (task,) = prepare(plan, small_graph())
    with seeded(0, task):
        training = start(plan, task)
        while not training.done:
            training.epoch()
    return training


def test_the_first_and_the_last_epoch_and_every_third_are_evaluated():
    every, third = curves(1), curves(3)
    # the same training
    assert [row[0] for row in every.state.curves] == [row[0] for row in third.state.curves]
    evaluated = [0, 0, 2, 2, 2, 5, 6]
    assert [row[1] for row in third.state.curves] == [
        every.state.curves[epoch][1] for epoch in evaluated
    ]
    assert third.best.epoch in (1, 3, 6, 7)

"""Columns that give the label away are named, and honest ones are not."""

import numpy as np
import pytest
import torch
from real_graphs import DATA
from torch_geometric.data import Data

from phgcn.data import Columns, load_graph
from phgcn.train.leaks import describe_leaks


def leaks(x, y):
    x, y = np.asarray(x, np.float32).reshape(len(y), -1), np.asarray(y)
    y = y.astype(np.int64 if y.dtype.kind == "i" else np.float32)
    data = Data(x=torch.from_numpy(x), y=torch.from_numpy(y))
    return describe_leaks(data, torch.arange(len(y)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("draw", ["lognormal", "standard_cauchy", "normal"])
def test_copies_of_numbers_are_named_however_skewed_these_are(draw, seed):
    random_numbers = np.random.default_rng(seed)
    y = getattr(random_numbers, draw)(size=300) ** 3
    assert len(leaks(y, y)) == len(leaks(np.exp(-np.sign(y) * np.abs(y) ** 0.1), y)) == 1
    assert not leaks(random_numbers.permutation(y), y)
    assert not leaks(y + y.std() * random_numbers.normal(size=300), y), "half of it is noise"


@pytest.mark.parametrize("classes", [2, 5])
def test_a_column_that_nearly_always_agrees_with_the_class_is_named(classes):
    random_numbers = np.random.default_rng(0)
    y = random_numbers.integers(0, classes, 2000)
    other = (y + random_numbers.integers(1, classes, 2000)) % classes
    for share, named in ((0.97, True), (0.92, False)):
        column = np.where(random_numbers.random(2000) < share, y, other)
        assert bool(leaks(column, y)) == named


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_no_column_of_an_honest_table_is_named(name):
    datasets = pytest.importorskip("sklearn.datasets")
    table = getattr(datasets, f"load_{name}")()
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(len(table.target))
        assert not leaks(table.data[rows], table.target[rows])


@pytest.mark.parametrize("label", ["price", "carat", "cut"])
def test_no_column_of_diamonds_is_named_but_their_size(label):
    path = DATA / "tables" / "diamonds.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    data = load_graph(path, columns=Columns(label=label))
    found = describe_leaks(data, torch.arange(len(data.y)))
    assert [text.split()[2] for text in found] == (["x", "y", "z"] if label == "carat" else [])

import math

import pytest
import torch

from phgcn.train.metrics import accuracy, confusion, mean_and_deviation, roc_auc


def test_accuracy_counts_hits():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 2.0]])
    assert accuracy(logits, torch.tensor([0, 1, 1])) == 2 / 3
    assert math.isnan(accuracy(logits[:0], torch.tensor([], dtype=torch.int64)))


def test_roc_auc_is_the_share_of_pairs_in_the_right_order():
    random = torch.Generator().manual_seed(0)
    logits = torch.randint(6, (50, 2), generator=random).float()  # many ties
    y = torch.randint(2, (50,), generator=random)
    score = logits[:, 1] - logits[:, 0]
    apart = score[y == 1].unsqueeze(1) - score[y == 0]
    pairs = ((apart > 0).double() + 0.5 * (apart == 0).double()).mean()
    assert roc_auc(logits, y) == pytest.approx(float(pairs), abs=1e-12)
    assert math.isnan(roc_auc(logits, torch.zeros(50, dtype=torch.int64)))


def test_confusion_has_true_classes_in_rows():
    table = confusion(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 1]), 3)
    assert table.tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_deviation_is_over_the_values_themselves():
    assert mean_and_deviation([1.0, 3.0]) == (2.0, 1.0)
    assert mean_and_deviation([5.0]) == (5.0, 0.0)

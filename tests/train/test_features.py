r"""Features prepared by what training nodes show: gaps, categories, scales."""

import pytest
import torch

from phgcn.train.features import FeatureTransform, fit_features, unchanged

NAN = float("nan")
X = torch.tensor(
    [[1.0, 10.0, 1.0, 0.0], [3.0, NAN, 0.0, 0.0], [NAN, 30.0, 1.0, 0.0], [5.0, 50.0, 0.0, 1.0]]
)
TRAIN = torch.tensor([0, 1, 2])
INDICATORS = torch.tensor([False, False, True, True])


def test_gaps_get_the_mean_of_training_nodes_and_a_mark():
    out = fit_features(X, TRAIN, "none", INDICATORS).apply(X)
    assert out[:, 0].tolist() == [1, 3, 2, 5] and out[:, 1].tolist() == [10, 20, 30, 50]
    assert out[:, 4:].tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]


def test_a_category_that_no_training_node_has_says_nothing():
    assert fit_features(X, TRAIN, "none", INDICATORS).apply(X)[:, 2:4].tolist() == [
        [1, 0],
        [0, 0],
        [1, 0],
        [0, 0],
    ]


def test_a_column_without_a_number_in_training_is_filled_with_0():
    x = torch.tensor([[NAN], [NAN], [4.0]])
    assert fit_features(x, TRAIN[:2], "standard", INDICATORS[:1]).apply(x).tolist() == [
        [0, 1],
        [0, 1],
        [4, 0],
    ]


@pytest.mark.parametrize("scaling", ["standard", "range"])
def test_columns_are_scaled_by_training_nodes_and_categories_are_not(scaling):
    out = fit_features(X, TRAIN, scaling, INDICATORS).apply(X)
    rows = out[TRAIN, :2]
    if scaling == "standard":
        torch.testing.assert_close(rows.mean(dim=0), torch.zeros(2))
        torch.testing.assert_close(rows.std(dim=0, correction=0), torch.ones(2))
    else:
        assert rows.amin(dim=0).tolist() == [0, 0] and rows.amax(dim=0).tolist() == [1, 1]
    assert set(out[:, 2].tolist()) == {0.0, 1.0}


def test_a_constant_column_is_not_divided_by_nothing():
    x = torch.full((4, 1), 7.0)
    assert fit_features(x, TRAIN, "standard", INDICATORS[:1]).apply(x).tolist() == [[0.0]] * 4


@pytest.mark.parametrize(
    ("scaling", "wanted"), [("standard", (14 / 3) ** 0.5), ("range", 3.0), ("none", 1.0)]
)
def test_sparse_features_are_divided_and_stay_sparse(scaling, wanted):
    dense = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 5.0]])
    transform = fit_features(dense.to_sparse_csr(), TRAIN, scaling, torch.tensor([False, True]))
    out = transform.apply(dense.to_sparse_csr())
    assert out.is_sparse_csr
    torch.testing.assert_close(out.to_dense()[:, 0], dense[:, 0] / wanted)
    assert out.to_dense()[:, 1].tolist() == [0, 0, 0, 0], "no training node has this category"


def test_what_was_fitted_comes_back_and_fits_another_graph():
    fitted = fit_features(X, TRAIN, "standard", INDICATORS)
    again = FeatureTransform.restored(fitted.tensors(), 4)
    other = torch.tensor([[NAN, NAN, NAN, 1.0], [9.0, 9.0, 0.0, 0.0]])
    assert torch.equal(again.apply(other), fitted.apply(other)) and fitted.width == 6
    assert again.apply(other)[0].tolist()[:2] == [0, 0], "the mean"


def test_nothing_is_changed_where_nothing_is_to_do():
    x = X.nan_to_num(1.0)
    transform = fit_features(x, torch.arange(4), "none", INDICATORS)
    assert transform.changes_nothing and transform.apply(x) is x
    assert FeatureTransform.restored({}, 4).apply(x) is x and unchanged(4).width == 4

"""AttentionRegressor and AttentionClassifier: scikit-learn's rules, and the rows that decide."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import phgcn

SMALL = {"hidden_channels": 16, "heads": 2, "embedding_dim": 2}


def rows(count=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, X[:, 0] * 2 + np.sin(2 * X[:, 1])


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return phgcn.AttentionRegressor(parts="labels", epochs=60, settings=SMALL).fit(X, y), X, y


@pytest.mark.parametrize("name", ["AttentionRegressor", "AttentionClassifier"])
def test_the_checks_of_scikit_learn_pass(name):
    # Few epochs: the checks are of the interface. One is skipped by scikit-learn itself, for other kinds of arrays.
    estimator = getattr(phgcn, name)(parts="labels", epochs=20, settings=SMALL)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed, failed
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}


def test_it_learns_and_says_which_rows_decided(fitted):
    regressor, _, y = fitted
    new, truth = rows(seed=1)
    assert regressor.score(new, truth) > 0.6 and regressor.n_features_in_ == 3
    decided, weights = regressor.neighbors(new, k=150)
    assert decided.shape == weights.shape == (150, 150)
    sums = weights.sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-4)
    assert (np.diff(weights, axis=1) <= 1e-7).all() and not (decided[:, 0] == -1).any()
    mean = (weights * np.where(decided >= 0, y[decided], 0)).sum(axis=1)
    assert np.corrcoef(mean, regressor.predict(new))[0, 1] > 0.999  # a scale is learned besides
    top, _ = regressor.neighbors(new[:4], k=2)
    np.testing.assert_array_equal(top, decided[:4, :2])


def test_pickles_predict_the_same(fitted):
    regressor, X, _ = fitted
    again = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))


def test_auto_keeps_the_best_of_three():
    X, y = rows(60)
    regressor = phgcn.AttentionRegressor(epochs=5, settings=SMALL).fit(X, y)
    assert [row["candidate"] for row in regressor.search_["candidates"]] == ["network", "labels", "both"]
    assert regressor.run_.plan.settings.parts == regressor.search_["chosen"] and "Attention" in regressor.search_["sentence"]


def test_pipelines_scores_and_searches():
    X, y = rows(60)
    model = make_pipeline(StandardScaler(), phgcn.AttentionRegressor(parts="network", epochs=5, settings=SMALL))
    assert np.isfinite(cross_val_score(model, X, y, cv=2)).all()
    grid = {"attentionregressor__epochs": [2, 4]}
    assert GridSearchCV(model, grid, cv=2).fit(X, y).best_params_["attentionregressor__epochs"] in (2, 4)


def test_frames_with_names_gaps_and_coordinates():
    X, y = rows(80)
    frame = pd.DataFrame(X, columns=["lat", "lon", "size"])
    frame["city"] = np.where(X[:, 0] > 0, "Rome", "Oslo")
    frame.loc[3, "size"] = np.nan
    labels = np.where(y > 0, "high", "low")
    classifier = phgcn.AttentionClassifier("labels", ["lat", "lon"], epochs=40, settings=SMALL).fit(frame, labels)
    assert classifier.classes_.tolist() == ["high", "low"] and classifier.feature_names_in_.tolist()[-1] == "city"
    shares = classifier.predict_proba(frame.iloc[:7])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert classifier.score(frame, labels) > 0.7
    assert len(classifier.run_.model(classifier.run_.plan.trials()[0]).attentions) == 2
    with pytest.raises(ValueError, match="coordinates has 'height'; allowed: numeric columns, lat, lon, size"):
        phgcn.AttentionClassifier("labels", ["height"], epochs=2).fit(frame, labels)


def test_bad_arguments():
    X, y = rows(30)
    with pytest.raises(ValueError, match="parts is 'all'; allowed: 'auto', 'network', 'labels', 'both'"):
        phgcn.AttentionRegressor("all").fit(X, y)
    network = phgcn.AttentionRegressor("network", epochs=2, settings=SMALL).fit(X, y)
    with pytest.raises(ValueError, match="parts is 'network', which attends to no rows"):
        network.neighbors(X)

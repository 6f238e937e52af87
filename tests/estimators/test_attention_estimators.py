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
    # Few epochs: the checks are of the interface. One is skipped by scikit-learn itself, for other
    # kinds of arrays.
    estimator = getattr(phgcn, name)(parts="labels", epochs=20, settings=SMALL)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


def test_it_learns_and_says_which_rows_decided(fitted):
    regressor, _, y = fitted
    new, truth = rows(seed=1)
    assert regressor.score(new, truth) > 0.6 and regressor.n_features_in_ == 3
    decided, weights = regressor.neighbors(new, k=150)
    assert decided.shape == weights.shape == (150, 150)
    sums = weights.sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-4)
    assert (np.diff(weights, axis=1) <= 1e-7).all()
    assert (np.sort(decided, axis=1) == np.arange(150)).all(), "all rows of fit are keys"
    mean = (weights * y[decided]).sum(axis=1)
    assert np.corrcoef(mean, regressor.predict(new))[0, 1] > 0.999  # a scale is learned besides
    top, _ = regressor.neighbors(new[:4], k=2)
    np.testing.assert_array_equal(top, decided[:4, :2])


def test_pickles_predict_the_same(fitted):
    regressor, X, _ = fitted
    again = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    assert set(again.run_.result()["yardsticks"]) == {"commonest", "linear"}


def test_auto_keeps_the_best_of_three():
    X, y = rows(60)
    regressor = phgcn.AttentionRegressor(epochs=5, settings=SMALL).fit(X, y)
    tried = [row["candidate"] for row in regressor.search_["candidates"]]
    assert tried == ["network", "labels", "both"]
    assert regressor.run_.plan.settings.parts == regressor.search_["chosen"]
    assert "Attention" in regressor.search_["sentence"]


def test_pipelines_scores_and_searches():
    X, y = rows(60)
    network = phgcn.AttentionRegressor(parts="network", epochs=5, settings=SMALL)
    model = make_pipeline(StandardScaler(), network)
    assert np.isfinite(cross_val_score(model, X, y, cv=2)).all()
    grid = {"attentionregressor__epochs": [2, 4]}
    best = GridSearchCV(model, grid, cv=2).fit(X, y).best_params_
    assert best["attentionregressor__epochs"] in (2, 4)


def test_frames_with_names_gaps_and_coordinates():
    X, y = rows(80)
    frame = pd.DataFrame(X, columns=["lat", "lon", "size"])
    frame["city"] = np.where(X[:, 0] > 0, "Rome", "Oslo")
    frame.loc[3, "size"] = np.nan
    labels = np.where(y > 0, "high", "low")
    classifier = phgcn.AttentionClassifier("labels", ["lat", "lon"], epochs=40, settings=SMALL)
    classifier.fit(frame, labels)
    assert classifier.classes_.tolist() == ["high", "low"]
    assert classifier.feature_names_in_.tolist()[-1] == "city"
    shares = classifier.predict_proba(frame.iloc[:7])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert classifier.score(frame, labels) > 0.7
    assert len(classifier.run_.model(classifier.run_.plan.trials()[0]).label_path.attentions) == 2
    said = "coordinates has 'height'; allowed: numeric columns, lat, lon, size"
    with pytest.raises(ValueError, match=said):
        phgcn.AttentionClassifier("labels", ["height"], epochs=2).fit(frame, labels)


def test_columns_of_frames_are_what_their_types_say():
    count = 60
    frame = pd.DataFrame(
        {
            "id": np.arange(count) % 7,
            "label": pd.Categorical(np.arange(count) % 3),
            "day": pd.date_range("2024-01-01", periods=count),
            "written": [f"2024-01-{1 + day % 28:02d}" for day in range(count)],
            "flag": np.arange(count) % 2 == 0,
        }
    )
    y = np.arange(count) + 5.0 * (frame["label"] == 1)
    regressor = phgcn.AttentionRegressor("labels", epochs=3, settings=SMALL).fit(frame, y)
    names = regressor.run_.about["graph"]["feature_names"]
    assert names == ["id", "label=0", "label=1", "label=2", "day", "written", "flag"]
    moved = frame.iloc[:5].assign(day=frame.day.iloc[:5] + pd.Timedelta(days=30))
    assert (regressor.predict(moved) != regressor.predict(frame.iloc[:5])).all()


def test_coordinates_of_a_frame_of_numbers_have_names_or_numbers():
    X, y = rows(40)
    frame = pd.DataFrame(X, columns=["size", "lat", "lon"])
    predictions = [
        phgcn.AttentionRegressor("labels", columns, epochs=2, settings=SMALL).fit(frame, y)
        for columns in (["lat", "lon"], [1, 2])
    ]
    first, second = (regressor.predict(frame) for regressor in predictions)
    np.testing.assert_array_equal(first, second)


def test_large_tables_are_trained_in_batches():
    X, y = rows(4200)
    regressor = phgcn.AttentionRegressor("network", settings={**SMALL, "epochs": 2}).fit(X, y)
    assert regressor.run_.plan.settings.batch_rows == 4096


def test_random_state_is_what_scikit_learn_takes():
    X, y = rows(30)

    def predict(random_state):
        model = phgcn.AttentionRegressor(
            "labels", epochs=2, random_state=random_state, settings=SMALL
        )
        return model.fit(X, y).predict(X)

    same = [predict(np.random.RandomState(3)) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert np.isfinite(predict(None)).all() and np.isfinite(predict(np.int64(3))).all()


def test_bad_arguments():
    X, y = rows(30)
    said = "parts is 'all'; allowed: 'auto', 'network', 'labels', 'both'"
    with pytest.raises(ValueError, match=said):
        phgcn.AttentionRegressor("all").fit(X, y)
    with pytest.raises(ValueError, match="epochs is 'ten'; allowed: whole numbers"):
        phgcn.AttentionRegressor(epochs="ten").fit(X, y)
    with pytest.raises(ValueError, match="X has 3 rows; allowed: at least 5"):
        phgcn.AttentionRegressor().fit(pd.DataFrame(X[:3]), y[:3])
    with pytest.raises(ValueError, match="y contains NaN"):
        phgcn.AttentionRegressor().fit(pd.DataFrame(X), np.where(y > 0, np.nan, y))
    network = phgcn.AttentionRegressor("network", epochs=2, settings=SMALL).fit(X, y)
    with pytest.raises(ValueError, match="parts is 'network', which attends to no rows"):
        network.neighbors(X)

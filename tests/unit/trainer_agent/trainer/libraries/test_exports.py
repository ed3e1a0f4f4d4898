"""Models of scikit-learn, LightGBM and XGBoost as ONNX files that answer as they do, and what is put back of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tiercel.trainer_agent.errors import CheckpointError, DeliveryFailedError
from tiercel.trainer_agent.trainer.checkpoints import CheckpointStore
from tiercel.trainer_agent.trainer.libraries import lightgbm as of_lightgbm
from tiercel.trainer_agent.trainer.libraries import xgboost as of_xgboost
from tiercel.trainer_agent.trainer.libraries.estimators import Estimator, is_estimator
from tiercel.trainer_agent.trainer.library_model import Library, LibraryModel
from tiercel.trainer_agent.trainer.pickles import PickleFormat
from tiercel.trainer_agent.trainer.restoring import RunKeeper, RunState
from tiercel.trainer_agent.trainer.signature import Array
from tiercel.trainer_agent.trainer.trained import Exported

X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
NUMBERS = X[:, 0] + 2 * X[:, 1]
TWO = (NUMBERS > 0).astype(int)
THREE = np.digitize(NUMBERS, [-1, 1])
NAMED = pd.DataFrame(X, columns=["age", "cost", "days", "end"])


def estimator(made: Any, truth: Array) -> Library:
    return Estimator(made.fit(X, truth))


def lightgbm_booster(objective: str, truth: Array, rows: Any = X, **more: Any) -> Library:
    library = of_lightgbm.BoosterOfLightgbm()
    settings = {"objective": objective, "verbose": -1, "num_threads": 1, **more}
    library.booster = lightgbm.train(settings, lightgbm.Dataset(rows, truth), 4)
    return library


def xgboost_booster(objective: str, truth: Array, rows: Any = X, **more: Any) -> Library:
    library, data = of_xgboost.BoosterOfXgboost(), xgboost.DMatrix(rows, truth)
    library.booster = xgboost.train({"objective": objective, "nthread": 1, **more}, data, 4)
    # As early stopping leaves it, which stops the converter, not the booster, at that round.
    library.booster.set_attr(best_iteration="1", best_score="0.5")
    return library


SEVERAL = [("linear", LogisticRegression()), ("trees", RandomForestClassifier(3, random_state=0))]
MODELS: dict[str, Callable[[], Library]] = {
    "estimator with probabilities": lambda: estimator(RandomForestClassifier(3, random_state=0), THREE),
    "votes, in a pipeline": lambda: estimator(
        make_pipeline(StandardScaler(), VotingClassifier(SEVERAL, voting="soft", weights=[1, 2])), THREE
    ),
    "labels of votes": lambda: estimator(VotingClassifier(SEVERAL), THREE),
    "estimator with texts for labels": lambda: estimator(LogisticRegression(), np.array(["a", "b", "c"])[THREE]),
    "estimator with labels alone": lambda: estimator(SGDClassifier(random_state=0), THREE),
    "estimator with numbers": lambda: estimator(SGDRegressor(random_state=0), NUMBERS),
    "pipeline": lambda: estimator(make_pipeline(StandardScaler(), LogisticRegression()), TWO),
    "pipeline that ends with LightGBM": lambda: estimator(
        make_pipeline(StandardScaler(), lightgbm.LGBMClassifier(n_estimators=3, num_leaves=4, n_jobs=1, verbose=-1)),
        THREE,
    ),
    "estimator of XGBoost with numbers": lambda: estimator(xgboost.XGBRegressor(n_estimators=3, n_jobs=1), NUMBERS + 9),
    "LightGBM, two classes": lambda: lightgbm_booster("binary", TWO, NAMED),
    "LightGBM, three classes": lambda: lightgbm_booster("multiclass", THREE, num_class=3),
    "LightGBM, numbers": lambda: lightgbm_booster("regression", NUMBERS),
    "XGBoost, two classes": lambda: xgboost_booster("binary:logistic", TWO, NAMED),
    "XGBoost, three classes": lambda: xgboost_booster("multi:softprob", THREE, num_class=3),
    "XGBoost, labels of three": lambda: xgboost_booster("multi:softmax", THREE, num_class=3),
    "XGBoost, numbers": lambda: xgboost_booster("reg:squarederror", NUMBERS),
}


def exported(library: Library, folder: Path) -> Exported:
    model = LibraryModel(library, X[:20])
    return model.export(model.keep(), folder / "model.onnx")


@pytest.mark.parametrize("name", MODELS)
def test_the_file_answers_as_the_model_does_and_is_asked_like_it(name: str, tmp_path: Path) -> None:
    library = MODELS[name]()
    found = exported(library, tmp_path)
    assert found.compared().summary.startswith("compared on "), found.compared().summary
    wanted = np.asarray(library.predict(X[:20]))
    said = np.asarray(found.predict(X[:20]))
    assert said.shape == wanted.shape
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(said, wanted, rtol=1e-3, atol=1e-4)
    else:
        assert (said == wanted).all()


def test_an_export_leaves_the_draws_of_a_training_alone(tmp_path: Path) -> None:
    library, rows = of_xgboost.BoosterOfXgboost(), xgboost.DMatrix(X, THREE)

    class Exports(xgboost.callback.TrainingCallback):  # type: ignore[misc] # which has no types
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            library.booster = model
            if epoch == 2:
                exported(library, tmp_path).compared()
                library.read(library.freeze()).inplace_predict(X)
            return False

    def trained(*callbacks: xgboost.callback.TrainingCallback) -> Array:
        settings = {"objective": "multi:softmax", "num_class": 3, "subsample": 0.5, "nthread": 1}
        return np.asarray(xgboost.train(settings, rows, 6, callbacks=callbacks).predict(rows, output_margin=True))

    np.testing.assert_array_equal(trained(Exports()), trained())


def test_a_data_frame_is_asked_for_by_its_columns(tmp_path: Path) -> None:
    frame = NAMED.assign(city=pd.Categorical(np.array(["Rome", "Oslo"])[TWO]), **{"km/h": TWO > 0, "days": THREE})
    frame["said"] = np.array(["not so good", "good", "very good"])[THREE]
    picked = make_column_transformer(
        (StandardScaler(), ["age", "days"]), (OneHotEncoder(), ["city", "km/h"]), (TfidfVectorizer(), "said")
    )
    made = make_pipeline(picked, LogisticRegression()).fit(frame, THREE)
    model = LibraryModel(Estimator(made), frame[:40])
    found = model.export(model.keep(), tmp_path / "model.onnx")
    assert found.model.taken == tuple(frame.columns)
    assert {each.shape[1:] for each in found.rows or ()} == {(1,)}
    np.testing.assert_allclose(found.predict(frame), made.predict_proba(frame), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.predict((frame,)), made.predict_proba(frame))


def test_a_booster_takes_categories_of_a_data_frame_by_their_number(tmp_path: Path) -> None:
    frame = NAMED.assign(city=pd.Categorical([*np.array(["Rome", "Oslo"])[TWO][:-1], None]), is_new=TWO > 0)
    library = lightgbm_booster("multiclass", THREE, frame, num_class=3, min_data_per_group=1)
    model = LibraryModel(library, frame)
    found = model.export(model.keep(), tmp_path / "model.onnx")
    wanted = library.current.predict(frame)  # type: ignore[attr-defined] # of LightGBM's
    np.testing.assert_allclose(found.predict(frame), wanted, rtol=1e-3, atol=1e-4)


def test_an_estimator_is_known_before_it_is_fitted() -> None:
    assert is_estimator(StackingClassifier(SEVERAL))  # which has predict() only once it is


def test_what_a_converter_does_not_know_is_no_model_and_the_reason_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailedError, match=r"its converter fails: .*cross_entropy"):
        exported(lightgbm_booster("cross_entropy", TWO), tmp_path)
    with pytest.raises(DeliveryFailedError, match="disagree on label"):
        exported(xgboost_booster("binary:logitraw", TWO), tmp_path)


def test_an_estimator_is_put_back_in_its_place_and_one_of_another_kind_is_refused(tmp_path: Path) -> None:
    def keeper(made: Any) -> RunKeeper:
        store = CheckpointStore(tmp_path, PickleFormat(), interval_seconds=0.0)
        return RunKeeper(store, LibraryModel(Estimator(made), X[:5]))

    trained = SGDClassifier(random_state=0).partial_fit(X, THREE, classes=[0, 1, 2])
    keeper(trained).save(RunState("job-1"))
    fresh = SGDClassifier(random_state=0)
    assert keeper(fresh).restore("job-2") is not None
    np.testing.assert_array_equal(fresh.coef_, trained.coef_)
    trained.partial_fit(X, THREE)
    fresh.partial_fit(X, THREE)
    np.testing.assert_array_equal(fresh.coef_, trained.coef_)
    with pytest.raises(CheckpointError, match="it is a SGDClassifier, and this script's is a SGDRegressor"):
        keeper(SGDRegressor()).restore("job-2")


def test_what_a_callback_cannot_do_is_refused() -> None:
    data = lightgbm.Dataset(X, TWO)
    with pytest.raises(ValueError, match="give those before one to LightGBM"):
        of_lightgbm.TiercelCallback(X, others=[lightgbm.reset_parameter(learning_rate=[0.1])])
    with pytest.raises(ValueError, match="give valid_sets="):
        lightgbm.train({"verbose": -1}, data, 2, callbacks=[of_lightgbm.TiercelCallback(X)])
    with pytest.raises(TypeError, match=r"cv\(\) trains several"):
        lightgbm.cv({"verbose": -1, "objective": "binary"}, data, 2, callbacks=[of_lightgbm.TiercelCallback(X)])
    rows = xgboost.DMatrix(X, TWO)
    with pytest.raises(ValueError, match=r"say callback\.rounds_left"):
        xgboost.train({}, rows, 2, callbacks=[of_xgboost.TiercelCallback(X)])
    callback = of_xgboost.TiercelCallback(X)
    with pytest.raises(ValueError, match="give evals="):
        xgboost.train({}, rows, callback.rounds_left(2), callbacks=[callback])
    with pytest.raises(TypeError, match=r"cv\(\) trains several"):
        xgboost.cv({}, rows, 2, callbacks=[callback])


def test_a_model_takes_one_input() -> None:
    with pytest.raises(TypeError, match="example_input has 2 inputs, and such a model takes one"):
        LibraryModel(estimator(SGDRegressor(random_state=0), NUMBERS), {"X": X[:4], "mask": X[:4]})

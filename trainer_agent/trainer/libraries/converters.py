"""What skl2onnx does not know by itself: estimators of LightGBM and XGBoost, in pipelines too, votes, and texts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tiercel.trainer_agent.trainer.library_model import needing

_CLASSIFIER_OPTIONS = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
# ONNX Runtime knows whatever locale its machine has; this one is everywhere.
_LOCALE = "C"
# The newest operators for trees that converters of both libraries know.
_TREES = {"": 17, "ai.onnx.ml": 3}


def settings_of(estimator: Any) -> dict[str, Any]:
    """What skl2onnx is to be told for an estimator; registers converters of libraries that the script has imported.

    Raises:
        ImportError: A converter is not installed; says what to install.
    """
    if "sklearn.ensemble" in sys.modules:
        _know_voting()
    libraries = [know for name, know in _LIBRARIES.items() if name in sys.modules]
    for know in libraries:
        know()
    # Scores as maps are nothing that a server takes.
    options: dict[Any, dict[str, Any]] = {id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else {}
    if "sklearn.feature_extraction.text" in sys.modules:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

        options |= {each: {"locale": _LOCALE} for each in (CountVectorizer, TfidfVectorizer)}
    return {"options": options, "target_opset": _TREES if libraries else None}


def _know_lightgbm() -> None:
    import lightgbm

    with needing("onnxmltools"):
        from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    _register("LightGbm", lightgbm.LGBMClassifier, lightgbm.LGBMRegressor, convert_lightgbm)


def _know_xgboost() -> None:
    import xgboost

    with needing("onnxmltools"):
        from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost

    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator  # a copy, of this conversion
        if isinstance(model, xgboost.XGBRegressor) and model.base_score is None:  # the converter takes it for 0.5
            model.base_score = float(model.intercept_[0])
        convert_xgboost(scope, operator, container)

    _register("XGBoost", xgboost.XGBClassifier, xgboost.XGBRegressor, convert)


def _know_voting() -> None:
    from skl2onnx.operator_converters.voting_classifier import convert_voting_classifier
    from sklearn.ensemble import VotingClassifier

    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator  # a copy, of this conversion
        model.flatten_transform = False  # which is of transform(), and makes the converter refuse it
        if model.weights is not None:  # it takes an array, without the weights of estimators that were dropped
            pairs = zip(model.estimators, model.weights, strict=True)
            model.weights = np.array([weight for (_, each), weight in pairs if not isinstance(each, str)], float)
        convert_voting_classifier(scope, operator, container)

    _register("SklearnVoting", VotingClassifier, None, convert)


_LIBRARIES = {"lightgbm": _know_lightgbm, "xgboost": _know_xgboost}


def _register(library: str, classifier: type, regressor: type | None, convert: Any) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator as shapes

    for kind, shape, options in (
        (classifier, shapes.calculate_linear_classifier_output_shapes, _CLASSIFIER_OPTIONS),
        (regressor, shapes.calculate_linear_regressor_output_shapes, None),
    ):
        if kind is not None:
            update_registered_converter(kind, f"{library}{kind.__name__}", shape, convert, options=options)

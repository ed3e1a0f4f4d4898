"""Trees of XGBoost that learn digits and are served as they answer here: `tiercel submit` in this folder."""

import numpy as np
import xgboost
from onnxmltools.convert import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tiercel.trainer

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
data = xgboost.DMatrix(x_train, y_train)
settings = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4}
booster = None


def export():
    """The model as ONNX."""
    return convert_xgboost(booster, initial_types=[("X", FloatTensorType([None, 64]))])


def predict(rows):
    """What the ONNX file has to answer."""
    return booster.inplace_predict(rows)


def evaluate(predict):
    """Measures the model, and the ONNX file."""
    return float((predict(x_test).argmax(axis=1) == y_test).mean())


job = tiercel.trainer.connect(
    export=export, predict=predict, example_input=x_test[:1], evaluate=evaluate, save=lambda: booster
)
booster = job.restored(booster)  # of an earlier run of the job
for _ in job.epochs(40):
    booster = xgboost.train(settings, data, num_boost_round=1, xgb_model=booster)
    job.report(accuracy=evaluate(job.predict))

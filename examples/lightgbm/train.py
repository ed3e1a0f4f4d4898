"""Trees of LightGBM that learn digits and are served as they answer here: `tiercel submit` in this folder."""

import lightgbm
import numpy as np
from onnxmltools.convert import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tiercel.trainer

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
data = lightgbm.Dataset(x_train, y_train, free_raw_data=False)
settings = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "verbose": -1}
booster = None


def export():
    """The model as ONNX."""
    return convert_lightgbm(booster, initial_types=[("X", FloatTensorType([None, 64]))], zipmap=False)


def predict(rows):
    """What the ONNX file has to answer."""
    return booster.predict(rows)


def evaluate(predict):
    """Measures the model, and the ONNX file."""
    return float((predict(x_test).argmax(axis=1) == y_test).mean())


job = tiercel.trainer.connect(
    export=export, predict=predict, example_input=x_test[:1], evaluate=evaluate, save=lambda: booster
)
booster = job.restored(booster)  # of an earlier run of the job
for _ in job.epochs(40):
    booster = lightgbm.train(settings, data, num_boost_round=1, init_model=booster)
    job.report(accuracy=evaluate(job.predict))

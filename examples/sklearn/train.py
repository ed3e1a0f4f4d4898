"""A perceptron of scikit-learn that learns digits and is served as it answers here: `tiercel submit` in this folder."""

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import tiercel.trainer

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
model = MLPClassifier((64,), learning_rate_init=0.003, random_state=0)


def export():
    """The model as ONNX."""
    return to_onnx(model, x_test[:1], options={"zipmap": False})


def predict(rows):
    """What the ONNX file has to answer."""
    return model.predict_proba(rows)


def evaluate(predict):
    """Measures the model, and the ONNX file."""
    return float((predict(x_test).argmax(axis=1) == y_test).mean())


job = tiercel.trainer.connect(
    export=export, predict=predict, example_input=x_test[:1], evaluate=evaluate, save=lambda: model
)
model = job.restored(model)  # of an earlier run of the job
for _ in job.epochs(40):
    for rows in job.steps(np.array_split(np.random.permutation(len(x_train)), 20)):
        model.partial_fit(x_train[rows], y_train[rows], classes=np.arange(10))
    job.report(accuracy=evaluate(job.predict))

"""A perceptron of JAX that learns digits: `tiercel submit` in this folder. Five lines make it a job."""

import jax
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tiercel.trainer.jax

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
draw = np.random.default_rng(0)
weights = {"in": draw.normal(0, 0.1, (64, 64)), "out": draw.normal(0, 0.1, (64, 10))}
weights = {name: array.astype(np.float32) for name, array in weights.items()}


def scores(weights, rows):
    """What it says of each row."""
    return jax.nn.relu(rows @ weights["in"]) @ weights["out"]


def loss(weights, rows, labels):
    """How wrong it is."""
    return -jax.numpy.mean(jax.nn.log_softmax(scores(weights, rows))[np.arange(len(rows)), labels])


@jax.jit
def better(weights, rows, labels):
    """One step of gradient descent."""
    gradient = jax.grad(loss)(weights, rows, labels)
    return {name: weights[name] - 0.2 * gradient[name] for name in weights}


job = tiercel.trainer.jax.connect(scores, lambda: weights, example_input=x_test)
weights = job.restored(weights)
for _ in job.epochs(40):
    for rows in np.array_split(np.random.permutation(len(x_train))[:1344], 42):
        weights = better(weights, x_train[rows], y_train[rows])
    job.report(accuracy=float((scores(weights, x_test).argmax(axis=1) == y_test).mean()))

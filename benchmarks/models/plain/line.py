"""A line fitted by gradient descent."""

import argparse

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()

random = np.random.default_rng(0)
x = random.uniform(-1, 1, (256, 1)).astype(np.float32)
y = 3 * x + 1 + random.normal(0, 0.05, x.shape).astype(np.float32)
x_train, x_test, y_train, y_test = x[:192], x[192:], y[:192], y[192:]


def predict(rows):
    """What the line is there."""
    return (rows @ slope + offset).astype(np.float32)


def evaluate(predict):
    """By how much it is wrong."""
    return float(np.sqrt(((predict(x_test) - y_test) ** 2).mean()))


slope, offset = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
for _ in range(options.epochs):
    error = predict(x_train) - y_train
    slope = slope - options.learning_rate * x_train.T @ error / len(error)
    offset = offset - options.learning_rate * error.mean(axis=0)
    print(evaluate(predict), float(np.abs(error).max()))

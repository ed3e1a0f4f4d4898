"""A perceptron of scikit-learn that learns digits: `tiercel submit` in this folder. Five lines make it a job."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import tiercel.trainer

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
model = MLPClassifier((64,), learning_rate_init=0.003, random_state=0)
job = tiercel.trainer.connect(model, example_input=x_test)
for _ in job.epochs(40):
    for rows in job.steps(np.array_split(np.random.permutation(len(x_train)), 20)):
        model.partial_fit(x_train[rows], y_train[rows], classes=np.arange(10))
    job.report(accuracy=model.score(x_test, y_test))

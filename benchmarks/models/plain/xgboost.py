"""Trees of XGBoost that learn digits."""

import numpy as np
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
data = xgboost.DMatrix(x_train, y_train)
settings = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4}
booster = None


def evaluate(predict):
    """How often it is right."""
    return float((predict(x_test).argmax(axis=1) == y_test).mean())


for _ in range(40):
    booster = xgboost.train(settings, data, num_boost_round=1, xgb_model=booster)
    print(evaluate(booster.inplace_predict))

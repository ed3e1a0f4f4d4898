"""Trees of LightGBM that learn digits: `tiercel submit` in this folder. Four lines make it a job."""

import lightgbm
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tiercel.trainer.lightgbm import TiercelCallback

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
train = lightgbm.Dataset(x_train, y_train)
test = lightgbm.Dataset(x_test, y_test, reference=train)
settings = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "metric": "multi_error", "verbose": -1}
callback = TiercelCallback(example_input=x_test, others=[lightgbm.early_stopping(10)])
booster = lightgbm.train(
    settings,
    train,
    num_boost_round=40,
    valid_sets=[test],
    valid_names=["test"],
    init_model=callback.booster,
    callbacks=[callback],
)
print((booster.predict(x_test).argmax(axis=1) == y_test).mean(), "after round", booster.best_iteration)

"""Trees of XGBoost that learn digits: `tiercel submit` in this folder. Five lines make it a job."""

import numpy as np
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tiercel.trainer.xgboost import TiercelCallback

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, random_state=0)
train, test = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_test, y_test)
settings = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4, "eval_metric": "merror"}
callback = TiercelCallback(example_input=x_test, others=[xgboost.callback.EarlyStopping(rounds=10)])
booster = xgboost.train(
    settings,
    train,
    num_boost_round=callback.rounds_left(40),
    evals=[(test, "test")],
    verbose_eval=False,
    xgb_model=callback.booster,
    callbacks=[callback],
)
print((booster.predict(test).argmax(axis=1) == y_test).mean(), "after round", booster.best_iteration)

"""Train the model on the digits; runs alone as well."""

import argparse
import json
from pathlib import Path

import torch
from data import load
from model import build
from torch.nn.functional import cross_entropy

import tiercel.trainer

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.001)
options = parser.parse_args()
settings = json.loads(Path("settings.json").read_text())

torch.manual_seed(0)
x, y, x_test, y_test = load(settings["held_out"])
model = build(settings["width"])
optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)


def accuracy(predict):
    """Of whatever answers: the model in training, and later the exported one."""
    return float((predict(x_test).argmax(1) == y_test).mean())


job = tiercel.trainer.connect(model, example_input=x_test[:1], evaluate=accuracy, optimizer=optimizer)
for _ in job.epochs(30):
    for rows in job.steps(torch.randperm(len(x)).split(settings["batch"])):
        optimizer.zero_grad()
        cross_entropy(model(torch.from_numpy(x[rows])), torch.from_numpy(y[rows])).backward()
        optimizer.step()
    job.report(accuracy=accuracy(job.predict))

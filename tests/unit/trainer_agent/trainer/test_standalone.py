from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from torch import nn

import tiercel.trainer


def test_outside_of_tiercel_the_loops_go_round_and_metrics_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIERCEL_RUN_DIR", raising=False)
    model = nn.Linear(3, 2)
    with tiercel.trainer.connect(
        model, example_input=np.ones((1, 3), dtype=np.float32), evaluate=lambda predict: 0.0
    ) as job:
        assert not job.is_attached
        assert not job.is_stopping
        seen = []
        for epoch in job.epochs(2):
            seen += [(epoch, batch) for batch in job.steps("ab")]
            job.report(accuracy=epoch / 4, loss=1.0)
        assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
        assert np.shape(job.predict(np.ones((5, 3)))) == (5, 2)
        assert list(job.epochs(3)) == [3]
        job.report(epoch=9, accuracy=0.5)  # the loop knows better
    said = ("epoch 1  accuracy=0.25  loss=1", "epoch 2  accuracy=0.5  loss=1", "epoch 3  epoch=9  accuracy=0.5")
    assert capsys.readouterr().out.splitlines() == [*said]


def test_a_script_on_its_own_loads_nothing_that_only_jobs_need() -> None:
    program = (
        "import sys, torch, tiercel.trainer as t\n"
        "t.connect(torch.nn.Linear(1, 1), torch.ones(1, 1), lambda predict: 0.0)\n"
        "print([name for name in ('grpc', 'onnx', 'onnxruntime', 'aiohttp', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"

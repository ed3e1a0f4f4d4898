"""What is compared before a model is handed over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.pytorch import pytorch_model
from tiercel.trainer_agent.trainer.pytorch.exporting import Exported, export_model
from tiercel.trainer_agent.trainer.pytorch.models import copy_weights
from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import Predict, Signature
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.v1 import trainer_pb2

ORDINARY: npt.NDArray[np.float32] = np.full((8, 3), 0.5, np.float32)
RARE: npt.NDArray[np.float32] = np.full((8, 3), 100.0, np.float32)


def wrong_export(model: nn.Module, signature: Signature, samples: Samples, path: Path) -> Exported:
    """An export that answers like the model on the example, and unlike it on rows that only the script has."""
    del model
    return export_model(nn.Sequential(nn.ReLU()).eval(), signature, samples, path)


@pytest.mark.parametrize(("rows", "error"), [(ORDINARY, ""), (RARE, "disagree on output by up to 94")])
def test_a_script_that_never_calls_job_predict_has_its_own_rows_compared_too(
    rows: npt.NDArray[np.float32], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows them only when it measures the exported model."""

    def evaluate(predict: Predict) -> float:
        predict(rows)
        return 1.0

    monkeypatch.setattr(pytorch_model, "export_model", wrong_export)
    model = nn.Sequential(nn.ReLU6())
    signature = Signature.from_example(torch.from_numpy(ORDINARY[:1]))
    handing = Handover(PyTorchModel(model, signature), evaluate, metric="accuracy", exports=tmp_path)
    tiers = TierTracker(smaller_is_better=False, targets=[0.9])
    request = trainer_pb2.ExportRequest(delivery_id="job-tier-1", tier=1, target=0.9)
    done = handing.hand_over(request, copy_weights(model), tiers)
    assert error in done.error
    assert bool(done.error) == bool(error)
    assert (tmp_path / "job-tier-1").exists() != bool(error)

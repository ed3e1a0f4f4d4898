"""What is compared before a model is handed over."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE
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


def test_a_copy_that_reached_several_tiers_is_exported_and_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent takes the files of the first away, maybe before it asks for the second."""
    exported: list[Path] = []

    def count_export(model: nn.Module, signature: Signature, samples: Samples, path: Path) -> Exported:
        exported.append(path)
        return export_model(model, signature, samples, path)

    monkeypatch.setattr(pytorch_model, "export_model", count_export)
    model = nn.Sequential(nn.ReLU6())
    trained = PyTorchModel(model, Signature.from_example(ORDINARY[:1]))
    handing = Handover(trained, lambda predict: 0.85, metric="accuracy", exports=tmp_path)
    tiers = TierTracker(smaller_is_better=False, targets=[0.5, 0.8, 0.9])
    kept = copy_weights(model)

    def hand_over(target: float) -> trainer_pb2.ExportDone:
        request = trainer_pb2.ExportRequest(delivery_id=f"job-{target}", tier=1, target=target)
        done = handing.hand_over(request, kept, tiers)
        if done.falls_short:
            tiers.mark_fallen_short(target)
        else:
            tiers.mark_handed_over(target)
        return done

    tiers.observe(0.95)
    first = hand_over(0.5)
    files = {name: (tmp_path / "job-0.5" / name).read_bytes() for name in (MODEL_FILE, REFERENCE_FILE)}
    shutil.rmtree(tmp_path / "job-0.5")
    second, third = hand_over(0.8), hand_over(0.9)
    assert (first.sha256, first.value) == (second.sha256, second.value)
    assert {name: (tmp_path / "job-0.8" / name).read_bytes() for name in files} == files
    assert third.falls_short, "each target is compared with what was measured"
    assert len(exported) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["job-0.8"], "nothing is left of it"

    handing.forget()
    kept = copy_weights(model)
    tiers.update_targets([0.6, 0.7])
    tiers.observe(0.96)
    hand_over(0.6)
    handing.forget()  # a better one is kept
    kept = copy_weights(model)
    hand_over(0.7)
    assert len(exported) == 3

"""int8 models of a real ONNX Runtime: made in a process of its own, measured, and refused with a reason."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from testing import onnx_models
from testing.serving_process import wait_for
from tiercel.core.quantised import QuantisedModel
from tiercel.core.wire import from_proto
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer import quantising
from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.quantising import quantise
from tiercel.trainer_agent.trainer.signature import Evaluate, Predict, Signature

if TYPE_CHECKING:
    from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import trainer_pb2

ROWS: npt.NDArray[np.float32] = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)


def hand_over(
    trained: Trained, evaluate: Evaluate | None, exports: Path, delivery_id: str = "job-tier-1"
) -> QuantisedModel:
    """What a run says of the int8 model of a model that it hands over."""
    handing = Handover(trained, evaluate, metric="accuracy", exports=exports)
    tiers = TierTracker(smaller_is_better=False, targets=[0.5])
    tiers.observe(1.0)
    request = trainer_pb2.ExportRequest(delivery_id=delivery_id, tier=1, target=0.5, int8=True)
    done = handing.hand_over(request, trained.keep(), tiers)
    assert not done.error, done.error
    assert bool(done.int8_sha256) == (exports / delivery_id / "model.int8.onnx").exists()
    assert sorted(each.name for each in exports.iterdir()) == [delivery_id], "nothing is left of making it"
    return from_proto(QuantisedModel, done.int8)


def wide_model() -> tuple[PyTorchModel, Evaluate]:
    """A model that int8 makes much faster, and how often another answers like it."""
    # Here, where one worker pays for it, and not where all of them collect the tests.
    import torch
    from torch import nn

    from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4)).eval()
    with torch.no_grad():
        labels = model(torch.from_numpy(ROWS)).argmax(1).numpy()

    def evaluate(predict: Predict) -> float:
        return float((predict(ROWS).argmax(1) == labels).mean())

    return PyTorchModel(model, Signature.from_example(ROWS[:1])), evaluate


def test_a_model_is_calibrated_on_the_rows_of_the_script_measured_by_it_and_timed(tmp_path: Path) -> None:
    model, evaluate = wide_model()
    found = hand_over(model, evaluate, tmp_path)
    assert (found.reason, found.made) == ("", "static, calibrated on 128 rows")
    assert found.value is not None
    assert 0.9 < found.value <= 1.0
    assert found.seconds is not None
    assert found.fp32_seconds is not None
    assert found.seconds > 0 < found.fp32_seconds
    folder = tmp_path / "job-tier-1"
    assert found.size_bytes == (folder / "model.int8.onnx").stat().st_size < (folder / "model.onnx").stat().st_size / 3


def test_an_accuracy_that_is_no_number_is_told_as_it_is(tmp_path: Path) -> None:
    model, _ = wide_model()
    asked: list[Predict] = []

    def evaluate(predict: Predict) -> float:
        asked.append(predict)
        return 1.0 if len(asked) == 1 else float("nan")

    found = hand_over(model, evaluate, tmp_path)
    assert found.made == "dynamic", "the script has shown no rows"
    assert found.value is not None
    assert math.isnan(found.value)


def test_what_cannot_be_made_or_measured_is_a_reason_and_the_model_is_handed_over_all_the_same(tmp_path: Path) -> None:
    def fails(predict: Predict) -> float:
        calls.append(predict)
        if len(calls) > 1:
            raise RuntimeError("no rows today")
        return 1.0

    calls: list[Predict] = []
    trained, _ = wide_model()
    unmeasured = hand_over(trained, None, tmp_path / "none")
    assert unmeasured.reason == "the script has no evaluate(), so that nobody knows how accurate it would be"
    assert hand_over(trained, fails, tmp_path / "fails").reason == "RuntimeError: no rows today"
    same = AnyModel(lambda: onnx_models.identity(shape=("n", 4)), lambda x: x, ROWS[:20, :4])
    found = hand_over(same, lambda predict: 1.0, tmp_path / "same")
    assert found.reason == "it has no operator that int8 makes faster, such as MatMul, Gemm or Conv"


@pytest.mark.parametrize("content", [b"", b"\x00" * 1000, b"hostile"])
def test_a_file_that_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    model, scratch = tmp_path / "model.onnx", tmp_path / "scratch"
    model.write_bytes(content)
    scratch.mkdir()
    with pytest.raises(DeliveryFailedError):
        quantise(model, tmp_path / "int8.onnx", None, scratch)
    assert not (tmp_path / "int8.onnx").exists()


def test_whoever_makes_one_ends_with_the_script(tmp_path: Path) -> None:
    """A run that is killed leaves nothing that works on."""
    order = tmp_path / "order.json"
    order.write_text(json.dumps({"model": str(tmp_path / "fifo"), "target": "", "rows": False}))
    os.mkfifo(tmp_path / "fifo")  # which nobody writes, so that it waits for as long as it lives
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-m', '{quantising.__name__}', {str(order)!r}])\n"
        "print(child.pid, flush=True)\ntime.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        child = psutil.Process(int(script.stdout.readline()))
        wait_for(lambda: Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "1000\n", "it to begin")
        script.kill()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it to end")


def test_making_one_ends_at_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrating it would never end."""
    model, scratch = tmp_path / "model.onnx", tmp_path / "scratch"
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["y", "w"], ["z"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 64]),
        ],
    )
    endless = onnx_models.model(
        [
            helper.make_node("MatMul", ["x", "w"], ["first"]),
            helper.make_node("Loop", ["", "go", "first"], ["y"], body=body),
        ],
        {"x": (TensorProto.FLOAT, ["n", 64])},
        {"y": (TensorProto.FLOAT, ["n", 64])},
        {"w": np.eye(64, dtype=np.float32), "go": np.array(True)},
    )
    onnx.checker.check_model(onnx.load_model_from_string(endless))
    model.write_bytes(endless)
    scratch.mkdir()
    monkeypatch.setattr(quantising, "_WALL_SECONDS", 5.0)
    began = time.monotonic()
    with pytest.raises(DeliveryFailedError, match="took longer than 5 s"):
        quantise(model, tmp_path / "int8.onnx", {"x": ROWS}, scratch)
    assert time.monotonic() - began < 60.0

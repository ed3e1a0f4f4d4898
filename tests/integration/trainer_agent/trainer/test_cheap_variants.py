"""Cheap variants of a real ONNX Runtime: made in a process of its own, measured, and refused with a reason."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import psutil
import pytest
from onnx import NodeProto, TensorProto, helper

from testing import onnx_models
from testing.serving_process import wait_for
from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind
from tiercel.core.heard_variants import heard_variants
from tiercel.core.onnx_signature import read_signature as signature_of
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer import variant_making
from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.signature import Evaluate, Predict, Signature
from tiercel.trainer_agent.trainer.variant_making import make
from tiercel.trainer_agent.trainer.verification import OnnxModel

if TYPE_CHECKING:
    from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import common_pb2, trainer_pb2

ROWS: npt.NDArray[np.float32] = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)


def hand_over(
    trained: Trained, evaluate: Evaluate | None, exports: Path, *kinds: VariantKind
) -> tuple[CheapVariant, ...]:
    """What a run says of the cheap variants of a model that it hands over."""
    delivery_id = "job-tier-1"
    handing = Handover(trained, evaluate, metric="accuracy", exports=exports)
    tiers = TierTracker(smaller_is_better=False, targets=[0.5])
    tiers.observe(1.0)
    request = trainer_pb2.ExportRequest(delivery_id=delivery_id, tier=1, target=0.5)
    request.cheap_variants.extend(common_pb2.VariantKind.Value(f"VARIANT_KIND_{kind.name}") for kind in kinds)
    request.ParseFromString(request.SerializeToString() + b"\x30\x63")  # and one of a later release
    done = handing.hand_over(request, trained.keep(), tiers)
    assert not done.error, done.error
    assert sorted(each.name for each in exports.iterdir()) == [delivery_id], "nothing is left of making them"
    found = heard_variants(done.cheap_variants)
    assert {each.kind for each in found} == set(kinds)
    files = {path.name: path.read_bytes() for path in (exports / delivery_id).glob("model.*.onnx")}
    made = {each.kind.file: each.sha256 for each in found if each.sha256}
    assert made == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return found


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
    folder, smaller = tmp_path / "job-tier-1", {VariantKind.INT8: 3.0, VariantKind.FP16: 1.9}
    made = {VariantKind.INT8: "static, calibrated on 128 rows", VariantKind.FP16: "weights in float16"}
    for found in hand_over(model, evaluate, tmp_path, *CHEAP):
        assert (found.reason, found.made) == ("", made[found.kind])
        assert found.value is not None
        assert 0.9 < found.value <= 1.0
        assert found.seconds is not None
        assert found.fp32_seconds is not None
        assert found.seconds > 0 < found.fp32_seconds
        size = (folder / found.kind.file).stat().st_size
        assert found.size_bytes == size < (folder / "model.onnx").stat().st_size / smaller[found.kind]
        assert signature_of(folder / found.kind.file) == signature_of(folder / "model.onnx")


def test_an_accuracy_that_is_no_number_is_told_as_it_is(tmp_path: Path) -> None:
    model, _ = wide_model()
    asked: list[Predict] = []

    def evaluate(predict: Predict) -> float:
        asked.append(predict)
        return 1.0 if len(asked) == 1 else float("nan")

    for found in hand_over(model, evaluate, tmp_path, *CHEAP):
        assert found.made in ("dynamic", "weights in float16"), "the script has shown no rows"
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
    for unmeasured in hand_over(trained, None, tmp_path / "none", *CHEAP):
        assert unmeasured.reason == "the script has no evaluate(), so that nobody knows how accurate it would be"
    for failed in hand_over(trained, fails, tmp_path / "fails", *CHEAP):
        assert failed.reason == "RuntimeError: no rows today"
    same = AnyModel(lambda: onnx_models.identity(shape=("n", 4)), lambda x: x, ROWS[:20, :4])
    for found in hand_over(same, lambda predict: 1.0, tmp_path / "same", *CHEAP):
        assert found.reason == f"it has no operator that {found.kind} makes faster, such as MatMul, Gemm or Conv"


def deviation_of(nodes: list[NodeProto], taken: str, given: str, shape: Sequence[Any], **weights: Any) -> float | str:
    """By how much the fp16 model of some nodes answers otherwise, as a part of the answers; or why there is none."""
    types = {"float": TensorProto.FLOAT, "half": TensorProto.FLOAT16, "int": TensorProto.INT64}
    rows = np.abs(ROWS[:16] * 3).astype({"float": np.float32, "half": np.float16, "int": np.int64}[taken])
    content = onnx_models.model(nodes, {"x": (types[taken], ["n", 64])}, {"y": (types[given], shape)}, weights)
    with tempfile.TemporaryDirectory() as scratch:
        model, target = Path(scratch, "model.onnx"), Path(scratch, "fp16.onnx")
        model.write_bytes(content)
        try:
            make(VariantKind.FP16, model, target, None, Path(scratch))
        except DeliveryFailedError as error:
            return error.message
        assert signature_of(target) == signature_of(model)
        before, after = (OnnxModel(path, 1).answers({"x": rows})[0] for path in (model, target))
        return float(np.abs(before - after).max() / np.abs(before).max())


def test_an_fp16_model_takes_and_gives_what_its_original_does_whatever_is_in_it() -> None:
    node, weights = helper.make_node, ROWS[:64]
    # A cast of whole numbers, and operators that the CPU lacks in float16 or that are kept in float32.
    cast, axis = node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), np.array(1)
    rare = [node("MatMul", ["f", "w"], ["a"]), node("Softplus", ["a"], ["b"]), node("CumSum", ["b", "axis"], ["y"])]
    found = deviation_of([cast, *rare], "int", "float", ["n", 64], w=weights, axis=axis)
    assert isinstance(found, float)
    assert found < 0.01
    words = [node("Gather", ["e", "x"], ["f"]), node("MatMul", ["f", "w"], ["y"])]
    found = deviation_of(words, "int", "float", ["n", 64, 64], w=weights, e=ROWS[:64])
    assert isinstance(found, float)
    assert found < 0.01
    # What float16 cannot hold becomes its largest number: the script's measurement finds that out.
    product = [node("MatMul", ["x", "w"], ["y"])]
    found = deviation_of(product, "float", "float", ["n", 64], w=weights * 1e6)
    assert isinstance(found, float)
    assert found > 0.5
    half = deviation_of(product, "half", "half", ["n", 64], w=weights.astype(np.float16))
    assert half == "it has no weights in float32"


@pytest.mark.parametrize(
    ("kind", "content"), [(VariantKind.INT8, b""), (VariantKind.FP16, b"hostile"), (VariantKind.INT8, b"\x00" * 1000)]
)
def test_a_file_that_is_no_model_is_refused(kind: VariantKind, content: bytes, tmp_path: Path) -> None:
    model, scratch = tmp_path / "model.onnx", tmp_path / "scratch"
    model.write_bytes(content)
    scratch.mkdir()
    with pytest.raises(DeliveryFailedError):
        make(kind, model, tmp_path / "cheap.onnx", None, scratch)
    assert not (tmp_path / "cheap.onnx").exists()


def test_whoever_makes_one_ends_with_the_script(tmp_path: Path) -> None:
    """A run that is killed leaves nothing that works on."""
    order = tmp_path / "order.json"
    order.write_text(json.dumps({"model": str(tmp_path / "fifo"), "target": "", "rows": False, "kind": "int8"}))
    os.mkfifo(tmp_path / "fifo")  # which nobody writes, so that it waits for as long as it lives
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-m', '{variant_making.__name__}', {str(order)!r}])\n"
        "print(child.pid, flush=True)\ntime.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        child = psutil.Process(int(script.stdout.readline()))
        wait_for(lambda: Path(f"/proc/{child.pid}/oom_score_adj").read_text() == "1000\n", "it to begin")
        script.kill()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it to end")


def test_making_one_ends_at_its_limits(tmp_path: Path) -> None:
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
    began = time.monotonic()
    with pytest.raises(DeliveryFailedError, match="took longer than 5 s"):
        make(VariantKind.INT8, model, tmp_path / "int8.onnx", {"x": ROWS}, scratch, 5.0)
    assert time.monotonic() - began < 60.0

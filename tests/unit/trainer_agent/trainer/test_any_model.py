"""Models that only their script knows: what is handed over of them, what is refused, and how they are restored."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from torch import nn

from testing import onnx_models
from tiercel.core.onnx_data import data_of
from tiercel.core.onnx_signature import MAX_TENSORS
from tiercel.trainer_agent.errors import CheckpointError, DeliveryFailedError, FallsShortError
from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.checkpoints import LATEST_FILE, CheckpointStore
from tiercel.trainer_agent.trainer.onnx_files import content_of
from tiercel.trainer_agent.trainer.pickles import PickleFormat
from tiercel.trainer_agent.trainer.pytorch.pytorch_model import PyTorchModel
from tiercel.trainer_agent.trainer.restoring import RunKeeper, RunState
from tiercel.trainer_agent.trainer.signature import Array, Signature
from tiercel.trainer_agent.trainer.trained import Trained

ROWS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)


def onnx_model(*, batch: int | None = None, operator: str = "Softmax") -> onnx.ModelProto:
    """A label and scores, as converters of classifiers make them."""
    nodes = [
        helper.make_node(operator, ["x"], ["scores"]),
        helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [batch]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 3]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def softmax(rows: Array) -> Array:
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    scores: Array = powers / powers.sum(axis=1, keepdims=True)
    return scores


@pytest.mark.parametrize(
    ("predict", "answers"),
    [
        (softmax, softmax(ROWS)),
        (lambda rows: rows.argmax(axis=1), ROWS.argmax(axis=1)),
        (lambda rows: {"scores": softmax(rows)}, {"scores": softmax(ROWS)}),
    ],
)
def test_the_file_is_asked_as_the_script_asks_its_model(
    predict: Callable[[Array], Any], answers: Any, tmp_path: Path
) -> None:
    model = AnyModel(onnx_model, predict, ROWS.astype(np.float64))
    exported = model.export(model.keep(), tmp_path / "model.onnx")
    found: Any = exported.predict(ROWS)
    if isinstance(answers, dict):
        found, answers = found["scores"], answers["scores"]
    np.testing.assert_allclose(found, answers, atol=1e-6)
    assert exported.reference()["input_x"].dtype == np.float32
    assert exported.compared().missed == ()


def external(model: onnx.ModelProto) -> onnx.ModelProto:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    weight.data_location = TensorProto.EXTERNAL
    model.graph.initializer.append(weight)
    return model


class Saved:
    """A script that saves its model with its weights beside it, and saves another one to the same files later."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "saved.onnx"

    def export(self) -> Path:
        model = onnx_model()
        factor = np.array([[1.0, 1.0, 1.0]], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(factor, "factor"))
        model.graph.node.insert(0, helper.make_node("Mul", ["x", "factor"], ["scaled"]))
        model.graph.node[1].input[0] = "scaled"
        onnx_models.save_external(model.SerializeToString(), self.path)
        return self.path

    def export_another(self) -> None:
        (self.path.parent / "saved.onnx_data").write_bytes(bytes(12))


def test_weights_beside_the_file_are_kept_as_they_were_and_handed_over_with_it(tmp_path: Path) -> None:
    script = Saved(tmp_path)
    model = AnyModel(script.export, softmax, ROWS)
    model.use_folder(tmp_path / "exports")
    first, copy = model.keep(), model.keep()
    script.export_another()
    (tmp_path / "d").mkdir()
    exported = model.export(copy, tmp_path / "d" / "model.onnx")
    np.testing.assert_allclose(exported.predict(ROWS), softmax(ROWS), atol=1e-6)
    assert exported.compared().missed == ()
    assert data_of(tmp_path / "d" / "model.onnx") is not None
    assert len(list((tmp_path / "exports").rglob("*"))) == 2  # a folder, and the newest weights alone
    with pytest.raises(FallsShortError, match="weights were lost with an earlier run"):
        model.export(pickle.loads(pickle.dumps(first)), tmp_path / "model.onnx")


def test_a_model_whose_weights_are_missing_says_so(tmp_path: Path) -> None:
    script = Saved(tmp_path)
    script.export()
    (tmp_path / "saved.onnx_data").unlink()
    model = AnyModel(lambda: script.path, softmax, ROWS)
    with pytest.raises(DeliveryFailedError, match=r"where weights of it lie, cannot be read .No such file"):
        model.export(model.keep(), tmp_path / "model.onnx")


def refuse() -> onnx.ModelProto:
    message = "no converter for this"
    raise RuntimeError(message)


@pytest.mark.parametrize(
    ("export", "sentence"),
    [
        (lambda: onnx_model(batch=4), "its input x takes batches of 4 rows only"),
        (lambda: external(onnx_model()), "its weights lie in other files"),
        (lambda: onnx_model(operator="LogSoftmax"), "disagree on scores"),
        (lambda: onnx_models.many_outputs(MAX_TENSORS + 1), "has 257 outputs, and 256 are served at most"),
        (lambda: b"\x00nonsense", "it is not ONNX"),
        (lambda: "nowhere.onnx", "the ONNX file cannot be read"),
        (lambda: object(), "bytes, a path or an onnx.ModelProto"),
        (refuse, "no converter for this"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(export: Callable[[], Any], sentence: str, tmp_path: Path) -> None:
    model = AnyModel(export, softmax, ROWS)
    with pytest.raises(DeliveryFailedError, match=sentence):
        model.export(model.keep(), tmp_path / "model.onnx").compared()


def test_scores_as_maps_are_the_tensor_that_they_are_made_of(tmp_path: Path) -> None:
    zipped = onnx_model()
    zipped.graph.node.append(
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    )
    zipped.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    zipped.graph.output[1].CopyFrom(helper.make_value_info("maps", helper.make_sequence_type_proto(kind)))
    model = AnyModel(lambda: zipped, softmax, ROWS)
    found = model.export(model.keep(), tmp_path / "model.onnx")
    assert found.model.output_names == ("label", "maps")
    np.testing.assert_allclose(found.predict(ROWS), softmax(ROWS), rtol=1e-5)
    # CatBoost's files are of the oldest format, and name operators of machine learning only.
    del zipped.graph.node[:], zipped.graph.output[:1], zipped.opset_import[:]
    for operator, ends, attributes in (
        ("Normalizer", ("x", "scores"), {"norm": "L1"}),
        ("ZipMap", ("scores", "maps"), {"classlabels_int64s": [0, 1, 2]}),
    ):
        zipped.graph.node.append(helper.make_node(operator, ends[:1], ends[1:], domain="ai.onnx.ml", **attributes))
    zipped.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    zipped.ir_version = 3
    unit = ROWS / np.abs(ROWS).sum(axis=1, keepdims=True)
    model = AnyModel(lambda: zipped, lambda rows: rows / np.abs(rows).sum(axis=1, keepdims=True), ROWS)
    found = model.export(model.keep(), tmp_path / "other.onnx")
    np.testing.assert_allclose(found.predict(ROWS), unit, rtol=1e-5)


@pytest.mark.parametrize(("outputs", "sentence"), [(softmax(ROWS), ""), (softmax(-ROWS), "disagree on scores")])
def test_a_file_that_is_delivered_is_compared_with_the_answers_that_came_with_it(
    outputs: Array, sentence: str, tmp_path: Path
) -> None:
    model = AnyModel()
    with model.offering(onnx_model().SerializeToString(), ROWS, outputs):
        kept = model.keep()
    assert not model.has_model
    if sentence:
        with pytest.raises(DeliveryFailedError, match=sentence):
            model.export(kept, tmp_path / "model.onnx").compared()
    else:
        assert model.export(kept, tmp_path / "model.onnx").compared().rows > 0


def test_labels_of_a_sound_classifier_are_handed_over(tmp_path: Path) -> None:
    """Of rows that are far from real ones all scores are 1 in 32 bits, and the label is any of these."""
    from skl2onnx import to_onnx
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier

    rows, labels = load_digits(return_X_y=True)
    rows = (rows / 16).astype(np.float32)
    classifier = SGDClassifier(loss="log_loss", random_state=0).fit(rows[:1300], labels[:1300])
    options = {"zipmap": False}
    model = AnyModel(lambda: to_onnx(classifier, rows[:1], options=options), classifier.predict, rows[:1])
    model.predict((rows[1300:],))
    exported = model.export(model.keep(), tmp_path / "model.onnx")
    assert exported.compared().rows > 128
    assert exported.reference().keys() == {"input_X", "output_label"}


def test_of_all_rows_that_a_script_asks_about_few_are_kept() -> None:
    model = AnyModel(onnx_model, softmax)
    model.predict((np.ones((100_000, 3), np.float32),))
    assert len(pickle.dumps(model.keep())) < 20_000


@pytest.mark.parametrize(("wrong", "sentence"), [(1, ""), (3, "disagree on label for 6 of 215 answers")])
def test_of_labels_one_in_a_hundred_may_differ(wrong: int, sentence: str, tmp_path: Path) -> None:
    rows = np.linspace(-1, 1, 300, dtype=np.float32).reshape(100, 3)
    rows[:, 1] += np.arange(100) % 2

    def predict(asked: Array) -> Array:
        found: Array = asked.argmax(axis=1)
        return (found + (np.arange(len(found)) < wrong) * (len(found) == 100)) % 3

    model = AnyModel(onnx_model, predict, rows)
    model.predict((rows,))
    kept = model.keep()
    if not sentence:
        found = model.export(kept, tmp_path / "model.onnx").reference()
        np.testing.assert_array_equal(found["output_label"], found["input_x"].argmax(axis=1))
        return
    with pytest.raises(DeliveryFailedError, match=sentence):
        model.export(kept, tmp_path / "model.onnx")


def test_texts_go_in_as_they_are(tmp_path: Path) -> None:
    texts = helper.make_tensor_value_info("text", TensorProto.STRING, [None, 1])
    same = helper.make_tensor_value_info("same", TensorProto.STRING, [None, 1])
    graph = helper.make_graph([helper.make_node("Identity", ["text"], ["same"])], "texts", [texts], [same])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = AnyModel(lambda: file, lambda rows: rows, np.array([["a"], ["much longer"]], dtype=object))
    exported = model.export(model.keep(), tmp_path / "model.onnx")
    assert np.asarray(exported.predict(np.array([["ü"]], dtype=object))).tolist() == [["ü"]]


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_and_gives_back_what_was_saved(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, PickleFormat(), interval_seconds=0.0)
    saved = {"trees": 0}
    trained = AnyModel(save=lambda: saved)
    for saved["trees"] in (1, 2):
        store.save(trained.state({}))
    for kept in (2, 1):
        state = store.load()
        assert state is not None
        model = AnyModel()
        assert model.restored("nothing") == "nothing"
        model.restore(state, rank=0)
        assert model.restored("nothing") == {"trees": kept}
        content = bytearray((tmp_path / LATEST_FILE).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / LATEST_FILE).write_bytes(content)


@pytest.mark.parametrize("of_pytorch", [True, False])
def test_a_warm_start_from_another_framework_is_refused_and_is_no_damage(of_pytorch: bool, tmp_path: Path) -> None:
    signature = Signature.from_example(ROWS)
    models: list[Trained] = [AnyModel(save=dict), PyTorchModel(nn.Linear(3, 1), signature)]
    if of_pytorch:
        models.reverse()
    source, successor = (
        RunKeeper(CheckpointStore(tmp_path, each.checkpoint_format, interval_seconds=0.0), each) for each in models
    )
    for _ in range(2):  # the one before is of the same job
        source.save(RunState("one-1"))
    with pytest.raises(CheckpointError, match=r"PyTorch model, and .*name a job of the same framework"):
        successor.restore("two-1")


def test_what_cannot_be_pickled_is_said(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, PickleFormat(), interval_seconds=0.0)
    with pytest.raises(CheckpointError, match="cannot be pickled"):
        store.save(AnyModel(save=lambda: lambda: None).state({}))


def test_bytes_are_taken_as_they_are() -> None:
    assert content_of(b"abc").model == b"abc"


def test_a_script_without_pytorch_loads_none_of_it() -> None:
    program = (
        "import sys, tiercel.trainer as t\n"
        "job = t.connect(export=lambda: b'', predict=lambda x: x)\n"
        "import tiercel.trainer_agent.trainer.attaching\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"

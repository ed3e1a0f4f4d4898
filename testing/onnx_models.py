"""Small ONNX models for tests, built without torch, and the repository layout they lie in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IR_VERSION = 10
Shape = Sequence[int | str]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape]],
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
    domains: Sequence[str] = (),
) -> bytes:
    """An ONNX file; inputs and outputs are (element type, shape) by name."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString())


def identity(kind: int = TensorProto.FLOAT, shape: Shape = ("n",)) -> bytes:
    """``y = x``."""
    return model([helper.make_node("Identity", ["x"], ["y"])], {"x": (kind, shape)}, {"y": (kind, shape)})


def many_outputs(count: int) -> bytes:
    """``y0 = y1 = ... = x`` for x of shape [n, 3]."""
    names = [f"y{number}" for number in range(count)]
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in names]
    shape: tuple[int, Shape] = (TensorProto.FLOAT, ["n", 3])
    return model(nodes, {"x": shape}, dict.fromkeys(names, shape))


def plus(value: float, features: int = 4) -> bytes:
    """``y = x + value`` for x of shape [n, features]: the answer says which version gave it."""
    return model(
        [helper.make_node("Add", ["x", "value"], ["y"])],
        {"x": (TensorProto.FLOAT, ["n", features])},
        {"y": (TensorProto.FLOAT, ["n", features])},
        {"value": np.array(value, np.float32)},
    )


def two_in_two_out() -> bytes:
    """``total = a + b`` (FP32 [n]) and ``doubled = k + k`` (INT64 scalar)."""
    return model(
        [helper.make_node("Add", ["a", "b"], ["total"]), helper.make_node("Add", ["k", "k"], ["doubled"])],
        {"a": (TensorProto.FLOAT, ["n"]), "b": (TensorProto.FLOAT, ["n"]), "k": (TensorProto.INT64, [])},
        {"total": (TensorProto.FLOAT, ["n"]), "doubled": (TensorProto.INT64, [])},
    )


def mlp(layers: Sequence[int] = (64, 128, 10), seed: int = 0) -> bytes:
    """A multilayer perceptron with ReLU; x is [n, layers[0]], y is [n, layers[-1]]."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, npt.NDArray[Any]] = {}
    value = "x"
    for index, (before, after) in enumerate(itertools.pairwise(layers)):
        constants[f"w{index}"] = (random.standard_normal((before, after)) / np.sqrt(before)).astype(np.float32)
        constants[f"b{index}"] = np.zeros(after, np.float32)
        last = index == len(layers) - 2
        target = "y" if last else f"h{index}"
        nodes.append(helper.make_node("Gemm", [value, f"w{index}", f"b{index}"], [target if last else f"z{index}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"z{index}"], [target]))
        value = target
    return model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", layers[0]])},
        {"y": (TensorProto.FLOAT, ["n", layers[-1]])},
        constants,
    )


def counting_loop(steps: int | None = None) -> bytes:
    """``y = k`` by counting in a loop of k steps, so that its running time is its input; k and y are INT64 scalars.

    With ``steps`` it takes so many whatever k is.
    """
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.INT64, []),
        ],
    )
    return model(
        [helper.make_node("Loop", ["k" if steps is None else "steps", "", "zero"], ["y"], body=body)],
        {"k": (TensorProto.INT64, [])},
        {"y": (TensorProto.INT64, [])},
        {"zero": np.array(0, np.int64), "one": np.array(1, np.int64), "steps": np.array(steps or 0, np.int64)},
    )


def gather() -> bytes:
    """``y = table[i]`` for a table of 3: an index out of bounds fails while the model runs."""
    return model(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        {"i": (TensorProto.INT64, ["n"])},
        {"y": (TensorProto.FLOAT, ["n"])},
        {"table": np.array([10, 20, 30], np.float32)},
    )


def letters() -> bytes:
    """A decoder, with bytes for its tokenizer, that goes on with the letter that follows, and ends before ``z``."""
    ids, cache = (TensorProto.INT64, ("rows", "new")), (TensorProto.FLOAT, ("rows", 1, "past", 1))
    grown = (TensorProto.FLOAT, ("rows", 1, "all", 1))
    kinds = ("key", "value")
    nodes = [
        helper.make_node("Gather", ["following", "input_ids"], ["logits"]),
        helper.make_node("Gather", ["nothing", "input_ids"], ["kept"]),
        helper.make_node("Unsqueeze", ["kept", "axis"], ["new"]),
        *(
            helper.make_node("Concat", [f"past_key_values.0.{kind}", "new"], [f"present.0.{kind}"], axis=2)
            for kind in kinds
        ),
    ]
    constants = {
        "following": np.eye(256, k=1, dtype=np.float32),
        "nothing": np.zeros((256, 1), np.float32),
        "axis": np.array([1]),
    }
    content = model(
        nodes,
        {"input_ids": ids, **{f"past_key_values.0.{kind}": cache for kind in kinds}},
        {
            "logits": (TensorProto.FLOAT, ("rows", "new", 256)),
            **{f"present.0.{kind}": grown for kind in kinds},
        },
        constants,
    )
    told = onnx.load_model_from_string(content)
    said = {"eos_token_id": str(ord("z")), "context_length": "1024", "tokenizer": "bytes"}
    helper.set_model_props(told, said)
    return bytes(told.SerializeToString())


def centred() -> bytes:
    """``y = x - mean of x over the batch``, both [n, 4]: what a row gives depends on the others."""
    return model(
        [
            helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, ["n", 4])},
        {"y": (TensorProto.FLOAT, ["n", 4])},
        {"axes": np.array([0], np.int64)},
    )


def summed() -> bytes:
    """``y`` is the sum over the batch of x [n, 4]: one row for all."""
    return model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)],
        {"x": (TensorProto.FLOAT, ["n", 4])},
        {"y": (TensorProto.FLOAT, [1, 4])},
        {"axes": np.array([0], np.int64)},
    )


def doubled_rows() -> bytes:
    """``y`` has each row of x [n, 4] twice."""
    return model(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
        {"x": (TensorProto.FLOAT, ["n", 4])},
        {"y": (TensorProto.FLOAT, ["m", 4])},
    )


def out_of_bounds() -> bytes:
    """``y = table[i + 100]`` for a table of 3: fails for every i that anybody would try."""
    return model(
        [helper.make_node("Add", ["i", "far"], ["j"]), helper.make_node("Gather", ["table", "j"], ["y"])],
        {"i": (TensorProto.INT64, ["n"])},
        {"y": (TensorProto.FLOAT, ["n"])},
        {"table": np.array([10, 20, 30], np.float32), "far": np.array(100, np.int64)},
    )


def with_custom_operator() -> bytes:
    """A model that needs an operator of somebody's own."""
    return model(
        [helper.make_node("Backdoor", ["x"], ["y"], domain="evil.example")],
        {"x": (TensorProto.FLOAT, ["n"])},
        {"y": (TensorProto.FLOAT, ["n"])},
        domains=["evil.example"],
    )


def with_external_data(location: str = "../../../secret") -> bytes:
    """A model one of whose tensors lies in another file."""
    proto = onnx.load_model_from_string(plus(1.0))
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return bytes(proto.SerializeToString())


def save_external(content: bytes, path: Path, *, one_file: bool = True) -> None:
    """Write a model whose weights are in files beside it, as the onnx package does."""
    onnx.save_model(
        onnx.load_model_from_string(content),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location=f"{path.name}_data" if one_file else None,
        size_threshold=0,
        convert_attribute=False,
    )


def put(
    repository: Path,
    name: str,
    version: int,
    content: bytes,
    reference: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Path:
    """Put a version into a repository as a whole; returns its folder."""
    folder = repository / name / str(version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{version}.new")
    temporary.mkdir()
    (temporary / "model.onnx").write_bytes(content)
    if reference is not None:
        np.savez(temporary / "reference.npz", allow_pickle=False, **reference)
    temporary.rename(folder)
    return folder


def as_large_as_asked() -> bytes:
    """``y`` is zeros in the shape ``x`` (INT64 [rank]): 130 bytes of file, and as many as a caller likes of answer."""
    return model(
        [helper.make_node("ConstantOfShape", ["x"], ["y"])],
        {"x": (TensorProto.INT64, ["rank"])},
        {"y": (TensorProto.FLOAT, ["n"])},
    )


def large_by_itself(elements: int) -> bytes:
    """``y = x + zeros``, where the file says only how many of them there are."""
    return model(
        [helper.make_node("ConstantOfShape", ["size"], ["zeros"]), helper.make_node("Add", ["x", "zeros"], ["y"])],
        {"x": (TensorProto.FLOAT, [1])},
        {"y": (TensorProto.FLOAT, ["n"])},
        {"size": np.array([elements], np.int64)},
    )

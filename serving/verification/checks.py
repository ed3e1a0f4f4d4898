"""Checks of an artefact that nobody trusts yet. Runs in a process of its own, see :mod:`.verifier`."""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import os
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx

from tiercel.core.errors import ArtefactRefusedError, InferenceFailedError, InvalidRequestError, TooLargeError
from tiercel.core.tokenizers import TEXT_OF_BYTES, TOKENIZER
from tiercel.serving import memory
from tiercel.serving.runtime import artefact_file, engine, tokenizer_child
from tiercel.serving.runtime.decoder import decoder_of
from tiercel.serving.runtime.measure import MEASURE_WALL_SECONDS, Batching, tried_batching
from tiercel.serving.runtime.specs import first_line
from tiercel.serving.tensors import Array
from tiercel.serving.verification.external_data import check_digest, check_external, data_beside
from tiercel.serving.verification.strip_weights import without_weights
from tiercel.serving.verification.verdict import Verdict

# Operators that ONNX Runtime ships with. Custom ones would come from a shared library, which is never loaded.
ALLOWED_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-4
# A model that is slower is measured by the server, so that a check takes little longer than it has to.
_MEASURED_SECONDS = 0.02
_LOOPS = frozenset({"Loop", "Scan"})
_TENSOR_TYPES = frozenset(onnx.helper.get_all_tensor_dtypes())


def verify(
    path: str,
    reference: Path,
    max_reference_bytes: int,
    batch_rows: int = 1,
    known: Batching | None = None,
    *,
    is_compared: bool = True,
) -> Verdict:
    """Check an artefact: form, where its weights are, standard operators, loads, and answers as its reference says.

    Args:
        path: The ONNX file, which nobody changes meanwhile.
        reference: An ``.npz`` with ``input_NAME`` and, to be compared, ``output_NAME``; it may be missing.
        max_reference_bytes: Largest reference, unpacked.
        batch_rows: The largest batch of which to find out how long it takes; 1 for none.
        known: What was found of the version before it; None where there is none.
        is_compared: Whether its answers have to be those of the reference.

    Raises:
        ArtefactRefusedError: It failed a check; the message says which.
    """
    model = _parse(_stripped(path))
    weight_bytes, beside = 0, data_beside(Path(path))
    for tensor in _tensors(model):
        weight_bytes += _size(tensor)
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            check_external(tensor, beside)
    check_digest(Path(path), beside)
    has_loop = _check_operators(model)
    _declare_left_out(model)
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker raises several unrelated types
        raise ArtefactRefusedError(f"it is not valid ONNX: {first_line(error)}") from error
    before = memory.private_bytes()
    session = engine.Session(path)
    loaded_bytes = max(0, memory.private_bytes() - before)
    if decoder_of(session.inputs, session.outputs, session.metadata) is not None:
        _check_tokenizer(session.metadata.get(TOKENIZER, ""))
    shapes: dict[str, list[int]] = {}
    if reference.exists() or reference.is_symlink():
        arrays = _read_reference(reference, max_reference_bytes)
        if not is_compared:
            arrays = {name: value for name, value in arrays.items() if name.startswith("input_")}
        shapes = _check_reference(session, arrays)
    if has_loop and not shapes:
        _try_made_up(session)
    batching = _batching(session, shapes, batch_rows, known) if batch_rows > 1 and not has_loop else None
    return Verdict(shapes, has_loop, weight_bytes, batching, loaded_bytes)


def rehearse() -> None:
    """Check a model of no consequence, for whoever forks later: most of a first check is what libraries do once."""
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "rehearsal", value[:1], value[1:])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 13)])
    with os.fdopen(os.memfd_create("rehearsal"), "wb") as file:
        file.write(model.SerializeToString())
        file.flush()
        with contextlib.suppress(ArtefactRefusedError):  # a rehearsal that fails costs nothing but time
            verify(f"/proc/self/fd/{file.fileno()}", Path(os.devnull, "none"), 0, 2)


def _try_made_up(session: engine.Session) -> None:
    """Run it as the server does to warm it up: a loop that does not end does so here, where it is ended."""
    with contextlib.suppress(TooLargeError):  # the server says so
        session.warm_up({}, 1)


def _check_tokenizer(said: str) -> None:
    if said not in {"", TEXT_OF_BYTES}:
        tokenizer_child.loaded(said)  # here, since whatever it does ends with this process


def _batching(
    session: engine.Session, shapes: dict[str, list[int]], batch_rows: int, known: Batching | None
) -> Batching | None:
    """What batching does to it; None where it is slow or fails here: nothing it may be refused for."""
    # Measured here, since in the server each of the 50 runs would have requests wait for Python's lock, or for a core:
    # swaps of 45 MB under load then had gaps of up to 13 ms instead of 9. What is best is found as often as there
    # (ResNet-18 of width 16, on a quiet machine: 8 rows in 12 of 16 loads, either way).
    begin = time.perf_counter()
    try:
        runs = engine.WARM_UP_RUNS if known is None else engine.FEW_WARM_UP_RUNS
        seconds = session.warm_up(shapes, runs).seconds
        if seconds is None or (known is None and seconds > _MEASURED_SECONDS):
            return None
        found = tried_batching(session, shapes, batch_rows, known)
    except Exception:  # memory above all, of which there is less than in the server
        return None
    # Where it got hardly any CPU, larger batches are missing.
    return found if time.perf_counter() - begin < MEASURE_WALL_SECONDS else None


def _stripped(path: str) -> bytes:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            return without_weights(content)
        except ValueError:  # protobuf says better what is wrong with it, if anything is
            return content[:]


def _declare_left_out(model: onnx.ModelProto) -> None:
    """Have weights that were left out pass the checker; whether there were enough of them ONNX Runtime sees."""
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.raw_data = b""
        if tensor.HasField("raw_data") and not tensor.raw_data:
            tensor.dims[:] = [0]


def _parse(data: bytes) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's error type differs between its implementations
        raise ArtefactRefusedError(f"it is not ONNX: {first_line(error)}") from error
    if not model.HasField("graph") or not model.opset_import:
        raise ArtefactRefusedError("it is not ONNX: there is no graph in it")
    return model


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _nodes(graph.node)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inner in _subgraphs(node):
            yield from _graphs(inner)


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield from _graphs(model.graph)
    for function in model.functions:
        for node in function.node:
            for inner in _subgraphs(node):
                yield from _graphs(inner)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in _all_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in _all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse_tensors = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for sparse in (*sparse_tensors, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)


def _size(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor when it is loaded, by what it declares; each string counts for a pointer."""
    if tensor.data_type not in _TENSOR_TYPES:
        return len(tensor.raw_data)
    elements = math.prod(max(size, 0) for size in tensor.dims)
    return elements * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _check_operators(model: onnx.ModelProto) -> bool:
    """Refuse operators that are not standard; say whether there is a loop."""
    own = {(function.domain, function.name) for function in model.functions}
    has_loop = False
    for node in _all_nodes(model):
        if node.domain not in ALLOWED_DOMAINS and (node.domain, node.op_type) not in own:
            raise ArtefactRefusedError(
                f"operator '{node.op_type[:100]}' of domain '{node.domain[:100]}' is not a standard one; "
                "export with standard ONNX operators only"
            )
        has_loop = has_loop or node.op_type in _LOOPS
    return has_loop


def _read_reference(path: Path, max_bytes: int) -> dict[str, Array]:
    descriptor, size = artefact_file.open_artefact(path, max_bytes)
    try:
        data = artefact_file.content_of(descriptor, size)
    finally:
        os.close(descriptor)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > max_bytes:
            raise ArtefactRefusedError(f"{path.name} unpacks to {unpacked} bytes; {max_bytes} are possible")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    # NotImplementedError is what zipfile raises for a compression that it does not know.
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, KeyError) as error:
        raise ArtefactRefusedError(f"{path.name} cannot be read: {first_line(error)}") from error


def _check_reference(session: engine.Session, arrays: dict[str, Array]) -> dict[str, list[int]]:
    inputs = {name.removeprefix("input_"): value for name, value in arrays.items() if name.startswith("input_")}
    outputs = {name.removeprefix("output_"): value for name, value in arrays.items() if name.startswith("output_")}
    if set(inputs) != set(session.inputs):
        raise ArtefactRefusedError(
            f"the reference has inputs {sorted(inputs)}, but the model takes {sorted(session.inputs)}"
        )
    if not set(outputs) <= set(session.outputs):
        raise ArtefactRefusedError(
            f"the reference has outputs {sorted(outputs)}, but the model gives {sorted(session.outputs)}"
        )
    names = list(outputs) or list(session.outputs)  # without any there is nothing to compare, but it has to run
    try:
        results = session.run(names, {name: _for_session(value) for name, value in inputs.items()})
    except (InvalidRequestError, InferenceFailedError, TooLargeError) as error:
        raise ArtefactRefusedError(f"it does not run on its reference inputs: {error.message}") from error
    for name, result in zip(names, results, strict=True):
        if name in outputs:
            _compare(name, outputs[name], result)
    return {name: list(value.shape) for name, value in inputs.items()}


def _for_session(value: Array) -> Array:
    return value.astype(np.object_) if value.dtype.kind == "U" else value


def _compare(name: str, expected: Array, found: Array) -> None:
    if expected.shape != found.shape:
        raise ArtefactRefusedError(
            f"output '{name}' has shape {list(found.shape)}, but its reference {list(expected.shape)}"
        )
    if expected.dtype.kind in "US" or found.dtype.kind == "O":
        if expected.astype(np.str_).tolist() != found.astype(np.str_).tolist():
            raise ArtefactRefusedError(f"output '{name}' differs from its reference")
        return
    close = np.isclose(found, expected, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True)
    if not close.all():
        raise ArtefactRefusedError(
            f"output '{name}' differs from its reference in {int((~close).sum())} of {close.size} elements "
            f"(tolerance {RELATIVE_TOLERANCE} relative, {ABSOLUTE_TOLERANCE} absolute)"
        )

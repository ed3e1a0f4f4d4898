"""Sends an ONNX file that is to be a version of an endpoint, and with it what the model is tried with."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from tiercel.broker.client.models import Models
from tiercel.core.accuracy import accuracy_of
from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind, cheap_kinds
from tiercel.core.checkpoints import Artefact
from tiercel.core.deploying import MAX_MODEL_BYTES, MAX_REFERENCE_BYTES, Deploy, check_size
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import Direction
from tiercel.core.wire import to_proto
from tiercel.v1 import models_pb2, models_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from tiercel.broker.client.connection import Connection
    from tiercel.core.endpoint_access import EndpointAccess
    from tiercel.core.endpoint_views import VersionInfo
    from tiercel.core.endpoints import Signature
    from tiercel.core.onnx_data import JoinedModel

_PIECE_BYTES = 256 * 1024
_SLOWEST_BYTES_PER_SECOND = 64 * 1024
# What a node has to load it, and more for those that wait before it.
_SECONDS = 1800.0
_NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8", "BYTES": "U1",
}  # fmt: skip
MAX_INPUT_BYTES = 32 * 1024**2


class Deploying(ABC):
    """What a client can do with an ONNX file that no job has made."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """To the broker."""

    async def deploy(
        self,
        file: str | Path,
        endpoint: str,
        *,
        accuracy: float | None = None,
        metric: str = "",
        value: float | None = None,
        direction: Direction = Direction.MAX,
        inputs: Mapping[str, Sequence[int]] | None = None,
        reference: str | Path | None = None,
        calibration: str | Path | None = None,
        cheap_variants: Sequence[str] = (VariantKind.INT8,),
        node: str = "",
        replicas: int | None = None,
        objective_seconds: float | None = None,
        access: EndpointAccess | None = None,
        replace: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> VersionInfo:
        """Make an ONNX file the next version of an endpoint, and wait until it answers, or is kept and does not.

        Args:
            file: The model. Weights may be in files beside it, as ONNX has them (external data).
            endpoint: The endpoint; it is made where there is none of the name.
            accuracy: How good the model is, if that is an accuracy; the same as ``metric="accuracy"`` with its value.
            metric: Name of another metric.
            value: What was measured.
            direction: Whether a larger or a smaller metric is better.
            inputs: Shapes that the model is tried with before it answers, by input; 1 for each free axis of others.
            reference: An ``.npz`` file with ``input_NAME`` and ``output_NAME`` that it must give, in place of shapes.
            calibration: 100 rows or more to make cheap variants with; it needs an accuracy. An ``.npz`` file with
                ``input_NAME`` [rows, …] and perhaps ``label`` [rows], or an ``.npy`` file of the only input's rows.
            cheap_variants: Which are made: ``int8``, ``fp16``. They answer beside it where they are worth it.
            node: The node that shall answer with it; left out, where the endpoint does, or a quiet one.
            replicas: On how many nodes the endpoint answers; 0 leaves it to the broker, None as it is.
            objective_seconds: Delay that is wanted of the endpoint; None leaves it as it is.
            access: Who may ask the endpoint; None leaves it as it is.
            replace: Let it answer even where it is worse, or takes or gives something else, than what answers.
            progress: Called with the bytes that were sent, and those that are to be sent.

        Returns:
            The version: ``held`` says why it does not answer, ``cheap_variants`` what became of them, ``was_there``
            that the same file with the same value is one already, or was on its way, so that no other one is made.

        Raises:
            InvalidSpecError: The file is broken, too large or refused by its node, or takes or gives something else.
            EndpointBusyError: The endpoint is somebody else's, or has variants.
            UnavailableError: No node can answer with it now, or it is not known in time what becomes of it.
        """
        if accuracy is not None:
            metric, value = "accuracy", _fraction(accuracy)
        said: dict[str, Any] = {"endpoint": endpoint, "metric": metric, "value": value, "direction": direction}
        said |= {"node_id": node, "replicas": replicas, "objective_seconds": objective_seconds, "access": access}
        wanted = None if calibration is None else _Wanted(Path(calibration), _kinds(cheap_variants))
        prepare = partial(_prepared, Path(file), inputs or {}, reference, wanted, said | {"replace": replace})
        with nullcontext("") if wanted is None else TemporaryDirectory(prefix="tiercel-variants-") as scratch:
            deploy, parts = await asyncio.to_thread(prepare, Path(scratch))
            sent = await _send(self._connection, deploy, parts, progress)
        return await _told(Models(self._connection), sent)


async def _told(models: Models, sent: models_pb2.DeployModelResponse) -> VersionInfo:
    version = next(each for each in await models.list(sent.endpoint) if each.version == sent.version)
    return replaced(version, was_there=sent.was_there)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file that is sent."""

    size_bytes: int  # of it
    pieces: Callable[[], Iterator[bytes]]  # its content, in pieces
    sha256: str = ""  # of it, hexadecimal, where that is known

    def artefact(self) -> Artefact:
        """What is said of it; blocks."""
        if self.sha256:
            return Artefact(self.sha256, self.size_bytes)
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return Artefact(digest.hexdigest(), self.size_bytes)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is sent, in this order."""

    model: _Part
    data: _Part | None  # weights that are not in the model's own file
    reference: _Part | None  # what the model is tried with
    variants: tuple[_Part, ...] = ()  # its cheap variants

    def all(self) -> list[_Part]:
        """Those that there are."""
        return [part for part in (self.model, self.data, self.reference, *self.variants) if part is not None]


class _Wanted(NamedTuple):
    """Cheap variants that are to be made."""

    calibration: Path  # of rows in this file
    kinds: tuple[VariantKind, ...]


def _kinds(words: Sequence[str]) -> tuple[VariantKind, ...]:
    unknown = next((word for word in words if word not in CHEAP), None)
    if unknown is not None:
        raise wrong_field("cheap_variants", f"{unknown[:32]!r} is none of them; give {' or '.join(CHEAP)}")
    return cheap_kinds(words)


def _prepared(
    path: Path,
    inputs: Mapping[str, Sequence[int]],
    reference: str | Path | None,
    wanted: _Wanted | None,
    said: Mapping[str, Any],
    scratch: Path,
) -> tuple[Deploy, _Parts]:
    """What is said of a file, and what is sent: cheap variants too, made in a folder, where they are wanted; blocks."""
    parts = _parts_of(path, inputs, reference)
    variants: tuple[CheapVariant, ...] = ()
    if wanted is not None:
        variants = _variants_of(path, wanted, accuracy_of(said["value"], said["direction"]), scratch)
        files = (scratch / each.kind.file for each in variants if not each.reason)
        parts = replaced(parts, variants=tuple(_file(file, "calibration", MAX_MODEL_BYTES) for file in files))
    return _described(path, parts, cheap_variants=variants, **said), parts


def _fraction(accuracy: float) -> float:
    if not 0 <= accuracy <= 1:
        raise wrong_field("accuracy", f"{accuracy} is no fraction from 0 to 1; say anything else by its metric")
    return accuracy


def _parts_of(path: Path, inputs: Mapping[str, Sequence[int]], reference: str | Path | None) -> _Parts:
    """What is to be sent; blocks."""
    from tiercel.core.onnx_data import DataError, joined
    from tiercel.core.onnx_signature import UNREADABLE, read_signature

    if reference is not None and inputs:
        raise wrong_field("inputs", "are given beside a reference, which has some; leave out one of the two")
    try:
        model = _file(path, "file", MAX_MODEL_BYTES)
        signature = read_signature(path)
        if not path.is_file():
            raise wrong_field("file", f"{path} is a folder; give the ONNX file in it")
        if signature is None:
            raise wrong_field("file", f"{path} {UNREADABLE}")
        data = None
        if (found := joined(path)) is not None:
            data = _Part(found.size_bytes, partial(_weights_of, found), found.digest())
            content = found.content(data.sha256)
            model = _Part(len(content), partial(_pieces_in, content))
        tried = None
        if reference is not None:
            tried = _file(Path(reference), "reference", MAX_REFERENCE_BYTES)
        elif inputs:
            content = reference_of(signature, inputs)
            tried = _Part(len(content), partial(_pieces_in, content))
    except DataError as error:
        raise wrong_field("file", str(error)) from error
    except OSError as error:
        raise wrong_field("file", f"{error.filename} cannot be read ({error.strerror})") from error
    return _Parts(model, data, tried)


def _variants_of(path: Path, wanted: _Wanted, accuracy: float | None, scratch: Path) -> tuple[CheapVariant, ...]:
    """What came of the cheap variants of a file, which are made in a folder that is there for them; blocks."""
    if accuracy is None:
        raise wrong_field(
            "calibration", "needs an accuracy above 0 and up to 1 that the model has; give it (--accuracy)"
        )
    try:
        import onnxruntime  # noqa: F401

        from tiercel.broker.client.cheap_variants import make_variants
    except ImportError as error:
        raise wrong_field("calibration", f"needs {error.name} here: pip install 'tiercel[serve]'") from error
    return tuple(make_variants(wanted.kinds, path, wanted.calibration, accuracy, scratch))


def _described(path: Path, parts: _Parts, **said: Any) -> Deploy:
    """What is said of a file, with its size and SHA-256; blocks."""
    try:
        model, data, tried = (
            None if part is None else part.artefact() for part in (parts.model, parts.data, parts.reference)
        )
    except OSError as error:
        raise wrong_field("file", f"{path} cannot be read ({error.strerror})") from error
    assert model is not None  # noqa: S101 - it is never missing
    deploy = Deploy(file=path.name, model=model, data=data, reference=tried, **said)
    from tiercel.core.deploy_validation import validate_deploy  # a command that lists does without

    validate_deploy(deploy)
    return deploy


def _file(path: Path, field: str, most_bytes: int) -> _Part:
    """A file that is sent as it is now; one that is empty or too large is refused before all of it is read."""
    seen = path.stat()
    check_size(field, Artefact("0" * 64, seen.st_size), most_bytes)
    return _Part(seen.st_size, partial(_pieces_of, path, field, seen))


def _pieces_of(path: Path, field: str, seen: os.stat_result) -> Iterator[bytes]:
    """The content of a file, which may become another one, or go away, while it is sent."""
    try:
        with path.open("rb") as file:
            while True:
                piece, now = file.read(_PIECE_BYTES), os.fstat(file.fileno())
                if any(getattr(now, each) != getattr(seen, each) for each in ("st_ino", "st_size", "st_mtime_ns")):
                    raise wrong_field(field, f"{path.name} has changed while it was read; try again when it is written")
                if not piece:
                    return
                yield piece
    except OSError as error:
        raise wrong_field(field, f"{path} cannot be read ({error.strerror})") from error


def _weights_of(model: JoinedModel) -> Iterator[bytes]:
    """Weights beside a model, which may become others while they are sent."""
    from tiercel.core.onnx_data import DataError

    try:
        yield from model.pieces()
    except DataError as error:
        raise wrong_field("file", str(error)) from error


def _pieces_in(content: bytes) -> Iterator[bytes]:
    return (content[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES))


def reference_of(signature: Signature, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Inputs of these shapes, all zero or empty, that a model is to be tried with; blocks.

    Args:
        signature: What the model takes.
        shapes: By the name of the input; of others 1 is taken for each free axis.

    Raises:
        InvalidSpecError: It has no such input, or not of such a shape; names the input.
    """
    import numpy as np

    known = {tensor.name: tensor for tensor in signature.inputs}
    for name in shapes.keys() - known.keys():
        raise wrong_field("input", f"the model has no input {name!r}; it takes {', '.join(sorted(known))}")
    arrays = {}
    for name, tensor in known.items():
        shape = tuple(shapes.get(name) or (1 if size < 0 else size for size in tensor.shape or ()))
        declared = tensor.shape if tensor.shape is not None else shape
        fits = len(shape) == len(declared) and all(size > 0 for size in shape)
        if not fits or any(size not in (-1, given) for size, given in zip(declared, shape, strict=True)):
            raise wrong_field("input", f"{name!r} has shape {list(declared)}, which {list(shape)} does not fit")
        if tensor.datatype not in _NUMPY:
            raise wrong_field("input", f"{name!r} has a type of which no values can be made; leave out the shapes")
        if np.prod(shape, dtype=float) * 8 > MAX_INPUT_BYTES:
            raise wrong_field("input", f"{name!r} would have too many values to be tried with; give a smaller shape")
        arrays[f"input_{name}"] = np.zeros(shape, _NUMPY[tensor.datatype])
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type] # by name
    return file.getvalue()


async def _send(
    connection: Connection, deploy: Deploy, parts: _Parts, progress: Callable[[int, int], None] | None
) -> models_pb2.DeployModelResponse:
    """Send a model and wait until it is a version."""
    total = sum(part.size_bytes for part in parts.all())

    async def requests() -> AsyncGenerator[models_pb2.DeployModelRequest]:
        yield models_pb2.DeployModelRequest(header=to_proto(deploy, models_pb2.DeployHeader))
        sent = 0
        for part in parts.all():
            pieces = part.pieces()
            while piece := await asyncio.to_thread(next, pieces, b""):
                yield models_pb2.DeployModelRequest(data=piece)
                sent += len(piece)
                if progress is not None:
                    progress(sent, total)

    stub = models_pb2_grpc.ModelsServiceStub(connection.channel)
    seconds = _SECONDS + total / _SLOWEST_BYTES_PER_SECOND
    response: models_pb2.DeployModelResponse = await connection.send(stub.DeployModel, requests(), seconds=seconds)
    return response

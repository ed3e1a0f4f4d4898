"""Weights of an ONNX model beside its file, as they have to be where there are more than 2 GiB: ONNX's external data.

A version has them in one file, ``model.onnx.data``, and the model says which that is: its ``metadata_props`` have the
file's size and SHA-256 under :data:`KEY`, so that the SHA-256 of the model stands for both. Whoever hands a model over
brings it into this form (:func:`joined`), whatever files its converter wrote. Everything here blocks.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tiercel.core.blobs import is_sha256
from tiercel.core.model_files import MODEL_FILE
from tiercel.core.protobuf_walk import Message, NoMessageError, field_of

DATA_FILE: Final = f"{MODEL_FILE}.data"
KEY: Final = "tiercel.data"
MAX_DATA_FILES: Final = 4096
"""Old exporters write one for each tensor."""
MAX_GRAPH_BYTES: Final = 256 * 1024**2
"""What a model may have in its own file where it has weights beside it."""
# ONNX Runtime maps weights from where they begin: on a page of memory each file begins as it did.
_PAGE: Final = 4096
_PIECE_BYTES: Final = 256 * 1024
_MAX_KEY_BYTES: Final = 64
# onnx.proto: ModelProto.graph, .metadata_props; GraphProto.initializer; TensorProto.external_data;
# StringStringEntryProto.key, .value.
_GRAPH, _METADATA, _INITIALIZER, _EXTERNAL, _ENTRY_KEY, _ENTRY_VALUE = 7, 14, 5, 13, 1, 2
_KEPT: Final = frozenset({"offset", "length"})


class DataError(Exception):
    """Weights beside a model cannot be taken as they are; the message says why in plain words, and what to do."""


@dataclass(frozen=True, slots=True)
class DataDigest:
    """What a model says of the file with its weights."""

    size_bytes: int  # of it
    sha256: str  # of it, hexadecimal

    def check(self, size_bytes: int, sha256: str) -> None:
        """Raise :class:`DataError` unless a file is the one that the model means."""
        if (size_bytes, sha256) != (self.size_bytes, self.sha256):
            raise DataError(f"{DATA_FILE} is not the file with this model's weights: its SHA-256 or its size differs")


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JoinedModel:
    """A model whose weights are to be read out of the files that it names, as one."""

    size_bytes: int  # of the one file with its weights
    _model: bytes
    _parts: tuple[_Part, ...]

    def content(self, sha256: str) -> bytes:
        """The model's own file, once it is known what the SHA-256 of :meth:`pieces` is."""
        entry = field_of(_ENTRY_KEY, KEY.encode()) + field_of(_ENTRY_VALUE, f"{self.size_bytes} {sha256}".encode())
        return self._model + field_of(_METADATA, entry)

    def pieces(self) -> Iterator[bytes]:
        """The file with its weights, 256 KiB at a time at most.

        Raises:
            DataError: A file became another one meanwhile.
        """
        for part in self._parts:
            with open(_opened(part.path), "rb", buffering=0) as file:
                left = part.size_bytes
                while left and (piece := file.read(min(_PIECE_BYTES, left))):
                    left -= len(piece)
                    yield piece
                if left or file.read(1):
                    raise DataError(f"{part.path.name} has changed while it was read; try again when it is written")
            if padding := _padding(part.size_bytes):
                yield bytes(padding)

    def digest(self) -> str:
        """SHA-256 of the weights, hexadecimal."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def write(self, target: Path) -> bytes:
        """Write the weights to a new file, in one go; returns the model's own file.

        Raises:
            DataError: As :meth:`pieces`.
            OSError: The disk is full.
        """
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for piece in self.pieces():
                digest.update(piece)
                file.write(piece)
        return self.content(digest.hexdigest())


def joined(path: Path) -> JoinedModel | None:
    """A model with weights in files beside it; None for one that has all in its own file, or is no model.

    Files are taken by their plain names only, from the model's folder: neither links, nor what lies anywhere else.

    Raises:
        DataError: They cannot be taken.
        OSError: The model cannot be read.
    """
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        model = Message(data, 0, len(data))
        parts = _Parts(path.parent)
        try:
            if not any(_is_external(tensor) for graph in model.parts(_GRAPH) for tensor in graph.parts(_INITIALIZER)):
                return None
            if len(data) > MAX_GRAPH_BYTES:
                raise DataError(
                    f"{path.name} has {len(data)} bytes beside the weights in other files, and {MAX_GRAPH_BYTES} are "
                    "possible: save all weights there"
                )
            content = _rewritten_model(model, parts)
        except (NoMessageError, UnicodeDecodeError):
            return None
    return JoinedModel(parts.size_bytes, content, tuple(parts.found.values()))


def data_of(path: Path, start: int = 0, size_bytes: int | None = None) -> DataDigest | None:
    """What a model in a file says of its weights in :data:`DATA_FILE`; None for one that has all in its own file.

    Args:
        path: The file.
        start: Byte of it with which the model begins.
        size_bytes: Of the model; None for all that is left.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model = Message(data, start, len(data) if size_bytes is None else start + size_bytes)
            said = [entry.text(_ENTRY_VALUE) for entry in model.parts(_METADATA) if _key_of(entry) == KEY]
    except (NoMessageError, UnicodeDecodeError, OSError, ValueError):
        return None
    size, _, sha256 = said[-1].partition(" ") if said else ("", "", "")
    if not (size.isascii() and size.isdecimal() and len(size) < 19 and int(size) and is_sha256(sha256)):
        return None
    return DataDigest(int(size), sha256)


class _Parts:
    """The files that a model names, in the order in which it does, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begin: dict[str, int] = {}
        self.found: dict[str, _Part] = {}
        self.size_bytes = 0

    def begin_of(self, location: str) -> int:
        """Where a file begins in the one that they become."""
        parts = PurePosixPath(location).parts
        if len(parts) != 1 or parts[0] == ".." or "\0" in location:
            raise DataError(
                f"its weights lie in {location[:200]!r}: they have to be files beside the model, named without a folder"
            )
        name = parts[0]
        if name not in self.found:
            if len(self.found) >= MAX_DATA_FILES:
                raise DataError(f"its weights lie in more than {MAX_DATA_FILES} files; save them as one")
            path = self._folder / name
            descriptor = _opened(path)
            try:
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            self.found[name], self._begin[name] = _Part(path, size), self.size_bytes
            self.size_bytes += size + _padding(size)
        return self._begin[name]


def _padding(size_bytes: int) -> int:
    return -size_bytes % _PAGE


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        what = "is a link; put the file itself beside the model"
        if not path.is_symlink():
            what = f"cannot be read ({error.strerror}); it has to be beside the model"
        raise DataError(f"{path.name}, where weights of it lie, {what}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path.name}, where weights of it lie, is no plain file")
    return descriptor


def _is_external(tensor: Message) -> bool:
    return next(tensor.parts(_EXTERNAL), None) is not None


def _rewritten_model(model: Message, parts: _Parts) -> bytes:
    written = []
    for number, value, place in model.places():
        if number == _METADATA and isinstance(value, Message) and _key_of(value) == KEY:
            continue  # what was said of the files as they were
        if number == _GRAPH and isinstance(value, Message):
            written.append(field_of(number, _rewritten_graph(value, parts)))
        else:
            written.append(model.data[place])
    return b"".join(written)


def _rewritten_graph(graph: Message, parts: _Parts) -> bytes:
    written = []
    for number, value, place in graph.places():
        if number == _INITIALIZER and isinstance(value, Message) and _is_external(value):
            written.append(field_of(number, _rewritten_tensor(value, parts)))
        else:
            written.append(graph.data[place])
    return b"".join(written)


def _rewritten_tensor(tensor: Message, parts: _Parts) -> bytes:
    written: list[bytes] = []
    said: dict[str, str] = {}
    for number, value, place in tensor.places():
        if number == _EXTERNAL and isinstance(value, Message):
            said[_key_of(value)] = value.text(_ENTRY_VALUE)
        else:
            written.append(tensor.data[place])
    location, offset = said.get("location", ""), said.get("offset", "0")
    begin = parts.begin_of(location)
    for text in (offset, said.get("length", "0")):
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise DataError(
                f"{location[:200]!r} has weights of it at byte or of length {text[:40]!r}, which is no number"
            )
    end, size = int(offset) + int(said.get("length", "0")), parts.found[PurePosixPath(location).name].size_bytes
    if end > size:  # what comes after it in the one file is no weight
        raise DataError(f"its weights end at byte {end} of {location[:200]!r}, which has {size}; save the model again")
    now = {"location": DATA_FILE, "offset": str(begin + int(offset))}
    now |= {key: value for key, value in said.items() if key in _KEPT - now.keys()}
    for key, text in now.items():
        entry = field_of(_ENTRY_KEY, key.encode()) + field_of(_ENTRY_VALUE, text.encode())
        written.append(field_of(_EXTERNAL, entry))
    return b"".join(written)


def _key_of(entry: Message) -> str:
    """The key of an entry; empty for one that is longer than those that matter."""
    key = next(entry.parts(_ENTRY_KEY), None)
    return "" if key is None or key.end - key.start > _MAX_KEY_BYTES else entry.text(_ENTRY_KEY)

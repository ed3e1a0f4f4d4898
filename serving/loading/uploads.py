"""Models that come with the request to load them: their files become a version in the repository, all or none.

The files are written to a private folder and renamed into the repository, where the version is then verified and loaded
like any other. If it is refused it is taken out again. A version on disk is never changed: the same files may be sent
again, others need a higher number.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tiercel.core.errors import ConflictError, InvalidRequestError, TooLargeError
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.load_parameters import read_load_parameters
from tiercel.serving.loading.loader import Loader
from tiercel.serving.loading.stages import new_stage
from tiercel.serving.models import labels, repository
from tiercel.serving.models.configuration import BACKEND, PLATFORM
from tiercel.serving.operators import Operators

_PREFIX = "file:"
_FILE = re.compile(r"file:/?([^/]+)/([^/]+)")
# Decoding holds Python's lock: in pieces of this many characters, a multiple of 4, requests come in between.
_PIECE = 1024**2


class Uploads:
    """Loads models, with or without files.

    Args:
        loader: Has the thread in which files are deleted.
    """

    def __init__(
        self,
        root: Path,
        lifecycle: Lifecycle,
        loader: Loader,
        operators: Operators,
        max_model_bytes: int,
        max_reference_bytes: int,
    ) -> None:
        self._root = root
        self._lifecycle = lifecycle
        self._loader = loader
        self._operators = operators
        self._limits = {
            MODEL_FILE: max_model_bytes,
            REFERENCE_FILE: max_reference_bytes,
            labels.FILE_NAME: labels.MAX_BYTES,
        }
        self._lock = asyncio.Lock()

    async def load(self, model: str, parameters: Mapping[str, Any]) -> int:
        """Load a version from disk or from files that came along.

        Args:
            model: Its name.
            parameters: Those of :func:`~tiercel.serving.loading.load_parameters.read_load_parameters`; or Triton's
                ``file:VERSION/model.onnx`` with the file's bytes, or these in base64, and ``config``.

        Returns:
            The version that was loaded.

        Raises:
            InvalidRequestError: A parameter or a file's name is impossible.
            NotAllowedError: There is no operators' token, so that nobody may send files.
            TooLargeError: A file is over its limit.
            ConflictError: The version is on disk with other files, or a higher one is.
            TiercelError: What :meth:`.Lifecycle.load` raises; the version is gone again, unless it is on trial, which
                the process that follows goes on with.
        """
        files = {name: value for name, value in parameters.items() if name.startswith(_PREFIX)}
        rest = {name: value for name, value in parameters.items() if name not in files}
        if not files:
            if "config" in rest:
                raise InvalidRequestError(
                    "parameters: config is read beside files only; a model on disk is what its file says it is"
                )
            return await self._lifecycle.load(model, read_load_parameters(rest))
        self._operators.check_files()
        _check_config(repository.checked_name(model), rest.pop("config", None))
        version = _version_of(files)
        wanted = replace(read_load_parameters(rest), version=version)
        async with self._lock:  # one at a time, so that what they hold is bounded
            added = await asyncio.to_thread(self._add, model, version, files)
        try:
            return await self._lifecycle.load(model, wanted)
        except BaseException:
            if added and not self._lifecycle.answers(model, version):
                await self._remove(model, version)
            raise

    def _add(self, model: str, version: int, files: Mapping[str, Any]) -> bool:
        """Put the files into the repository; whether they were not there already."""
        contents = {_name_of(name): self._content(name, value) for name, value in files.items()}
        if MODEL_FILE not in contents:
            raise InvalidRequestError(f"parameters: file:{version}/{MODEL_FILE} is missing")
        target = self._root / model / str(version)
        newest = max(repository.versions_on_disk(self._root, model), default=0)
        if newest == version:
            if all(_same(target / name, contents.get(name)) for name in self._limits):
                return False
            raise ConflictError(
                f"version {version} of model '{model}' is there with other files, and versions do not change; "
                f"send it as file:{newest + 1}/model.onnx"
            )
        if newest > version:
            raise ConflictError(
                f"version {newest} of model '{model}' is newer; send the files as version {newest + 1} or higher"
            )
        stage = new_stage(self._root)
        try:
            for name, content in contents.items():
                _write(stage / name, content)
            target.parent.mkdir(exist_ok=True)
            stage.chmod(0o755)
            stage.rename(target)
            _sync(target.parent)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        return True

    async def _remove(self, model: str, version: int) -> None:
        """Take a version out again: out of sight at once, so that no later load finds it, then for good."""
        target = self._root / model / str(version)
        try:
            stage = new_stage(self._root)
            target.rename(stage)
        except FileNotFoundError:
            return
        with contextlib.suppress(OSError):  # other versions are in it
            target.parent.rmdir()
        with contextlib.suppress(RuntimeError):  # the server leaves, and the next one cleans up
            await self._loader.look_up(shutil.rmtree, stage, True)  # errors ignored

    def _content(self, parameter: str, value: Any) -> bytes:
        name = _name_of(parameter)
        most = self._limits.get(name)
        if most is None:
            raise InvalidRequestError(
                f"parameters: {parameter[:100]!r} is none of VERSION/{', VERSION/'.join(self._limits)}"
            )
        content = value if isinstance(value, bytes) else _from_base64(parameter, value)
        if len(content) > most:
            raise TooLargeError(f"parameters: {parameter} has {len(content)} bytes; {most} are possible")
        return content


def _version_of(files: Mapping[str, Any]) -> int:
    """The one version that all files are of."""
    found: set[str] = set()
    for name in files:
        match = _FILE.fullmatch(name)
        if match is None or not repository.is_version(match[1]):
            raise InvalidRequestError(f"parameters: {name[:100]!r} must be file:VERSION/model.onnx or the like")
        found.add(match[1])
    if len(found) > 1:
        raise InvalidRequestError(f"parameters: files are of versions {', '.join(sorted(found))}; send one at a time")
    return int(found.pop())


def _name_of(parameter: str) -> str:
    match = _FILE.fullmatch(parameter)
    return match[2] if match is not None else ""


def _check_config(model: str, config: object) -> None:
    """Raise unless the configuration is for this model and this server; what else it says, the model says itself."""
    if config is None:
        return
    try:
        content = orjson.loads(config) if isinstance(config, str) else config
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"parameters: config is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("parameters: config must be a JSON object")
    for key, wanted in (("name", model), ("platform", PLATFORM), ("backend", BACKEND)):
        if content.get(key) not in (None, "", wanted):
            raise InvalidRequestError(f"parameters: config: {key} must be {wanted!r} or left out")


def _from_base64(parameter: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequestError(f"parameters: {parameter} must be the file in base64")
    try:
        pieces = [
            base64.b64decode(value[start : start + _PIECE], validate=True) for start in range(0, len(value), _PIECE)
        ]
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(f"parameters: {parameter} is not base64: {error}") from error
    return b"".join(pieces)


def _same(path: Path, content: bytes | None) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return content is None


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

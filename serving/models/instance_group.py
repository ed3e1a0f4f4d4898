"""Where a model wants to run: the kind of the instance group in Triton's ``MODEL/config.pbtxt``, if there is one.

Nothing else of that file is read; see :mod:`tiercel.serving.models.configuration`. Blocks.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from google.protobuf import text_format

from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.errors import ArtefactRefusedError
from tiercel.serving.models import artefact_file

FILE_NAME = "config.pbtxt"
MAX_BYTES = 64 * 1024
"""Largest file that is looked at, in bytes."""

_logger = logging.getLogger(__name__)


def read_kind(model: Path) -> str | None:
    """``KIND_CPU`` or ``KIND_GPU`` if the model's configuration says so, else None.

    A file that cannot be read says nothing, as ever: many repositories carry one that is meant for other servers.

    Args:
        model: Its ONNX file, ``MODEL/VERSION/model.onnx``.
    """
    path = model.parent.parent / FILE_NAME
    if not path.exists():
        return None
    try:
        config = text_format.Parse(_content(path).decode(), pb.ModelConfig(), allow_unknown_field=True)
    except (ArtefactRefusedError, UnicodeDecodeError, text_format.ParseError, RecursionError) as error:
        _logger.warning("%s is not looked at: %s", path, error)
        return None
    kinds = {pb.ModelInstanceGroup.Kind.Name(group.kind) for group in config.instance_group}
    return kinds.pop() if len(kinds) == 1 and kinds <= {"KIND_CPU", "KIND_GPU"} else None


def _content(path: Path) -> bytes:
    descriptor, size = artefact_file.open_artefact(path, MAX_BYTES)
    try:
        return artefact_file.content_of(descriptor, size)
    finally:
        os.close(descriptor)

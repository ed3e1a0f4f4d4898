"""What is set for one model: the parts of Triton's ``MODEL/config.pbtxt`` that mean something here.

::

    max_batch_size: 16                                  # rows that run together at most
    dynamic_batching {
      max_queue_delay_microseconds: 500                 # wait so long for others to run with
      default_queue_policy { default_timeout_microseconds: 100000 }
    }
    instance_group { kind: KIND_CPU }                   # or KIND_GPU, as far as the server may use one
    parameters { key: "gpu_mem_limit" value { string_value: "1000000000" } }   # bytes of an accelerator's memory
    parameters { key: "canary_fraction" value { string_value: "0.1" } }   # and the other canary parameters of a load

All else is passed over, since what a model is, its own file says. Messages of our own describe the file, and not the
protocol's: Triton's file has more than those, and the generated messages do not go together with ``tritonclient``'s in
one process. Blocks.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError
from tiercel.serving import canary_plan as plan
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.runtime import artefact_file
from tiercel.serving.runtime.providers import Provider

FILE_NAME = "config.pbtxt"
MAX_BYTES = 64 * 1024
"""Largest file that is looked at, in bytes."""

_logger = logging.getLogger(__name__)

# Lists of messages have to be known to be passed over where no colon stands before them, as is usual in these files.
_IGNORED = {"input": 5, "output": 6, "model_warmup": 16, "batch_input": 20, "batch_output": 21}
# Triton's model_config.proto, with presence (proto2): what is not said is not 0. 5: int32, 4: uint64, 9: string,
# 11: message, 14: enum; label 1: optional, 3: repeated.
_SCHEMA = """
name: "tiercel/model_settings.proto"
message_type {
  name: "Policy" field { name: "default_timeout_microseconds" number: 2 type: 4 label: 1 }
}
message_type {
  name: "Batching"
  field { name: "max_queue_delay_microseconds" number: 2 type: 4 label: 1 }
  field { name: "default_queue_policy" number: 7 type: 11 label: 1 type_name: ".Policy" }
}
message_type { name: "Value" field { name: "string_value" number: 1 type: 9 label: 1 } }
message_type {
  name: "Parameter"
  field { name: "key" number: 1 type: 9 label: 1 }
  field { name: "value" number: 2 type: 11 label: 1 type_name: ".Value" }
}
enum_type {
  name: "Kind"
  value { name: "KIND_AUTO" number: 0 }
  value { name: "KIND_GPU" number: 1 }
  value { name: "KIND_CPU" number: 2 }
  value { name: "KIND_MODEL" number: 3 }
}
message_type { name: "InstanceGroup" field { name: "kind" number: 4 type: 14 label: 1 type_name: ".Kind" } }
message_type { name: "Ignored" }
message_type {
  name: "Config"
  field { name: "max_batch_size" number: 4 type: 5 label: 1 }
  field { name: "instance_group" number: 7 type: 11 label: 3 type_name: ".InstanceGroup" }
  field { name: "dynamic_batching" number: 11 type: 11 label: 1 type_name: ".Batching" }
  field { name: "parameters" number: 14 type: 11 label: 3 type_name: ".Parameter" }
}
"""
_pool = descriptor_pool.DescriptorPool()
_file = text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto())
for _name, _number in _IGNORED.items():
    _file.message_type[-1].field.add(name=_name, number=_number, type=11, label=3, type_name=".Ignored")
_pool.AddSerializedFile(_file.SerializeToString())
_Config: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("Config"))
_PROVIDERS = {1: Provider.CUDA, 2: Provider.CPU}
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What is set for one model; None everywhere for what the server does anyway."""

    max_batch_rows: int | None = None  # rows of several requests that may run together at most; 1 turns batching off
    # Seconds for which a request may wait for others to run with while a thread is free.
    max_queue_delay: float | None = None
    default_timeout: float | None = None  # seconds in which an answer is of use to a caller who does not say
    canary: CanaryPlan | None = None  # how a newer version is tried
    provider: Provider | None = None  # what runs it, among those that the server may use
    memory_limit: int | None = None  # bytes of an accelerator's memory that its arena may take


NOTHING_SET = ModelSettings()


def read_model_settings(model: Path) -> ModelSettings:
    """What is set for a model.

    A file that cannot be read says nothing, as ever: many repositories carry one that is meant for other servers.

    Args:
        model: Its ONNX file, ``MODEL/VERSION/model.onnx``.

    Raises:
        ArtefactRefusedError: A canary parameter, which is meant for this server, is impossible.
    """
    path = model.parent.parent / FILE_NAME
    if not path.exists():
        return NOTHING_SET
    try:
        config = text_format.Parse(_content(path).decode(), _Config(), allow_unknown_field=True)
    except (ArtefactRefusedError, UnicodeDecodeError, text_format.ParseError, RecursionError) as error:
        _logger.warning("%s is not looked at: %s", path, error)
        return NOTHING_SET
    batching = config.dynamic_batching
    timeout = batching.default_queue_policy.default_timeout_microseconds
    parameters = {each.key: each.value.string_value for each in config.parameters}
    has_delay = batching.HasField("max_queue_delay_microseconds")
    return ModelSettings(
        max_batch_rows=config.max_batch_size if config.max_batch_size > 0 else None,
        max_queue_delay=batching.max_queue_delay_microseconds / 1e6 if has_delay else None,
        default_timeout=timeout / 1e6 if timeout else None,
        canary=_canary(parameters),
        provider=_provider({group.kind for group in config.instance_group}),
        memory_limit=_bytes(parameters.get("gpu_mem_limit", "")),
    )


def _provider(kinds: set[int]) -> Provider | None:
    """The one that all instance groups ask for; None where they differ, or leave it open."""
    return _PROVIDERS.get(kinds.pop()) if len(kinds) == 1 else None


def _bytes(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _canary(parameters: dict[str, str]) -> CanaryPlan | None:
    try:
        return plan.plan_from(parameters)
    except InvalidRequestError as error:
        raise ArtefactRefusedError(f"{FILE_NAME}: {error.message}") from error


def _content(path: Path) -> bytes:
    descriptor, size = artefact_file.open_artefact(path, MAX_BYTES)
    try:
        return artefact_file.content_of(descriptor, size)
    finally:
        os.close(descriptor)

"""What became of each delivery, on disk: the reason why a delivery happens once, whatever dies in between."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.disk.files import write_atomically
from tiercel.v1 import common_pb2, nodes_pb2

_log = logging.getLogger(__name__)

STAGED: Final = "staged"
DELIVERED: Final = "delivered"
FAILED: Final = "failed"

_STAGES: Final = {
    STAGED: nodes_pb2.DELIVERY_STAGE_LOADING,
    DELIVERED: nodes_pb2.DELIVERY_STAGE_DELIVERED,
    FAILED: nodes_pb2.DELIVERY_STAGE_FAILED,
}


@dataclass(frozen=True, slots=True)
class DeliveryLogEntry:
    """A delivery from the moment on when its files are in the agent's hands."""

    delivery_id: str
    stage: str  # ``staged`` (files copied and hashed), ``delivered`` or ``failed``
    value: float = 0.0  # the metric re-measured on the exported model
    sha256: str = ""  # of the ONNX file, hexadecimal
    delivered_ns: int = 0  # when it began to answer, nanoseconds since the Unix epoch; 0 while it does not
    reason: str = ""  # plain words when it failed
    # What the model takes and gives (``ModelSignature``), base64; empty where its file does not say.
    signature: str = ""
    size_bytes: int = 0  # of the ONNX file; 0 before it is staged
    cheap_variants: tuple[str, ...] = ()  # what became of each of its cheap variants (``CheapVariant``), base64

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the delivery any more."""
        return self.stage in {DELIVERED, FAILED}

    def delivered(self, at_ns: int) -> DeliveryLogEntry:
        """The same, delivered."""
        return replace(self, stage=DELIVERED, delivered_ns=at_ns)

    def status(self) -> nodes_pb2.DeliveryStatus:
        """What the broker is told."""
        return nodes_pb2.DeliveryStatus(
            delivery_id=self.delivery_id,
            stage=_STAGES[self.stage],
            value=self.value,
            sha256=self.sha256,
            delivered_at=_timestamp(self.delivered_ns),
            reason=self.reason,
            signature=_signature(self.signature) if self.signature else None,
            size_bytes=self.size_bytes,
            cheap_variants=[common_pb2.CheapVariant.FromString(base64.b64decode(each)) for each in self.cheap_variants],
        )


class DeliveryLog:
    """The outcome of each delivery that the broker has not let go of yet. Any thread may call its methods.

    Args:
        path: The file.

    Raises:
        SetupError: The file is there but cannot be understood.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Two deliveries may end at the same time, each on a thread of its own; there is one file, and one order.
        self._lock = threading.Lock()
        self._entries: dict[str, DeliveryLogEntry] = {}
        if path.exists():
            try:
                stored = json.loads(path.read_bytes())
                self._entries = {key: _entry(entry) for key, entry in stored["deliveries"].items()}
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise SetupError(
                    f"The delivery log {path} cannot be read ({error}). Put back a copy, or remove it if a "
                    "delivery may happen twice."
                ) from error

    def entry(self, delivery_id: str) -> DeliveryLogEntry | None:
        """What is known of a delivery, or None."""
        return self._entries.get(delivery_id)

    def entries(self) -> list[DeliveryLogEntry]:
        """All that is known."""
        with self._lock:
            return list(self._entries.values())

    def enter(self, entry: DeliveryLogEntry) -> None:
        """Remember an entry, in place of an older one of the same delivery; durable on return.

        Raises:
            OSError: It is not durable, and remembered in this life alone.
        """
        with self._lock:
            self._entries[entry.delivery_id] = entry
            self._write()

    def forget(self, delivery_id: str) -> None:
        """Drop what is known of a delivery; what the disk does not take now is dropped again in the next life."""
        with self._lock:
            if self._entries.pop(delivery_id, None) is not None:
                try:
                    self._write()
                except OSError as error:
                    _log.error("the delivery log %s cannot be written: %s", self._path, error)

    def _write(self) -> None:
        deliveries = {key: asdict(entry) for key, entry in self._entries.items()}
        write_atomically(self._path, json.dumps({"deliveries": deliveries}, indent=1).encode())


def _entry(stored: Mapping[str, Any]) -> DeliveryLogEntry:
    """What a file has of a delivery; fields that an earlier release wrote as well are passed over."""
    known = {each.name for each in fields(DeliveryLogEntry)}
    entry = {name: value for name, value in stored.items() if name in known}
    int8 = [stored["int8"]] if stored.get("int8") else []  # of an agent that knew no other
    return DeliveryLogEntry(**entry | {"cheap_variants": tuple(stored.get("cheap_variants", int8))})


def _signature(text: str) -> nodes_pb2.ModelSignature:
    return nodes_pb2.ModelSignature.FromString(base64.b64decode(text))


def _timestamp(nanoseconds: int) -> Timestamp | None:
    if not nanoseconds:
        return None
    timestamp = Timestamp()
    timestamp.FromNanoseconds(nanoseconds)
    return timestamp

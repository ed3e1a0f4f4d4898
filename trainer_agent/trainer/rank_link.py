"""How the ranks of a run talk: messages between rank 0 and each of the others, by a socket that only the run knows."""

from __future__ import annotations

import enum
import hashlib
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tiercel.trainer_agent.trainer.channel import TOKEN_FILE

WAIT_VARIABLE: Final = "TIERCEL_RANK_WAIT_SECONDS"
BEGIN_SECONDS: Final = 1800.0
"""How long a rank waits until another one begins, which may have little of the CPU."""
BOUNDARY_SECONDS: Final = 86400.0
"""How long it waits for one that lives and trains. One that hangs is the broker's to notice: nothing is reported."""

END_OF_EPOCH: Final = 2**32 - 1
"""The step that stands for an epoch's end."""

_FRAME: Final = struct.Struct("!BI")
_PLACE: Final = struct.Struct("!II")
_DECISION: Final = struct.Struct("!BB")
_USE: Final = struct.Struct("!ddQQ")
_NUMBER: Final = struct.Struct("!I")
_MOST_BYTES: Final = 4 * 1024**2
_READ_BYTES: Final = 1 << 16


class Kind(enum.IntEnum):
    """What a message is: the first five come from a rank, the others from rank 0."""

    HELLO = 1
    READY = 2
    USE = 3
    TERMINATED = 4
    STATE = 5
    WELCOME = 6
    DECISION = 7


class Decision(enum.IntEnum):
    """What all ranks do at a boundary."""

    GO_ON = 0
    FINISH = 1
    STOP = 2


class Place(NamedTuple):
    """A boundary: an epoch and a step in it. Later ones are greater."""

    epoch: int
    step: int


class Word(NamedTuple):
    """What rank 0 says at a boundary."""

    at: Place  # the boundary
    decision: Decision  # from there on
    saves: bool  # whether it saves a checkpoint there, and wants to have the random state of the others in it

    def pack(self) -> bytes:
        """As a message."""
        return _PLACE.pack(*self.at) + _DECISION.pack(self.decision, self.saves)

    @classmethod
    def unpack(cls, content: bytes) -> Word:
        """The inverse of :meth:`pack`."""
        decision, saves = _DECISION.unpack_from(content, _PLACE.size)
        return cls(Place(*_PLACE.unpack_from(content)), Decision(decision), bool(saves))


class Use(NamedTuple):
    """What a rank has used so far."""

    cpu_seconds: float = 0.0  # of its process
    busy_seconds: float = 0.0  # of its accelerator; of several, the one that it kept busy longest
    spans: int = 0  # in how many spans that was measured
    memory_bytes: int = 0  # that it holds, of the accelerator on which it holds most

    def pack(self) -> bytes:
        """As a message."""
        return _USE.pack(*self)

    @classmethod
    def unpack(cls, content: bytes) -> Use:
        """The inverse of :meth:`pack`."""
        return cls(*_USE.unpack(content))


def pack_hello(number: int, secret: bytes) -> bytes:
    """Which rank connects, and what shows that it is of this run."""
    return _NUMBER.pack(number) + secret


def unpack_hello(content: bytes) -> tuple[int, bytes]:
    """The inverse of :func:`pack_hello`."""
    return _NUMBER.unpack_from(content)[0], content[_NUMBER.size :]


def pack_state(at: Place, state: bytes) -> bytes:
    """The random state of a rank at a boundary."""
    return _PLACE.pack(*at) + state


def unpack_state(content: bytes) -> tuple[Place, bytes]:
    """The inverse of :func:`pack_state`."""
    return Place(*_PLACE.unpack_from(content)), content[_PLACE.size :]


class RankLink:
    """A connection between two ranks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()

    def send(self, kind: Kind, content: bytes = b"", *, seconds: float) -> None:
        """Send a message.

        Raises:
            OSError: The other one is gone, or has not read for so long.
        """
        self._connection.settimeout(seconds)
        self._connection.sendall(_FRAME.pack(kind, len(content)) + content)

    def receive(self, seconds: float = 0.0) -> tuple[Kind, bytes] | None:
        """The next message; None if it has not come within so many seconds, of which 0 is to take what is here already.

        Raises:
            OSError: The other one is gone, or what came is no message.
        """
        deadline = time.monotonic() + seconds
        while (message := self._taken()) is None:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.0))
            try:
                data = self._connection.recv(_READ_BYTES)
            except (TimeoutError, BlockingIOError):
                return None
            if not data:
                raise ConnectionResetError("it has closed the connection")
            self._received += data
        return message

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _taken(self) -> tuple[Kind, bytes] | None:
        if len(self._received) < _FRAME.size:
            return None
        number, size = _FRAME.unpack_from(self._received)
        end = _FRAME.size + size
        if size > _MOST_BYTES:
            raise ConnectionAbortedError("it has sent something that is no message")
        if len(self._received) < end:
            return None
        content = bytes(self._received[_FRAME.size : end])
        del self._received[:end]
        try:
            return Kind(number), content
        except ValueError:
            raise ConnectionAbortedError("it has sent something that is no message") from None


def address_of(run_directory: Path) -> tuple[str, bytes]:
    """Where rank 0 of a run listens, and the secret that whoever connects has to say.

    The address is in no folder, so that nothing is left of it and a folder's path may be as long as any.
    """
    token = (run_directory / TOKEN_FILE).read_text().strip().encode()
    # The machine has one space of such names: two runs do not meet in it, should they have one token.
    place = os.fsencode(run_directory.resolve())
    name = hashlib.sha256(b"address of ranks " + token + b" " + place).hexdigest()
    return f"\0tiercel-ranks-{name[:40]}", hashlib.sha256(b"secret of ranks " + token).digest()


def wait_seconds(otherwise: float, environment: Mapping[str, str] = os.environ) -> float:
    """How long a rank waits for another one, where the environment does not say it."""
    return float(environment.get(WAIT_VARIABLE, otherwise))

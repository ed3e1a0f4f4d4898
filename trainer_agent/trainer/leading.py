"""Rank 0's side: it tells the other ranks at each boundary what all of them do there, and hears what they use."""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import time
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.errors import RanksError
from tiercel.trainer_agent.trainer.accelerator_clock import ClockReading
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.rank_link import (
    BEGIN_SECONDS,
    BOUNDARY_SECONDS,
    Decision,
    Kind,
    Place,
    RankLink,
    Use,
    Word,
    address_of,
    unpack_hello,
    unpack_state,
    wait_seconds,
)
from tiercel.trainer_agent.trainer.reporting import say
from tiercel.v1 import trainer_pb2

STATE_SECONDS: Final = 5.0
"""How long a checkpoint waits for the random states of the other ranks. One that does not come is not in it."""
_HELLO_SECONDS: Final = 5.0
_SAY_SO_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.5
_MOST_MESSAGES: Final = 100  # at a boundary; a rank says two, and one that says more does not keep rank 0 from training


class Follower:
    """Another rank, as rank 0 knows it; the clock of its accelerator at the same time."""

    def __init__(self, link: RankLink) -> None:
        self.link = link
        self.use = Use()
        self.is_ready = self.is_gone = self.was_terminated = False
        self.state: tuple[Place, bytes] | None = None

    def begin(self) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_clock.AcceleratorClock`; its process does it."""

    def end(self) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_clock.AcceleratorClock`; its process does it."""

    def read(self) -> ClockReading:
        """See :class:`~tiercel.trainer_agent.trainer.accelerator_clock.AcceleratorClock`; as it said last."""
        return ClockReading(self.use.busy_seconds, self.use.spans)

    def hear(self, seconds: float = 0.0) -> bool:
        """Take in a message; whether there was one."""
        try:
            message = None if self.is_gone else self.link.receive(seconds)
            if message is None:
                return False
            self._note(*message)
        except (OSError, struct.error):
            self.is_gone = True  # it has ended, and well or not is for whoever started it to know
            return False
        return True

    def tell(self, kind: Kind, content: bytes, seconds: float) -> None:
        """Send a message, if it is there still."""
        with contextlib.suppress(OSError):  # it is heard next that it is gone
            if not self.is_gone:
                self.link.send(kind, content, seconds=seconds)

    def _note(self, kind: Kind, content: bytes) -> None:
        match kind:
            case Kind.READY:
                self.is_ready = True
            case Kind.USE:
                self.use = Use.unpack(content)
            case Kind.TERMINATED:
                self.was_terminated = True
            case Kind.STATE:
                self.state = unpack_state(content)


class Leader:
    """Leads the other ranks of a run."""

    def __init__(self, run_directory: Path, rank: Rank) -> None:
        self._rank = rank
        self._patience = wait_seconds(BEGIN_SECONDS)
        self._longest_silence = wait_seconds(BOUNDARY_SECONDS)
        self._followers: dict[int, Follower] = {}
        address, self._secret = address_of(run_directory)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(address)
            self._listener.listen(rank.count)
        except OSError as error:
            self._listener.close()
            raise RanksError(f"rank 0 of this run is there already: {error}") from error

    @property
    def followers(self) -> list[Follower]:
        """The other ranks, in their order."""
        return [self._followers[number] for number in sorted(self._followers)]

    @property
    def was_terminated(self) -> bool:
        """Whether one of them was sent a signal to end."""
        return any(follower.was_terminated for follower in self.followers)

    def gather(self, welcome: trainer_pb2.TrainerWelcome) -> None:
        """Wait until all of them are here, and tell them what the agent said.

        Raises:
            RanksError: They do not come.
        """
        started, has_said_so = time.monotonic(), False
        with self._listener:
            while missing := [number for number in range(1, self._rank.count) if number not in self._followers]:
                waited = time.monotonic() - started
                if waited > self._patience:
                    raise RanksError(
                        f"rank {missing[0]} of this run has not called tiercel.trainer.connect() within "
                        f"{waited:.0f} s, which every rank has to do"
                    )
                if waited > _SAY_SO_SECONDS and not has_said_so:
                    has_said_so = True
                    say(f"waiting until rank {missing[0]} calls tiercel.trainer.connect() as well")
                self._accept()
        for follower in self.followers:
            follower.tell(Kind.WELCOME, welcome.SerializeToString(), self._patience)

    def wait_ready(self) -> None:
        """Wait until all of them have restored the checkpoint: from then on it may be replaced.

        Raises:
            RanksError: One is gone, or does not get there.
        """
        deadline = time.monotonic() + self._patience
        for number, follower in sorted(self._followers.items()):
            while not follower.is_ready:
                follower.hear(max(deadline - time.monotonic(), 0.0))
                if follower.is_gone or (time.monotonic() >= deadline and not follower.is_ready):
                    raise RanksError(f"rank {number} of this run did not begin; see what it said last")

    def listen(self) -> None:
        """Take in what they have said."""
        for follower in self.followers:
            for _ in range(_MOST_MESSAGES):
                if not follower.hear():
                    break

    def agree(self, at: Place, decision: Decision, *, saves: bool) -> dict[int, bytes]:
        """Tell them what all do from a boundary on.

        Returns:
            Where a checkpoint is saved, the random states of those who are there in time, by their numbers.
        """
        word = Word(at, decision, saves).pack()
        for follower in self.followers:
            follower.tell(Kind.DECISION, word, self._longest_silence)
        if not saves:
            return {}
        deadline, states = time.monotonic() + STATE_SECONDS, {}
        for number, follower in self._followers.items():
            while (follower.state is None or follower.state[0] != at) and follower.hear(
                max(deadline - time.monotonic(), 0.0)
            ):
                pass
            if follower.state is not None and follower.state[0] == at:
                states[number] = follower.state[1]
        return states

    def close(self) -> None:
        """Let go of them. Doing it twice is harmless."""
        self._listener.close()
        for follower in self.followers:
            follower.link.close()

    def _accept(self) -> None:
        self._listener.settimeout(_POLL_SECONDS)
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return
        link = RankLink(connection)
        try:
            message = link.receive(_HELLO_SECONDS)
            number, secret = unpack_hello(message[1]) if message is not None and message[0] is Kind.HELLO else (0, b"")
        except (OSError, struct.error):
            number, secret = 0, b""
        if not (0 < number < self._rank.count and hmac.compare_digest(secret, self._secret)):
            link.close()
            return
        self._followers[number] = Follower(link)

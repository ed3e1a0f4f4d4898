"""A rank that is not the first: it trains like rank 0, does at boundaries what that one says, and reports nothing."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.errors import RanksError
from tiercel.trainer_agent.trainer.accelerators import Accelerators
from tiercel.trainer_agent.trainer.job import Item, Job
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.rank_link import (
    BEGIN_SECONDS,
    BOUNDARY_SECONDS,
    END_OF_EPOCH,
    Decision,
    Kind,
    Place,
    RankLink,
    Use,
    Word,
    address_of,
    pack_hello,
    pack_state,
    wait_seconds,
)
from tiercel.trainer_agent.trainer.reporting import say
from tiercel.trainer_agent.trainer.restoring import RunKeeper
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import trainer_pb2

USE_SECONDS: Final = 0.05
"""What was used is said no more often than this."""
_DIAL_SECONDS: Final = 0.05


class LeaderLink:
    """The connection of a rank to rank 0."""

    def __init__(self, run_directory: Path, rank: Rank) -> None:
        self._patience = wait_seconds(BEGIN_SECONDS)
        self._link = self._dial(*address_of(run_directory), rank)
        self._word = Word(Place(0, 0), Decision.GO_ON, saves=False)
        self._to_save: Place | None = None

    @property
    def decision(self) -> Decision:
        """What rank 0 said last that counts for this rank by now."""
        return self._word.decision

    def welcome(self) -> trainer_pb2.TrainerWelcome:
        """Wait for what the agent has told rank 0.

        Raises:
            RanksError: It does not come.
        """
        kind, content = self._receive("did not begin")
        if kind is not Kind.WELCOME:
            raise RanksError("rank 0 of this run says something else than a welcome; is it of another version?")
        self._patience = wait_seconds(BOUNDARY_SECONDS)
        return trainer_pb2.TrainerWelcome.FromString(content)

    def ready(self) -> None:
        """Say that the checkpoint is restored.

        Raises:
            RanksError: Rank 0 is gone.
        """
        self._send(Kind.READY)

    def tell(self, use: Use, *, terminated: bool) -> None:
        """Say what was used, and perhaps that somebody asked this process to end; what finds nobody is lost."""
        with contextlib.suppress(RanksError):
            self._send(Kind.USE, use.pack())
            if terminated:
                self._send(Kind.TERMINATED)

    def agree(self, at: Place) -> Decision:
        """Wait until rank 0 has come as far, and do as it does.

        Raises:
            RanksError: It is gone, or does not get there.
        """
        while self._word.decision is Decision.GO_ON and self._word.at < at:
            kind, content = self._receive("did not get as far as this rank")
            if kind is Kind.DECISION:
                self._word = Word.unpack(content)
                self._to_save = self._word.at if self._word.saves else self._to_save
        if self._to_save is not None and self._to_save <= at:
            self._send(Kind.STATE, pack_state(self._to_save, packed_random_state()))
            self._to_save = None
        return self._word.decision

    def close(self) -> None:
        """Let go of it. Doing it twice is harmless."""
        self._link.close()

    def _dial(self, address: str, secret: bytes, rank: Rank) -> RankLink:
        deadline = time.monotonic() + self._patience
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(address)
                link = RankLink(connection)
                link.send(Kind.HELLO, pack_hello(rank.number, secret), seconds=self._patience)
            except OSError as error:  # it has not called connect() yet
                connection.close()
                if time.monotonic() >= deadline:
                    raise RanksError(f"rank 0 of this run is not there: {error}") from error
                time.sleep(_DIAL_SECONDS)
            else:
                return link

    def _receive(self, otherwise: str) -> tuple[Kind, bytes]:
        try:
            message = self._link.receive(self._patience)
        except OSError as error:
            raise RanksError(
                f"rank 0 of this run is gone ({error}), so this rank ends; see what it said last"
            ) from error
        if message is None:
            raise RanksError(f"rank 0 of this run {otherwise} within {self._patience:g} s")
        return message

    def _send(self, kind: Kind, content: bytes = b"") -> None:
        try:
            self._link.send(kind, content, seconds=self._patience)
        except OSError as error:
            raise RanksError(
                f"rank 0 of this run is gone ({error}), so this rank ends; see what it said last"
            ) from error


class FollowerJob(Job):
    """The job as the other ranks have it."""

    def __init__(
        self,
        trained: Trained,
        *,
        leader: LeaderLink,
        welcome: trainer_pb2.TrainerWelcome,
        keeper: RunKeeper,
        accelerators: Accelerators,
        resources: contextlib.ExitStack,
    ) -> None:
        super().__init__(trained)
        self._leader, self._keeper, self._accelerators, self._resources = leader, keeper, accelerators, resources
        self._run_id, self._max_epochs = welcome.run_id, welcome.max_epochs
        self._finished_epochs = self._epoch = self._step = 0
        self._interrupted = self._closed = self._was_terminated = False
        self._told_at = time.monotonic()

    @property
    def is_attached(self) -> bool:
        """Always."""
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether all ranks end."""
        return self._leader.decision is not Decision.GO_ON

    def restore(self) -> None:
        """Go on from the newest checkpoint, if there is one, as rank 0 does.

        Raises:
            CheckpointError: If it does not fit the script.
            RanksError: Rank 0 is gone.
        """
        run = self._keeper.restore(self._run_id)
        if run is not None:
            self._finished_epochs = self._epoch = run.finished_epochs
        self._leader.ready()

    def terminate(self) -> None:
        """Tell rank 0 at the next boundary that somebody asked this process to end. Safe in a signal handler."""
        self._was_terminated = True

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left, as many as rank 0 has."""
        limit = min(count, self._max_epochs) if self._max_epochs else count
        while self._finished_epochs < limit and self._goes_on(self._finished_epochs + 1, 0):
            self._epoch, self._step = self._finished_epochs + 1, 0
            self._interrupted = False
            with self._accelerators.counting():
                yield self._epoch
            self._goes_on(self._epoch, END_OF_EPOCH)
            if not self._interrupted:
                self._finished_epochs = self._epoch

    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The batches; ends early where rank 0 ends."""
        with self._accelerators.not_counting():
            for batch in batches:
                self._step += 1
                if not self._goes_on(self._epoch, self._step):
                    self._interrupted = True
                    return
                with self._accelerators.counting():
                    yield batch

    def report(self, **metrics: float) -> None:
        """Nothing: what counts is what rank 0 reports."""

    def close(self) -> None:
        """Say what was used, and let go of rank 0."""
        if not self._closed:
            self._closed = True
            self._leader.tell(self._use(), terminated=False)
            self._resources.close()

    def close_at_exit(self) -> None:
        """The same when the interpreter ends: says so if that was about a limit."""
        if message := self._accelerators.explain(getattr(sys, "last_value", None)):
            say(message, sys.stderr)
        self.close()

    def _goes_on(self, epoch: int, step: int) -> bool:
        now = time.monotonic()
        if self._was_terminated or now - self._told_at >= USE_SECONDS:
            self._told_at = now
            self._leader.tell(self._use(), terminated=self._was_terminated)
            self._was_terminated = False
        return self._leader.agree(Place(epoch, step)) is Decision.GO_ON

    def _use(self) -> Use:
        used = self._accelerators.reading()
        return Use(time.process_time(), used.busy_seconds, used.spans, self._accelerators.held_bytes())


def packed_random_state() -> bytes:
    """The state of this process's random generators, as a checkpoint keeps it for another rank."""
    import torch

    from tiercel.trainer_agent.trainer.pytorch.models import random_state

    file = io.BytesIO()
    torch.save(random_state(), file)
    return file.getvalue()

"""What each model's requests took, and what it may take: one account a model, kept through all its versions.

Everything here is used on the event loop only. CPU is that of running models, not of reading and writing requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from tiercel.core.errors import CapacityExceededError, InvalidRequestError
from tiercel.serving.accounting.delays import Delays
from tiercel.serving.accounting.room import Room
from tiercel.serving.accounting.waiting import WaitingCalls
from tiercel.serving.runtime.profile import DrainRate

# How much of its cap a model may save up while nobody asks it: as long as a period of the kernel's own caps.
_SAVED_SECONDS = 0.1
# A call may wait if it is expected to be answered within this fraction of the time that it has: what is let in should
# be answered, and who would wait in vain should hear of it at once.
_OF_TIME_ALLOWED = 0.5
# Weight of the latest call in the mean of what calls cost.
_COST_WEIGHT = 0.2
# CPU of runs on the event loop is measured once in so many: to read that clock costs as much as a small model.
_SAMPLED = 8


@dataclass(frozen=True, slots=True)
class ModelShare:
    """What a model may use, and how fast it is wanted."""

    cpu_weight: float = 1.0  # its claim on the inference threads where several models wait for them, in (0, 1]
    cpu_cap_cores: float | None = None  # CPU seconds per second that running it may take, or None for no limit
    # Seconds that an answer may take; only measured against, and limits nothing. None for any.
    objective_seconds: float | None = None


UNLIMITED = ModelShare()


@dataclass(slots=True, eq=False)
class Account:
    """One model's."""

    name: str = ""  # the model
    requests: int = 0  # requests that made sense and arrived, answered or not
    delays: Delays = field(default_factory=Delays)  # how long answers took, and what was not answered
    cpu_seconds: float = 0.0  # CPU that running the model took
    # Seconds that an accelerator was kept for running it, copies to and from it included.
    accelerator_seconds: float = 0.0
    share: ModelShare = UNLIMITED  # what it may use
    waiting: WaitingCalls[Any] = field(default_factory=WaitingCalls)  # calls of the model that wait for their turn
    endpoint: Sized = ()  # calls that wait of the endpoint with variants that has this name
    running: int = 0  # rows that run on workers
    drain: DrainRate = field(default_factory=DrainRate)  # how fast they get it
    # Virtual time at which its next call's turn is; see :class:`~tiercel.serving.dispatch.fair_queue.FairQueue`.
    tag: float = 0.0
    cost: float = 0.0  # CPU seconds that a row is expected to take
    cpu_part: float = 1.0  # CPU seconds per second of a run on the event loop, as last measured
    room: Room | None = None  # of its own, while it has a cap; else its calls take room that all models share
    # Of an endpoint with variants: how many requests each of them answered.
    answered_by: Counter[str] = field(default_factory=Counter)
    _tokens: float = 0.0
    _refilled_at: float = 0.0
    _unsampled: int = 0

    def declare(self, share: ModelShare, now: float) -> None:
        """It may use this much from ``now`` on; said again it changes nothing."""
        if self.share.cpu_cap_cores is None and share.cpu_cap_cores is not None:
            self._tokens, self._refilled_at = share.cpu_cap_cores * _SAVED_SECONDS, now
        self.refill(now)
        self.share = share
        self.delays.judge_by(share.objective_seconds)

    def may_run(self, now: float) -> bool:
        """Whether it has CPU time left at ``now``, seconds of any steady clock."""
        if self.share.cpu_cap_cores is None:
            return True
        self.refill(now)
        return self._tokens > 0

    def seconds_until_it_may(self) -> float:
        """How long after the last look it may run again."""
        cap = self.share.cpu_cap_cores
        return 0.0 if cap is None or self._tokens > 0 else -self._tokens / cap + 1e-4

    def refill(self, now: float) -> None:
        """Earn the CPU time of the time since the last look."""
        cap = self.share.cpu_cap_cores
        if cap is not None:
            self._tokens = min(self._tokens + (now - self._refilled_at) * cap, cap * _SAVED_SECONDS)
            self._refilled_at = now

    def charge(self, cpu_seconds: float, rows: int = 1) -> None:
        """A run of so many rows took this much CPU."""
        self.cpu_seconds += cpu_seconds
        self._tokens -= cpu_seconds
        each = cpu_seconds / rows if rows else cpu_seconds
        self.cost += _COST_WEIGHT * (each - self.cost) if self.cost else each

    def check_wait(self, allowed: float, rows: int = 1) -> None:
        """Refuse a call that would stand behind too many others to be answered in time.

        Args:
            allowed: Seconds in which its answer is of use.
            rows: Its rows.

        Raises:
            CapacityExceededError: What waits and runs takes too long, by how fast it has been going.
        """
        if self.waiting:
            wait = self.drain.wait(self.waiting.rows + self.running + rows)
            if wait > _OF_TIME_ALLOWED * allowed:
                raise CapacityExceededError(
                    f"{len(self.waiting)} requests are waiting already, which takes about {wait:.2g} seconds; "
                    "try again in a moment or allow more time"
                )

    def would_wait_in_vain(self, allowed: float) -> bool:
        """Whether :meth:`check_wait` would refuse a call of one row; no message is made for it."""
        wait = self.drain.wait(self.waiting.rows + self.running + 1)
        return bool(self.waiting) and wait > _OF_TIME_ALLOWED * allowed

    def is_sampled(self) -> bool:
        """Whether the CPU of the next run on the event loop is to be measured; others are charged by their duration."""
        self._unsampled -= 1
        if self._unsampled > 0:
            return False
        self._unsampled = _SAMPLED
        return True

    def changed_since(self, at: float) -> bool:
        """Whether anything was counted at ``at`` or later, or a request is being answered."""
        delays = self.delays
        return delays.touched >= at or self.requests > delays.answers + delays.failures

    def as_json(self, now: float) -> dict[str, Any]:
        """For whoever watches the server."""
        delays = self.delays
        return {
            "name": self.name,
            "requests": self.requests,
            "answers": delays.answers,
            "failures": delays.failures,
            "on_time": delays.on_time,
            "delay_seconds": delays.seconds,
            "cpu_seconds": self.cpu_seconds,
            "accelerator_seconds": self.accelerator_seconds,
            "waiting": len(self.waiting) + len(self.endpoint),
            "cpu_weight": self.share.cpu_weight,
            "cpu_cap_cores": self.share.cpu_cap_cores,
            "objective_seconds": self.share.objective_seconds,
            "windows": [window.as_json() for window in delays.windows(now)],
            "answered_by": dict(self.answered_by),
        }


_FIELDS = {"cpu_weight", "cpu_cap_cores", "objective_seconds"}


def read_shares(content: Mapping[str, Any]) -> dict[str, ModelShare]:
    """Shares by model from ``{"models": {NAME: {"cpu_weight": 0.5, "cpu_cap_cores": 1.5, "objective_seconds": 0.1}}}``.

    Each of the three may be left out.

    Raises:
        InvalidRequestError: It is something else.
    """
    models = content.get("models")
    if not isinstance(models, dict) or set(content) != {"models"}:
        raise InvalidRequestError(
            'the body must be {"models": {NAME: {"cpu_weight": ..., "cpu_cap_cores": ..., "objective_seconds": ...}}}'
        )
    return {name: _read_share(name[:100], entry) for name, entry in models.items()}


def _read_share(name: str, entry: object) -> ModelShare:
    if not isinstance(entry, dict) or not set(entry) <= _FIELDS:
        raise InvalidRequestError(
            f"models.{name}: it must be an object with cpu_weight, cpu_cap_cores and objective_seconds"
        )
    weight, cap, objective = entry.get("cpu_weight", 1.0), entry.get("cpu_cap_cores"), entry.get("objective_seconds")
    if type(weight) not in {int, float} or not 0 < weight <= 1:
        raise InvalidRequestError(f"models.{name}.cpu_weight must be above 0 and at most 1")
    if cap is not None and (type(cap) not in {int, float} or not 0 < cap < 1e9):
        raise InvalidRequestError(
            f"models.{name}.cpu_cap_cores must be a number of cores above 0, or null for no limit"
        )
    if objective is not None and (type(objective) not in {int, float} or not 0 < objective < 1e9):
        raise InvalidRequestError(
            f"models.{name}.objective_seconds must be a number of seconds above 0, or null for none"
        )
    return ModelShare(float(weight), _number(cap), _number(objective))


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)

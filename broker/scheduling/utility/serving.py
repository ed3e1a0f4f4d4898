"""What is held of endpoints under the utility policy: how much CPU their answers take, and whether that is their all.

Measured are requests, their CPU time and their delay. Two kinds of clients have to be told apart, since they want the
opposite:

* Requests that come by themselves ("open") take what they take. With less than that their queue grows without end, and
  a little more does not make it short at once, so that a limit near it does harm out of all proportion.
* Clients that ask again as soon as they are answered ("closed", the batches of DQoES) use whatever there is; the delay
  is proportional to one over it.

Nobody says which they are. Whoever leaves CPU unused that it could have, or gets more requests than it answers,
is open: three measurements in a row settle that for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import EndpointView, JobView, NodeView

# Endpoints that use this part of their node, or of what they were given, would use more.
SATURATED = 0.9
# Who uses less than this part leaves something.
_LEAVES = 0.8
# More requests than are answered, by this factor: by more than what is measured does by chance.
_GROWS = 1.1
_OPEN_AFTER = 3
# Use in the mean follows what is measured with this time constant, seconds.
_MEMORY_SECONDS = 15.0
# What requests want at most is forgotten with this one.
_PEAK_SECONDS = 120.0
# A node answers well for endpoints that want this part of it at most.
_ANSWERS_WELL = 0.4
# What is given changes by no more than this factor, or one over it, at a measurement.
_SLOWEST_STEP = 0.5
# As long as answers come in time, smaller changes than this part are left alone.
_NOT_WORTH_IT = 0.1
# An endpoint answers in time when this part of its requests was answered within the objective.
IN_TIME = 0.95
# Fraction of a node that its jobs keep beside endpoints that compete or answer late.
TRAINING_FLOOR = 0.1
# Fraction of a node that an endpoint with a share keeps in any case.
IDLE_SHARE = 0.02
# Endpoints that compete get so many times what they use: 0.7 of it is to be used at most, and a tenth is to spare.
_HEADROOM = 1.1 / 0.7


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What is held of an endpoint between passes."""

    at: float = -math.inf  # when it was measured last, seconds since the Unix epoch
    request_seconds: float = 0.0  # CPU seconds that a request takes
    mean: float = 0.0  # cores that its answers use in the mean
    peak: float = 0.0  # cores that its requests wanted lately at most
    delay: float | None = None  # the delay measured last, seconds, or None
    open_streak: int = 0  # measurements in a row that say that its requests come by themselves
    is_open: bool = False  # whether they do, as far as one can tell
    saturated: bool = False  # whether it used up what it was given
    target: float = 0.0  # cores that it is held to need where it competes; 0 while nothing was measured
    cores: float = 0.0  # what it was limited to last, 0 while it is not limited
    served: bool = False  # whether it was served in full while others were not

    def load(self, view: EndpointView) -> float:
        """Cores that its requests want, answered or not."""
        return view.requests_per_second * self.request_seconds if self.is_open else view.cpu_cores_used


def observe(
    endpoints: Iterable[EndpointView],
    nodes: Mapping[str, NodeView],
    records: Mapping[str, EndpointRecord],
    now: float,
) -> dict[str, EndpointRecord]:
    """What is held of all endpoints after what was measured.

    Args:
        endpoints: All of them, by name.
        nodes: By id.
        records: What was held of them before.
        now: Seconds since the Unix epoch.
    """
    views = [view for view in endpoints if view.node_id in nodes and nodes[view.node_id].cpu_cores > 0]
    used: dict[str, float] = {}
    for view in views:
        used[view.node_id] = used.get(view.node_id, 0.0) + max(view.cpu_cores_used, 0.0)
    return {
        view.name: _updated(view, records.get(view.name), nodes[view.node_id], used[view.node_id], now)
        for view in views
    }


def cores_left(
    nodes: Sequence[NodeView], endpoints: Iterable[EndpointView], records: Mapping[str, EndpointRecord]
) -> dict[str, float]:
    """Cores that answers leave to jobs in the mean, at least a twentieth of the node; by node, of those that answer."""
    used: dict[str, float] = {}
    for view in endpoints:
        if (record := records.get(view.name)) is not None:
            used[view.node_id] = used.get(view.node_id, 0.0) + record.mean
    return {
        node.id: max(node.cpu_cores - used[node.id], 0.05 * node.cpu_cores)
        for node in nodes
        if used.get(node.id, 0.0) > 0
    }


@dataclass(slots=True)
class Answering:
    """Which endpoints a node answers for, or will once its jobs deliver; local to one pass.

    A model is answered for by the node that trained it: a job takes its endpoint along.
    """

    peaks: Mapping[str, float]  # cores that the requests of each endpoint want at most
    names: dict[str, set[str]]  # by node, the endpoints that it answers for

    @classmethod
    def now(cls, endpoints: Iterable[EndpointView], records: Mapping[str, EndpointRecord]) -> Answering:
        """Before jobs are looked at."""
        names: dict[str, set[str]] = {}
        peaks: dict[str, float] = {}
        for view in endpoints:
            if view.name in records:
                names.setdefault(view.node_id, set()).add(view.name)
                peaks[view.name] = records[view.name].peak
        return cls(peaks, names)

    def expect(self, job: JobView, node_id: str) -> None:
        """A job is placed on a node."""
        if job.endpoint in self.peaks:
            self.names.setdefault(node_id, set()).add(job.endpoint)

    def too_much(self, job: JobView, node: NodeView) -> float:
        """Cores by which requests would want more than a node can answer well if it trained a job."""
        if job.endpoint not in self.peaks:
            return 0.0
        names = self.names.get(node.id, set()) | {job.endpoint}
        wanted = math.fsum(self.peaks[name] for name in names)
        # What an endpoint wants on its own is too much for any node alike.
        bearable = max(_ANSWERS_WELL * node.cpu_cores, self.peaks[job.endpoint])
        # Rounded: what is measured differs by chance.
        return round(max(wanted - bearable, 0.0), 1)


def in_time(view: EndpointView) -> bool:
    """Whether answers come in time, as far as was measured: nearly all of them, or in the mean where nobody counts."""
    if view.in_objective is not None:
        return view.in_objective >= IN_TIME
    return view.delay_seconds is None or not view.objective_seconds or view.delay_seconds <= view.objective_seconds


def _updated(
    view: EndpointView,
    record: EndpointRecord | None,
    node: NodeView,
    node_used: float,
    now: float,
) -> EndpointRecord:
    rate, used, delay = view.requests_per_second, max(view.cpu_cores_used, 0.0), view.delay_seconds
    if record is None:
        record = EndpointRecord(mean=used)
    part = 1.0 - math.exp(min(record.at - now, 0.0) / _MEMORY_SECONDS)
    mean = min(record.mean + part * (used - record.mean), node.cpu_cores)
    forgotten = math.exp(min(record.at - now, 0.0) / _PEAK_SECONDS)
    if rate <= 0 or used <= 0 or delay is None or delay == record.delay:
        return replace(record, at=now, mean=mean, peak=max(used, record.peak * forgotten))
    on_time = in_time(view)
    seconds = used / rate
    if record.request_seconds > 0:
        # What waits was not answered: then the time of those that were does not tell what each takes.
        half_way = (record.request_seconds + seconds) / 2
        seconds = half_way if on_time else max(record.request_seconds, seconds)
    given = record.cores if view.share is not None else 0.0
    leaves = used < _LEAVES * given if given else node_used < _LEAVES * node.cpu_cores
    streak = record.open_streak + 1 if (leaves and on_time) or rate * seconds > _GROWS * used else 0
    saturated = delay > 1.5 * seconds and used >= SATURATED * min(given or used, node.cpu_cores)
    target = _target(view, record, given, node, saturated=saturated)
    return replace(
        record,
        at=now,
        request_seconds=seconds,
        mean=mean,
        peak=max(used, rate * seconds if record.is_open else 0.0, record.peak * forgotten),
        delay=delay,
        open_streak=min(streak, _OPEN_AFTER),
        is_open=record.is_open or streak >= _OPEN_AFTER,
        saturated=saturated,
        target=target,
    )


def _target(
    view: EndpointView,
    record: EndpointRecord,
    given: float,
    node: NodeView,
    *,
    saturated: bool,
) -> float:
    """Cores that it should have where it competes with others."""
    used, delay, objective = view.cpu_cores_used, view.delay_seconds, view.objective_seconds
    if delay is None or not objective:
        return record.target
    if saturated:
        step = min(max(math.sqrt(delay / objective), _SLOWEST_STEP), 1 / _SLOWEST_STEP)
        target = max(used, given if given <= used / SATURATED else used) * step
    else:
        target = _HEADROOM * used
    if abs(target - record.target) <= _NOT_WORTH_IT * record.target and in_time(view):
        target = record.target
    return min(max(target, IDLE_SHARE * node.cpu_cores), node.cpu_cores)

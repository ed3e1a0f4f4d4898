"""Endpoints under load: what their answers cost, how long they take, and how good they are.

Open endpoints get requests at a rate, whatever the delay: a processor-sharing queue (M/G/1-PS), in which the mean time
to an answer is ``service / (1 - utilisation)`` whatever the distribution of work (Kleinrock, Queueing Systems II, 4.4).
Closed endpoints have clients that ask again as soon as they are answered, as the inference jobs of DQoES do (Mao et
al., 2020): all the CPU they get is used, and the delay is ``clients * work / cores``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tiercel.broker.scheduling.interface import EndpointView
from tiercel.broker.simulation.randomness import Random, log_normal, stream
from tiercel.broker.simulation.requests import RequestRate
from tiercel.core.shares import Share

# Shorter than this, nothing new is measured: what was measured before is shown again.
_LEAST_WINDOW_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTraffic:
    """An endpoint and what applications do with it."""

    name: str  # the endpoint; jobs that feed it name it
    work_cpu_seconds: float  # CPU seconds that one answer takes, > 0
    rate: RequestRate | None = None  # requests that arrive, for an open endpoint; None for a closed one
    # Clients of a closed endpoint, each of which waits for its answer and asks again; 0 for an open one.
    clients: int = 0
    objective_seconds: float | None = None  # the delay its tenant wants, or None
    node_id: str = ""  # the node that answers until a job delivers from another one; empty while it has no version
    quality: float | None = None  # accuracy of the version it begins with, or None
    threads: float = 1.0  # cores its answers can use at the same time
    opens_at: float = 0.0  # seconds from the start when the first request comes
    give_up_seconds: float = 60.0  # a request that would wait longer than this is not answered
    tenant: str = "tenant"  # its owner
    tenant_weight: float = 1.0  # its tenant's weight among tenants, > 0

    def __post_init__(self) -> None:
        """Refuse what is neither open nor closed."""
        if (self.rate is None) == (self.clients < 1) or self.work_cpu_seconds <= 0 or self.threads <= 0:
            msg = f"endpoint {self.name}: give it either a rate or clients, and answers that take CPU time"
            raise ValueError(msg)


def open_delay(work_cpu_seconds: float, requests_per_second: float, cores: float) -> float:
    """Mean seconds to an answer of a processor-sharing queue; infinite when it cannot keep up.

    Args:
        work_cpu_seconds: CPU seconds of one answer; one answer uses at most one core.
        requests_per_second: Arrivals.
        cores: What the endpoint may use.
    """
    utilisation = requests_per_second * work_cpu_seconds / cores if cores > 0 else math.inf
    if utilisation >= 1:
        return math.inf
    return work_cpu_seconds / min(1.0, cores) / (1 - utilisation)


def part_within(objective_seconds: float, service_seconds: float, delay_seconds: float) -> float:
    """Which part of the requests is answered within the objective.

    An approximation: the service time, plus a wait that is exponentially distributed. Without load, all or nothing.
    """
    if objective_seconds < service_seconds or math.isinf(delay_seconds):
        return 0.0
    wait = delay_seconds - service_seconds
    return 1.0 if wait <= 0 else 1.0 - math.exp(-(objective_seconds - service_seconds) / wait)


@dataclass(slots=True)
class Tally:
    """What was counted of an endpoint since some moment."""

    seconds: float = 0.0
    arrived: float = 0.0
    answered: float = 0.0
    delay_sum: float = 0.0
    cpu_seconds: float = 0.0
    in_objective: float = 0.0
    quality_sum: float = 0.0

    def add(self, other: Tally) -> None:
        """Count what the other one has counted."""
        self.seconds += other.seconds
        self.arrived += other.arrived
        self.answered += other.answered
        self.delay_sum += other.delay_sum
        self.cpu_seconds += other.cpu_seconds
        self.in_objective += other.in_objective
        self.quality_sum += other.quality_sum


@dataclass(slots=True)
class SimulatedEndpoint:
    """An endpoint while the simulation runs; everything is constant between two calls of :meth:`advance`."""

    load: EndpointTraffic  # what is asked of it
    seed: int  # of the simulation
    node_id: str = ""  # who answers; empty while it has no version
    quality: float | None = None  # accuracy of its live version, or None
    share: Share | None = None  # what the policy lets it use, or None
    rate: float = 0.0  # requests per second that arrive now
    backlog: float = 0.0  # CPU seconds of answers that wait
    cores: float = 0.0  # what it could use now if requests came without end
    held_to_cores: float = math.inf  # what its node holds it to where its share has a weight and no cap
    synced_at: float = 0.0  # when all of that was true
    total: Tally = field(default_factory=Tally)  # what was counted since the start
    _window: Tally = field(default_factory=Tally)
    _view: EndpointView | None = None
    _noise: Random = field(default_factory=lambda: stream(0))

    @classmethod
    def begin(cls, load: EndpointTraffic, seed: int) -> SimulatedEndpoint:
        """The endpoint at the start."""
        noise = stream(seed, "measurement", load.name)
        return cls(load, seed, node_id=load.node_id, quality=load.quality, _noise=noise)

    def is_open(self, now: float) -> bool:
        """Whether somebody asks it and a node answers."""
        return bool(self.node_id) and now >= self.load.opens_at

    def refresh_rate(self, now: float) -> None:
        """Look up how many requests arrive from now on."""
        rate = self.load.rate
        self.rate = rate.per_second(now, self.seed) if rate is not None and now >= self.load.opens_at else 0.0

    @property
    def ceiling(self) -> float:
        """Cores it may use at most."""
        if self.share is None:
            return self.load.threads
        cap = self.share.cpu_cap_cores
        return min(self.load.threads, self.held_to_cores if cap is None else cap)

    @property
    def wanted_cores(self) -> float:
        """Cores it would use now."""
        if self.load.clients or self.backlog > 0:
            return self.ceiling
        return min(self.rate * self.load.work_cpu_seconds, self.ceiling)

    @property
    def used_cores(self) -> float:
        """Cores it does use, of those it may."""
        return min(self.wanted_cores, self.cores)

    @property
    def delay_seconds(self) -> float:
        """Mean seconds to an answer at present; as long as clients wait at most, when it cannot keep up."""
        load = self.load
        if self.cores <= 0:
            return load.give_up_seconds
        if load.clients:
            return load.clients * load.work_cpu_seconds / min(self.cores, float(load.clients))
        if self.backlog > 0:
            return min(self._service_seconds + self.backlog / self.cores, load.give_up_seconds)
        return min(open_delay(load.work_cpu_seconds, self.rate, self.cores), load.give_up_seconds)

    @property
    def _service_seconds(self) -> float:
        return self.load.work_cpu_seconds / min(1.0, self.cores) if self.cores > 0 else math.inf

    def advance(self, now: float) -> None:
        """Let time pass at the present rate and CPU."""
        seconds = now - self.synced_at
        self.synced_at = now
        if seconds <= 0 or not self.node_id:
            return
        counted = self._count(seconds)
        self.total.add(counted)
        self._window.add(counted)

    def _count(self, seconds: float) -> Tally:
        load, used = self.load, self.used_cores
        delay = self.delay_seconds
        if load.clients:
            answered = arrived = seconds * used / load.work_cpu_seconds
            within = 1.0 if load.objective_seconds is None or delay <= load.objective_seconds else 0.0
        else:
            arrived = self.rate * seconds
            answered = self._answer(arrived, used * seconds)
            objective = load.objective_seconds
            within = 1.0 if objective is None else part_within(objective, self._service_seconds, delay)
        good = answered * within
        quality = good * self.quality if self.quality is not None else 0.0
        return Tally(seconds, arrived, answered, answered * delay, used * seconds, good, quality)

    def _answer(self, arrived: float, cpu_seconds: float) -> float:
        """Requests answered by so much CPU time; what is not answered waits, but not for longer than clients do."""
        work = arrived * self.load.work_cpu_seconds + self.backlog
        done = min(work, cpu_seconds)
        self.backlog = min(work - done, self.load.give_up_seconds * self.cores)
        if self.backlog < 1e-9 * self.load.work_cpu_seconds:
            self.backlog = 0.0
        return done / self.load.work_cpu_seconds

    def view(self, noise: float) -> EndpointView:
        """What was measured since the last view.

        Args:
            noise: Standard deviation of the logarithm of what is measured.
        """
        window = self._window
        if self._view is None or window.seconds >= _LEAST_WINDOW_SECONDS:
            self._view = self._measured(window, noise)
            self._window = Tally()
        last = self._view
        if last.share is not self.share or last.node_id != self.node_id or last.quality != self.quality:
            self._view = replace(last, node_id=self.node_id, quality=self.quality, share=self.share)
        return self._view

    def _measured(self, window: Tally, noise: float) -> EndpointView:
        seconds = window.seconds or 1.0
        delay = window.delay_sum / window.answered if window.answered > 0 else None
        judged = self.load.objective_seconds is not None and window.answered > 0
        return EndpointView(
            name=self.load.name,
            tenant=self.load.tenant,
            node_id=self.node_id,
            tenant_weight=self.load.tenant_weight,
            objective_seconds=self.load.objective_seconds,
            requests_per_second=window.arrived / seconds,
            delay_seconds=None if delay is None else delay * log_normal(self._noise, noise),
            cpu_cores_used=window.cpu_seconds / seconds * log_normal(self._noise, noise),
            quality=self.quality,
            share=self.share,
            in_objective=window.in_objective / window.answered if judged else None,
        )

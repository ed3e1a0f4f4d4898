"""How fast a job goes with so many cores and so much of its accelerators, as its own reports tell.

A unit of progress (an epoch) takes CPU seconds and seconds of each accelerator; both are measured, and what a job takes
of them hardly changes while it runs. How they go together is one of two forms:

* overlapped: data is prepared while the accelerator works; the scarcer of the two says how fast it goes,
  ``speed = min(cores / cpu, fraction / accelerator)``;
* one after the other: ``speed = 1 / (cpu / cores + accelerator / fraction)``.

A job's fastest step, which was disturbed least, says which: it is taken to do one after the other when that form
foretells the step to a tenth and the other one does not. In doubt it is taken to overlap: most training loops do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tiercel.broker.scheduling.interface import JobView
from tiercel.core.jobs import Observation

# Reports looked at, and steps between them that a measurement needs.
_REPORTS = 32
_LEAST_STEPS = 3
_FITS = 0.1
# What a job may use beyond what it was measured to, so that it is never held to what it happened to get.
_HEADROOM = 1.2
# Seconds; what lies outside of these is nothing that anybody could measure.
_LEAST, _MOST = 1e-6, 1e12
_LEAST_USE = 1e-3


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job uses when nothing holds it up, and what follows for less than that."""

    cores: float  # CPU seconds per second
    fraction: float  # seconds of each of its accelerators per second, in (0, 1]; 0 where it uses none
    # What it may be given of the CPU to go that fast: more than it uses in the mean, since use varies.
    most_cores: float
    most_fraction: float  # the same of each accelerator
    overlaps: bool = True  # whether it uses both at the same time

    @property
    def accelerator_per_cpu(self) -> float:
        """Seconds of each accelerator that go with a CPU second."""
        return self.fraction / self.cores

    def cores_with(self, fraction: float) -> float:
        """CPU seconds per second that it uses when it gets so much of its accelerators and all the CPU it wants."""
        if not self.fraction:
            return self.cores
        if self.overlaps:
            return min(self.cores, fraction / self.accelerator_per_cpu)
        on_cpu = 1.0 / self.cores - self.accelerator_per_cpu
        return min(self.cores, 1.0 / (max(on_cpu, 0.0) + self.accelerator_per_cpu / fraction))


def needs_of(job: JobView) -> Needs:
    """What a job needs of the CPU and of its accelerators: what it asks for where it uses none.

    Measured from its reports, and before there are enough of them from what it has used altogether.
    """
    cores = max(job.resources.cpu_cores, _LEAST_USE)
    if not job.resources.accelerators:
        return Needs(cores, 0.0, cores, 0.0)
    steps = list(_steps(job.observations[-_REPORTS:]))
    units = math.fsum(step.units for step in steps)
    if len(steps) >= _LEAST_STEPS:
        cpu = math.fsum(step.cpu for step in steps) / units
        accelerator = math.fsum(step.accelerator for step in steps) / units
        fastest = min(step.seconds / step.units for step in steps)
    else:
        cpu, accelerator, fastest = job.cpu_seconds, job.accelerator_seconds, 0.0
    if not (_LEAST < cpu < _MOST and _LEAST * cpu < accelerator < _MOST):
        return Needs(cores, 1.0, cores, 1.0)  # nothing is known of how it uses its accelerators
    together, in_turn = max(cpu / cores, accelerator), cpu / cores + accelerator
    overlaps = abs(fastest / in_turn - 1) > _FITS or fastest < (1 + _FITS) * together
    speed = 1.0 / (together if overlaps else in_turn)
    used, fraction = max(cpu * speed, _LEAST_USE), min(max(accelerator * speed, _LEAST_USE), 1.0)
    if not overlaps:
        return Needs(used, fraction, cores, 1.0, overlaps=False)
    most = max(min(_HEADROOM * used, cores), used)
    return Needs(used, fraction, most, min(_HEADROOM * fraction, 1.0))


@dataclass(frozen=True, slots=True)
class _Step:
    """What was used from one report to the next; units are epochs."""

    units: float
    cpu: float
    accelerator: float
    seconds: float


def _steps(observations: Sequence[Observation]) -> Iterator[_Step]:
    """Steps that make sense: a job that began anew or was migrated between two reports is not measured by these."""
    for before, after in pairwise(observations):
        step = _Step(
            float(after.epoch - before.epoch),
            after.cpu_seconds - before.cpu_seconds,
            after.accelerator_seconds - before.accelerator_seconds,
            after.at - before.at,
        )
        makes_sense = step.cpu >= 0 and step.accelerator >= 0 and step.units > 0 and step.seconds > 0
        if makes_sense and step.cpu + step.accelerator + step.seconds < _MOST:
            yield step

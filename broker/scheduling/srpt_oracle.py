"""Shortest remaining work to the next tier first, known and not predicted: a bound, not a scheduler.

Clairvoyant: the simulator shows it :class:`OracleSnapshot`, and for replays of recorded runs on real nodes it is given
the works as an option. What it gains over ``fifo`` is all that any prediction could.
Shortest remaining processing time minimises the mean time to a tier where jobs can use any number of cores; with jobs
of one thread it is a good reference and no strict bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import JobView, Snapshot
from tiercel.broker.scheduling.queue import QueuePolicy, QueueSettings
from tiercel.broker.scheduling.rank import Position
from tiercel.broker.scheduling.tiers import reached_tiers


@dataclass(frozen=True, slots=True)
class OracleSnapshot(Snapshot):
    """A snapshot with what nobody can know but a simulator; no policy but an oracle may read it."""

    # By job, CPU seconds from the start at which each tier will be reached.
    true_work: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SrptOracleSettings(QueueSettings):
    """What all queues have in common (see :class:`.QueueSettings`), and what is known of recorded runs."""

    # For jobs of which the snapshot does not say it: CPU seconds from the start to each tier by the job's name, as
    # text: ``small:3.5/9;large:20/61.5``.
    works: str = ""

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        QueueSettings.__post_init__(self)
        for name, works in self.works_by_name.items():
            if not name or any(not (math.isfinite(work) and work >= 0) for work in works):
                msg = "works must read like 'small:3.5/9;large:20/61.5', in CPU seconds"
                raise ValueError(msg)

    @property
    def works_by_name(self) -> dict[str, tuple[float, ...]]:
        """CPU seconds from the start to each tier."""
        entries = (entry.rpartition(":") for entry in self.works.split(";") if entry.strip())
        return {name.strip(): tuple(map(float, works.split("/"))) for name, _, works in entries}


class SrptOraclePolicy(QueuePolicy[SrptOracleSettings]):
    """Runs a few at a time, those that are nearest to their next tier first."""

    name = "srpt-oracle"
    settings_type = SrptOracleSettings

    def __init__(self, settings: SrptOracleSettings | None = None) -> None:
        super().__init__(settings)
        self._works = self.settings.works_by_name

    def position(self, job: JobView, snapshot: Snapshot) -> Position:
        """By what it truly still needs."""
        known = snapshot.true_work if isinstance(snapshot, OracleSnapshot) else {}
        works = known.get(job.id) or self._works.get(job.name, ())
        reached = reached_tiers(job)
        if reached >= len(works) or not math.isfinite(works[reached]):
            return _UNKNOWN
        remaining = max(works[reached] - job.cpu_seconds, 0.0)
        return Position(remaining, f"known to need {remaining:.3g} CPU seconds more")


# Jobs of which nothing is known come last at their stage, in the order of submission.
_UNKNOWN = Position(math.inf, "what it still needs is not known")

"""Recordings of runs alone: what an oracle knows, what history tells, and what the simulator replays."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.scheduling.kinds import KINDS, Kind
from benchmarks.scheduling.schedules import TRAINING_SEEDS, Schedule
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.run_records import RunRecord, workload_of

FOLDER = Path(__file__).parents[1] / "recordings" / "alone"
"""Where the committed recordings are."""


class RecordingError(ValueError):
    """A recording is missing or cannot be understood; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A run of a kind with nothing beside it that it had to share a core with."""

    kind: str  # what was trained
    training_seed: int  # with which seed
    startup_cpu_seconds: float  # CPU seconds before the first step of training
    cpu_seconds: float  # CPU seconds in total, exports included
    seconds: float  # from its start to its end
    targets: tuple[float, ...]  # of its tiers
    curve: tuple[tuple[float, float], ...]  # CPU seconds since the start and the metric, for each report

    def works(self) -> tuple[float, ...]:
        """CPU seconds from the start at which each tier is reached; infinity for one that is not."""
        direction = KINDS[self.kind].direction
        return tuple(
            next((cpu for cpu, value in self.curve if direction.reaches(value, target)), float("inf"))
            for target in self.targets
        )

    def write(self, folder: Path) -> Path:
        """Write as JSON into a folder, in one step."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.kind}-{self.training_seed}.json"
        curve = ",\n    ".join(json.dumps(pair) for pair in self.curve)
        head = {name: getattr(self, name) for name in self.__slots__ if name != "curve"}
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        text = "{\n" + ",\n".join([*lines, f'  "curve": [\n    {curve}\n  ]']) + "\n}\n"
        temporary = path.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote.

        Raises:
            RecordingError: The file is none.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            curve = tuple((float(cpu), float(value)) for cpu, value in fields["curve"])
            return cls(**{**fields, "targets": tuple(fields["targets"]), "curve": curve})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordingError(f"{path.name} is not a recording ({error!r}); record it again") from error


@dataclass(frozen=True, slots=True)
class Recordings:
    """Recordings by kind and training seed."""

    runs: Mapping[tuple[str, int], Recording]

    @classmethod
    def read(cls, folder: Path = FOLDER) -> Self:
        """All recordings of a folder that are of the kinds as they are now.

        Raises:
            RecordingError: A file there is none.
        """
        runs = [Recording.read(path) for path in sorted(folder.glob("*.json"))]
        fitting = (run for run in runs if run.kind in KINDS and run.targets == KINDS[run.kind].targets)
        return cls({(run.kind, run.training_seed): run for run in fitting})

    def get(self, kind: str, training_seed: int) -> Recording:
        """The recording of a kind with a seed.

        Raises:
            RecordingError: There is none.
        """
        run = self.runs.get((kind, training_seed))
        if run is None:
            message = f"there is no recording of {kind} with seed {training_seed}; make it with"
            raise RecordingError(f"{message} 'python -m benchmarks.scheduling record'")
        return run

    def works(self, kind: str, training_seed: int) -> tuple[float, ...]:
        """CPU seconds from the start at which each tier is reached.

        Raises:
            RecordingError: There is no such recording.
        """
        return self.get(kind, training_seed).works()

    def earlier(self, kind: str, training_seed: int) -> list[Recording]:
        """Runs of a kind with other seeds: what may be remembered when one with this seed is to come.

        Raises:
            RecordingError: There are none.
        """
        seeds = [seed for seed in range(TRAINING_SEEDS) if seed != training_seed]
        return [self.get(kind, seed) for seed in seeds]


async def remember(recordings: Recordings, schedule: Schedule, tenant: str, database: Path) -> None:
    """Make a broker's database that remembers earlier runs of a schedule's kinds, but none with the same seed.

    Raises:
        RecordingError: A recording is missing.
    """
    records = [
        _record_of(KINDS[kind], run, tenant)
        for kind, seed in sorted({(job.kind, job.training_seed) for job in schedule.jobs})
        for run in recordings.earlier(kind, seed)
    ]
    async with Store(sqlite_url(database)) as store:
        await store.save(run_records=records)


def remembered(run: Recording) -> tuple[tuple[float, float], ...]:
    """What a broker remembers of a run: the reports that were better than all before."""
    better = KINDS[run.kind].direction.better
    curve: list[tuple[float, float]] = []
    for cpu, value in run.curve:
        best = value if not curve else better(curve[-1][1], value)
        if not curve or best != curve[-1][1]:
            curve.append((cpu, best))
    return tuple(curve)


def _record_of(kind: Kind, run: Recording, tenant: str) -> RunRecord:
    workload = workload_of(tenant, kind.spec(kind.name, run.training_seed, "process"))
    return RunRecord(f"earlier-{kind.name}-{run.training_seed}", workload, time.time(), remembered(run))

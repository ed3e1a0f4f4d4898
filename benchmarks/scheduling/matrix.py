"""Which runs there are, in which order, and the running of them: blocks of a schedule, all arms in each.

A block is a schedule with a repetition. All arms run in it, in an order of its own that is drawn at random, so that a
machine that gets slower or faster over time favours none of them. Each run is kept in a file at once: what was
interrupted goes on where it stopped, also at another commit as long as policies and training are the same; a block that
was begun on another machine or at another commit begins anew, since its runs are compared with one another.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import tiercel
from benchmarks.scheduling.arms import CORE, QUICK, TWO_NODES, WIDE, Arm
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.outcome import Origin, RunOutcome
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import SCHEDULES, Schedule, make_schedule

ARMS_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "at-once": WIDE,
        "random": CORE,
        "ten": WIDE,
        "mixed": (*WIDE, "dqoes"),
        "two-nodes": TWO_NODES,
        "fixed": (*CORE, "flowcon"),
        "fifteen": CORE,
        "small": QUICK,
    }
)
"""Names of the arms that run in blocks of a schedule when nothing else was asked for."""

QUICK_SCHEDULES = ("small",)

START_STOP_SECONDS = 6.0
"""What a run takes beyond its schedule: the product's start and its end."""

BUSY_FACTOR = 1.15
"""How much longer the jobs take together than their CPU seconds alone, spread evenly over all cores."""

DEADLINE_FACTOR, LEAST_DEADLINE_SECONDS = 4.0, 240.0
"""A run is given up after so many times the expected seconds."""

_GUESSED_CPU_SECONDS = 10.0


COMPARED = ("broker/scheduling", "trainer_agent/workloads")
"""Folders of the product's code that a run is about: what decides, and what is trained."""


@dataclass(frozen=True, slots=True)
class Run:
    """An arm in a block."""

    schedule: Schedule  # the block's
    arm: Arm  # under which it runs
    setting: str = ""  # of all runs together: the runtime and the fingerprint of what is compared

    @property
    def key(self) -> str:
        """Fingerprint of everything that decides what is run."""
        kinds = {job.kind: asdict(KINDS[job.kind]) for job in self.schedule.jobs}
        schedule, arm = asdict(self.schedule), _what_decides(self.arm)
        asked = {"schedule": schedule, "arm": arm, "kinds": kinds, "setting": self.setting}
        return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def path(self, folder: Path) -> Path:
        """Where its outcome is kept."""
        return folder / f"{self.schedule.block}.{self.arm.name}.json"

    def load(self, folder: Path) -> RunOutcome | None:
        """Its outcome, if it was run before as it would be now, and came to its end."""
        try:
            outcome = RunOutcome.read(self.path(folder))
        except (OSError, ValueError):
            return None
        return outcome if outcome.key == self.key and outcome.complete else None


def _what_decides(arm: Arm) -> dict[str, object]:
    fields = {name: getattr(arm, name) for name in arm.__slots__ if name not in {"about", "options"}}
    return fields | {"options": dict(arm.options)}


Block = tuple[Run, ...]
"""Runs of the same schedule, each under another arm."""


def source_fingerprint(package: Path = Path(tiercel.__path__[0])) -> str:
    """Tells one version of what is compared from another, whatever its comments and docstrings say."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in COMPARED for path in (package / folder).glob("**/*.py")):
        digest.update(_without_docstrings(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def _without_docstrings(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def make_block(schedule: Schedule, arms: Iterable[Arm], seed: int, setting: str = "") -> Block:
    """The runs of a block, in the order in which they run."""
    runs = [Run(schedule, arm, setting) for arm in sorted(arms, key=lambda arm: arm.name)]
    random.Random(f"{seed}/{schedule.block}").shuffle(runs)
    return tuple(runs)


def make_blocks(
    names: Sequence[str], repetitions: int, arms: Callable[[str], Iterable[Arm]], seed: int, setting: str = ""
) -> list[Block]:
    """Blocks of all schedules, repetition by repetition."""
    drawn = (make_schedule(name, repetition, seed) for repetition in range(repetitions) for name in names)
    blocks = (make_block(schedule, arms(schedule.name), seed, setting) for schedule in drawn)
    return [block for block in blocks if block]


def outcomes_in(folder: Path) -> list[RunOutcome]:
    """The outcomes in a folder.

    Raises:
        ValueError: A file there is none.
    """
    return [RunOutcome.read(path) for path in sorted(folder.glob("*.json"))]


def forget_all_but(setting: str | None, folder: Path) -> None:
    """Remove outcomes of every setting but one, as they compare with none of its runs; of all where that is None.

    Raises:
        ValueError: A file there is none.
    """
    for path in folder.glob("*.json"):
        if RunOutcome.read(path).setting != setting:
            path.unlink()


def schedules_of(*, quick: bool) -> tuple[str, ...]:
    """Names of the schedules that run when nothing else was asked for."""
    return QUICK_SCHEDULES if quick else tuple(name for name in SCHEDULES if name not in QUICK_SCHEDULES)


def expected_seconds(schedule: Schedule, recordings: Recordings, cores: int) -> float:
    """About how long a run of a schedule takes, the product's start and end included."""
    works = [
        recording.cpu_seconds if (recording := recordings.runs.get((job.kind, job.training_seed))) else None
        for job in schedule.jobs
    ]
    total = sum(_GUESSED_CPU_SECONDS if work is None else work for work in works)
    last = max(job.at_seconds for job in schedule.jobs)
    return max(total * BUSY_FACTOR / cores, last + _GUESSED_CPU_SECONDS) + START_STOP_SECONDS


def deadline_seconds(schedule: Schedule, recordings: Recordings, cores: int) -> float:
    """When a run of a schedule is given up."""
    return max(LEAST_DEADLINE_SECONDS, DEADLINE_FACTOR * expected_seconds(schedule, recordings, cores))


@dataclass(slots=True)
class Budget:
    """Time that the blocks may take."""

    seconds: float | None  # in total, or None for as long as it takes
    clock: Callable[[], float] = time.monotonic  # seconds that never jump
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def allows(self, seconds: float) -> bool:
        """Whether there is as much time left."""
        return self.seconds is None or self.clock() - self._began + seconds <= self.seconds


@dataclass(frozen=True, slots=True)
class Step:
    """How far a matrix has come."""

    block: str  # name of the block
    run: Run | None = None  # what was just finished, or None for a block that is left out for want of time
    outcome: RunOutcome | None = None  # what it left
    again: bool = False  # whether it was kept from an earlier time


async def run_blocks(
    blocks: Sequence[Block],
    folder: Path,
    origin: Origin,
    carry_out: Callable[[Run], Awaitable[RunOutcome]],
    expect: Callable[[Run], float],
    budget: Budget,
    tell: Callable[[Step], None],
) -> list[RunOutcome]:
    """Run blocks, as many as there is time for; a block that was begun is finished.

    Args:
        blocks: In the order in which they run.
        folder: Where outcomes are kept.
        origin: What makes them now.
        carry_out: Does a run.
        expect: About how many seconds a run takes.
        budget: How long all may take.
        tell: Called after each run.

    Returns:
        The outcomes of all runs that were finished, earlier ones included.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for block in blocks:
        kept = {run.arm.name: run.load(folder) for run in block}
        if not all(kept.values()):
            kept = {arm: earlier if earlier and earlier.origin == origin else None for arm, earlier in kept.items()}
        left = sum(expect(run) for run in block if kept[run.arm.name] is None)
        name = block[0].schedule.block
        if left and not budget.allows(left):
            tell(Step(name))
            continue
        for run in block:
            earlier = kept[run.arm.name]
            if earlier is None:
                outcome = replace(await carry_out(run), key=run.key, setting=run.setting, origin=origin)
                outcome.write(run.path(folder))
            else:
                outcome = earlier
            outcomes.append(outcome)
            tell(Step(name, run, outcome, again=earlier is not None))
    return outcomes

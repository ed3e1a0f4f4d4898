"""Simulations of the comparison, kept one by one: what is interrupted goes on where it was.

Each is a line of JSON in ``build/principle.jsonl`` under a key that holds the code it ran: a change of the policies,
the simulator or the work makes it anew, a change of ``utility`` only what ``utility`` decided.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.principle.work import kinds
from benchmarks.results import ROOT, Json
from benchmarks.simulated_policies import Arm, Figures, measure
from benchmarks.simulated_workloads import Kind

KEPT_RUNS = ROOT / "build" / "principle.jsonl"
_CODE = ("broker/scheduling", "broker/simulation", "benchmarks/principle/work.py", "benchmarks/principle/real.py")
_NOT_RUN = ("__main__.py", "command_line.py")
_OURS = ROOT / "broker" / "scheduling" / "utility"


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulation."""

    kind: str  # name of the kind of work
    draw: int  # chooses its programs
    arm: Arm  # who decides
    seed: int  # chooses arrivals and noise

    @property
    def key(self) -> str:
        """Equal for what would come out equal."""
        arm = self.arm
        options = ",".join(f"{name}={value}" for name, value in sorted(arm.options.items()))
        constants = ",".join(f"{name}={value}" for name, value in sorted(arm.constants.items()))
        told = f"{arm.policy}:{options}:{constants}:{arm.history}:{arm.slices}:{code_of(arm.policy)}"
        return f"{self.kind}:{self.draw}:{self.seed}:{told}"


@functools.cache
def code_of(policy: str) -> str:
    """A digest of the code that a simulation under a policy rests on."""
    digest = hashlib.sha256()
    for start in _CODE:
        top = ROOT / start
        for path in sorted(top.rglob("*.py")) if top.is_dir() else [top]:
            if path.name not in _NOT_RUN and (policy == "utility" or not path.is_relative_to(_OURS)):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _kind(name: str, draw: int) -> Kind:
    return next(each for each in kinds(draw) if each.name == name)


def _run(trial: Trial) -> Figures:
    return measure((_kind(trial.kind, trial.draw), trial.arm, trial.seed))


class Runs:
    """Simulations that were done, by :attr:`Trial.key`."""

    def __init__(self, path: Path = KEPT_RUNS) -> None:
        self._path = path
        self._done: dict[str, Figures] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                entry = json.loads(line)
                self._done[entry["key"]] = _figures(entry["figures"])
            except (ValueError, TypeError, KeyError):
                continue  # cut off in the middle: it is done again

    def of(self, trial: Trial) -> Figures:
        """What came out; it must have been done."""
        return self._done[trial.key]

    def do(self, trials: Iterable[Trial], processes: int) -> Iterator[Trial]:
        """Do those that are missing, and tell each once it is kept."""
        missing = [trial for trial in trials if trial.key not in self._done]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            kept = stack.enter_context(self._path.open("a", encoding="utf-8"))
            # One alone is this one: a fork of whoever calls would cost more, and hang where that has threads.
            pool = stack.enter_context(multiprocessing.Pool(processes)) if processes > 1 else None
            found = map(_run, missing) if pool is None else pool.imap(_run, missing)
            for trial, figures in zip(missing, found, strict=True):
                kept.write(json.dumps({"key": trial.key, "figures": asdict(figures)}) + "\n")
                kept.flush()
                self._done[trial.key] = figures
                yield trial


def _figures(fields: Json) -> Figures:
    return Figures(**{**fields, "completions": tuple(fields["completions"]), "firsts": tuple(fields["firsts"])})

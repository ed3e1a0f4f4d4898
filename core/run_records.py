"""What is remembered of runs that are over, so that the next run of the same program can be foretold."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.starts import Start

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

RUNS_KEPT_PER_WORKLOAD = 8
"""Of each workload the latest runs are kept."""

WORKLOADS_KEPT = 512
"""So many workloads are remembered; those that ran last."""

_SEED_OPTION = re.compile(r"--?(random[-_])?(seed|state)(=.*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How a job's metric grew with the work put into it."""

    job_id: str  # the job; there is one record of it
    workload: str  # see :func:`workload_of`
    recorded_at: float  # when the record was made, seconds since the Unix epoch
    # Pairs of CPU seconds since the job's start, start-up included, and the best metric reported by then; both in the
    # order of the reports, thinned. The last pair is the last report.
    curve: tuple[tuple[float, float], ...]
    starts: tuple[Start, ...] = ()  # what its latest runs took to get to work, the oldest first
    similar: tuple[str, ...] = ()  # see :func:`similar_to`; empty in records of before there was such a thing


def workload_of(tenant: str, spec: JobSpec) -> str:
    """A fingerprint that is equal for jobs which train the same thing.

    That is: the same program of the same tenant with the same arguments and data sets, reporting the same metric. The
    program of a project is all that lies in its folder.
    Options that only seed a random number generator (``--seed 3``, ``--random-state=3``) do not count, since runs that
    differ in their seed alone need about the same work. Runs of other tenants are kept apart: nobody shall be misled by
    them.
    """
    program = hashlib.sha256(spec.script.content).hexdigest() if spec.script is not None else spec.module
    parts: list[object] = [
        tenant,
        "script" if spec.script is not None else "module",
        program,
        spec.image,
        _arguments_that_matter(spec.arguments),
        spec.metric,
        spec.direction.value,
    ]
    if spec.command:
        parts.append(["command", *_arguments_that_matter(spec.command)])
    if spec.data:
        parts.append(_data_of(spec))
    if spec.project is not None:
        parts.append(["project", spec.project.sha256])
    return _fingerprint(parts)


def similar_to(tenant: str, spec: JobSpec) -> tuple[str, ...]:
    """Fingerprints that a job shares with those whose programs are like its own, the likest first.

    People edit a script between two runs, and try it with other arguments: what it needed before still tells roughly
    what it will need. All are of the same tenant and metric.

    Returns:
        Of the program by its name with the same arguments and data sets, whatever its text is; of the program by its
        name alone; of the endpoint. ``python train.py`` names no project: of one that was edited the endpoint says
        which it is, and of one that is tried with other arguments its content.
    """
    name, arguments = _entry_point(spec)
    metric = (tenant, spec.metric, spec.direction.value)
    edited: tuple[object, ...] = ("edited", name, _arguments_that_matter(arguments), _data_of(spec))
    other_arguments: tuple[object, ...] = ("other arguments", name)
    if spec.project is not None:
        edited, other_arguments = (*edited, spec.endpoint), (*other_arguments, spec.project.sha256)
    found = (edited, other_arguments, ("endpoint", spec.endpoint))
    return tuple(_fingerprint([*metric, *each]) for each in found)


def _entry_point(spec: JobSpec) -> tuple[list[str], tuple[str, ...]]:
    """The name of a program, and its arguments; of a command the words before its first option are the name."""
    if spec.script is not None:
        return ["script", spec.script.name], spec.arguments
    if not spec.command:
        return ["module", spec.module], spec.arguments
    end = next((index for index, word in enumerate(spec.command) if index and word.startswith("-")), len(spec.command))
    return ["command", *spec.command[:end]], (*spec.command[end:], *spec.arguments)


def _data_of(spec: JobSpec) -> list[str]:
    return sorted(each.url.partition("?")[0] or each.name for each in spec.data)


def _fingerprint(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _arguments_that_matter(arguments: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    skips_value = False
    for argument in arguments:
        match = _SEED_OPTION.fullmatch(argument)
        if match is None and not skips_value:
            kept.append(argument)
        skips_value = match is not None and match[3] is None
    return kept

"""What if: what is asked to be different, and what would then happen beside what happens as things are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.jsonable import Jsonable

MAX_CHANGES = 32
"""Changes of one kind in one question."""


@dataclass(frozen=True, slots=True)
class AddedNode(Jsonable):
    """A node that there is not."""

    like: str = ""  # the node that it is like; empty for the largest one there is
    cpu_cores: float = 0.0  # its cores; 0 for as many as the node that it is like has


@dataclass(frozen=True, slots=True)
class Changes(Jsonable):
    """What is asked to be different."""

    policy: str = ""  # the policy that decides; empty for the one that does now
    policy_options: Mapping[str, str] = field(default_factory=dict)  # options of that policy
    add_nodes: tuple[AddedNode, ...] = ()  # nodes more
    remove_nodes: tuple[str, ...] = ()  # nodes that are gone, by id
    cancel: tuple[str, ...] = ()  # jobs that are cancelled, by id
    priorities: Mapping[str, int] = field(default_factory=dict)  # other priorities, by job id
    add_like: tuple[str, ...] = ()  # jobs of which there is one more, from its beginning, by id
    # How many times the requests there are, by endpoint, > 0.
    requests: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span(Jsonable):
    """A predicted time, seconds from now."""

    seconds: float  # its median
    low: float  # one chance in ten that it is less
    high: float  # one chance in ten that it is more


@dataclass(frozen=True, slots=True)
class TierPrediction(Jsonable):
    """When a tier will be reached."""

    tier: int  # its number, from 1
    target: float  # its target
    present: Span | None = None  # as things are; None for unknown, or never
    changed: Span | None = None  # with the changes; likewise
    # What the simulated futures gave for ``present``, before it was corrected by how far off earlier predictions were.
    drawn: Span | None = None


@dataclass(frozen=True, slots=True)
class Whereabouts(Jsonable):
    """Where a job runs."""

    node_id: str = ""  # the node; empty for none


@dataclass(frozen=True, slots=True)
class JobPrediction(Jsonable):
    """What is predicted of a job."""

    id: str  # its id; empty for another tenant's
    name: str  # what its tenant calls it, or "another tenant's"
    present: Whereabouts  # where it runs as things are
    changed: Whereabouts  # where it runs with the changes
    tiers: tuple[TierPrediction, ...] = ()  # its tiers that are not reached yet
    note: str = ""  # why nothing is known of it, in plain words; else empty


@dataclass(frozen=True, slots=True)
class InTime(Jsonable):
    """How an endpoint answers."""

    # Part of its requests that are answered within the objective; None where there is no objective or nobody asks.
    in_objective: float | None = None
    mean_seconds: float | None = None  # mean time to an answer; None where nobody asks


@dataclass(frozen=True, slots=True)
class EndpointPrediction(Jsonable):
    """What is predicted of an endpoint for the next minute."""

    name: str  # the endpoint; "another tenant's" for one of somebody else
    present: InTime  # as things are
    changed: InTime  # with the changes


@dataclass(frozen=True, slots=True)
class WhatIf(Jsonable):
    """The answer."""

    snapshot: str  # stands for the jobs, where they are, the nodes and the policy that were looked at
    policy: str  # the policy that decides now
    difference: tuple[str, ...] = ()  # who moves, gains, loses, waits and answers late, a sentence each
    jobs: tuple[JobPrediction, ...] = ()  # what is predicted of jobs
    endpoints: tuple[EndpointPrediction, ...] = ()  # what is predicted of endpoints
    assumptions: tuple[str, ...] = ()  # what the predictions rest on, a sentence each
    left_out: int = 0  # jobs that were left out so that the answer comes in time
    draws: int = 0  # how many futures were simulated
    seconds: float = 0.0  # how long that took

"""What if: what is asked to be different, and what would then happen beside what happens as things are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.views import Jsonable

MAX_CHANGES = 32
"""Changes of one kind in one question."""


@dataclass(frozen=True, slots=True)
class AddedNode(Jsonable):
    """A node that there is not.

    Attributes:
        like: The node that it is like; empty for the largest one there is.
        cpu_cores: Its cores; 0 for as many as the node that it is like has.
    """

    like: str = ""
    cpu_cores: float = 0.0


@dataclass(frozen=True, slots=True)
class Changes(Jsonable):
    """What is asked to be different.

    Attributes:
        policy: The policy that decides; empty for the one that does now.
        policy_options: Options of that policy.
        add_nodes: Nodes more.
        remove_nodes: Nodes that are gone, by id.
        cancel: Jobs that are cancelled, by id.
        priorities: Other priorities, by job id.
        add_like: Jobs of which there is one more, from its beginning, by id.
        requests: How many times the requests there are, by endpoint, > 0.
    """

    policy: str = ""
    policy_options: Mapping[str, str] = field(default_factory=dict)
    add_nodes: tuple[AddedNode, ...] = ()
    remove_nodes: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    add_like: tuple[str, ...] = ()
    requests: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span(Jsonable):
    """A predicted time, seconds from now.

    Attributes:
        seconds: Its median.
        low: One chance in ten that it is less.
        high: One chance in ten that it is more.
    """

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TierPrediction(Jsonable):
    """When a tier will be reached.

    Attributes:
        tier: Its number, from 1.
        target: Its target.
        present: As things are; None for unknown, or never.
        changed: With the changes; likewise.
    """

    tier: int
    target: float
    present: Span | None = None
    changed: Span | None = None


@dataclass(frozen=True, slots=True)
class Whereabouts(Jsonable):
    """Where a job runs.

    Attributes:
        node_id: The node; empty for none.
    """

    node_id: str = ""


@dataclass(frozen=True, slots=True)
class JobPrediction(Jsonable):
    """What is predicted of a job.

    Attributes:
        id: Its id; empty for another tenant's.
        name: What its tenant calls it, or "another tenant's".
        present: Where it runs as things are.
        changed: Where it runs with the changes.
        tiers: Its tiers that are not reached yet.
        note: Why nothing is known of it, in plain words; else empty.
    """

    id: str
    name: str
    present: Whereabouts
    changed: Whereabouts
    tiers: tuple[TierPrediction, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class InTime(Jsonable):
    """How an endpoint answers.

    Attributes:
        in_objective: Part of its requests that are answered within the objective; None where there is no objective or
            nobody asks.
        mean_seconds: Mean time to an answer; None where nobody asks.
    """

    in_objective: float | None = None
    mean_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EndpointPrediction(Jsonable):
    """What is predicted of an endpoint for the next minute.

    Attributes:
        name: The endpoint; "another tenant's" for one of somebody else.
        present: As things are.
        changed: With the changes.
    """

    name: str
    present: InTime
    changed: InTime


@dataclass(frozen=True, slots=True)
class WhatIf(Jsonable):
    """The answer.

    Attributes:
        snapshot: Stands for the jobs, where they are, the nodes and the policy that were looked at.
        policy: The policy that decides now.
        difference: Who moves, gains, loses and waits, a sentence each.
        jobs: What is predicted of jobs.
        endpoints: What is predicted of endpoints.
        assumptions: What the predictions rest on, a sentence each.
        left_out: Jobs that were left out so that the answer comes in time.
        draws: How many futures were simulated.
        seconds: How long that took.
    """

    snapshot: str
    policy: str
    difference: tuple[str, ...] = ()
    jobs: tuple[JobPrediction, ...] = ()
    endpoints: tuple[EndpointPrediction, ...] = ()
    assumptions: tuple[str, ...] = ()
    left_out: int = 0
    draws: int = 0
    seconds: float = 0.0

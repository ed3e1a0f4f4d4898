"""Tenants."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

DEFAULT_MAX_ACTIVE_JOBS = 20
DEFAULT_WEIGHT = 1.0
MAX_CLASS_VALUE = 1_000_000_000
"""As in Kubernetes, whose larger values are the system's own."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def is_tenant_name(text: str) -> bool:
    """Whether a tenant may have that name: folders and topics bear it."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Which jobs go before those of others, as the operator says; jobs without a class are of value 0."""

    name: str = ""  # as specs name it
    value: int = 0  # whose is larger goes first, from minus to plus :data:`MAX_CLASS_VALUE`
    preempts: bool = True  # whether jobs of lower value are suspended for it where there is no room else
    tenants: tuple[str, ...] | None = None  # who may use it; None for everybody

    def is_for(self, tenant: str) -> bool:
        """Whether a tenant may use it."""
        return self.tenants is None or tenant in self.tenants


NO_CLASS = PriorityClass(preempts=False)
"""Of a job that names none."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who owns jobs and endpoints."""

    name: str  # unique; lower-case letters, digits, ``-`` and ``_``
    token: str = field(repr=False)  # secret that its calls carry
    max_active_jobs: int = DEFAULT_MAX_ACTIVE_JOBS  # how many of its jobs may be unfinished at the same time
    max_core_hours: float = math.inf  # how many hours of cores its jobs may have used, as they fade
    max_accelerator_hours: float = math.inf  # how many of accelerators, alike
    weight: float = DEFAULT_WEIGHT  # what its jobs and endpoints are worth among those of others, > 0
    classes: tuple[PriorityClass, ...] = ()  # the priority classes that it may use

    def class_of(self, name: str) -> PriorityClass:
        """The class of that name, if it may use it."""
        return next((each for each in self.classes if each.name == name), NO_CLASS)

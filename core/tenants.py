"""Tenants."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

DEFAULT_MAX_ACTIVE_JOBS = 20
DEFAULT_WEIGHT = 1.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def is_tenant_name(text: str) -> bool:
    """Whether a tenant may have that name: folders and topics bear it."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who owns jobs and endpoints."""

    name: str  # unique; lower-case letters, digits, ``-`` and ``_``
    token: str = field(repr=False)  # secret that its calls carry
    max_active_jobs: int = DEFAULT_MAX_ACTIVE_JOBS  # how many of its jobs may be unfinished at the same time
    max_core_hours: float = math.inf  # how many hours of cores its jobs may have used, as they fade
    max_device_hours: float = math.inf  # how many of accelerators, alike
    weight: float = DEFAULT_WEIGHT  # what its jobs and endpoints are worth among those of others, > 0

"""Which scheduling policy decides, as everybody is told."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class PolicySource(enum.Enum):
    """Who chose a policy: nobody, whoever started the broker, or its operator while it ran."""

    DEFAULT = "default"
    START = "start"
    SET = "set"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy that decides."""

    name: str  # its name
    options: Mapping[str, str] = field(default_factory=dict)  # those that differ from its defaults, as text
    source: PolicySource = PolicySource.DEFAULT  # who chose it
    # The policy that the broker was started with, which decides again after its next start; or empty.
    started_with: str = ""

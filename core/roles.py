"""What a caller may be; which calls are for whom stands beside each of them in ``protos/``."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a caller's token, certificate or lack of both makes it; see ``protos/tiercel/v1/rights.proto``."""

    ANYBODY = "anybody"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    AGENT = "agent"
    RUN = "run"

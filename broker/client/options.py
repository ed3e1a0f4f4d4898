"""How a client behaves when the broker is slow or away."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tiercel.core.backoff import Backoff

_SERVICE = "tiercel.v1.JobsService"
_FILES = "tiercel.v1.FilesService"
_PROJECTS = "tiercel.v1.ProjectsService"
# Doing one of these twice is doing it once; SubmitJob because the client sends a key with it.
_IDEMPOTENT = (
    "SubmitJob",
    "GetJob",
    "ListJobs",
    "CancelJob",
    "SuspendJob",
    "ResumeJob",
    "SetPriority",
    "ExplainJob",
    "ListNodes",
    "ListEndpoints",
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How calls that may be repeated are repeated while the broker is unavailable.

    Attributes:
        attempts: At most this many, the first included; 1 to 5 (gRPC's own limit).
        first_pause_seconds: Pause before the second attempt; doubles from then on, with jitter.
        longest_pause_seconds: Longest pause between two attempts.
        patience_seconds: How long a stream of events or logs tries to get its connection back before it fails.
    """

    attempts: int = 4
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 2.0
    patience_seconds: float = 60.0

    def pause_seconds(self, failures: int, jitter: float) -> float:
        """Pause after so many failures in a row (from 1); ``jitter`` in [0, 1) takes away up to half of it."""
        return Backoff(self.first_pause_seconds, self.longest_pause_seconds).seconds(failures, jitter)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client behaves.

    Attributes:
        deadline_seconds: For each call that has one answer, retries included.
        infer_deadline_seconds: For each request to an endpoint.
        generate_deadline_seconds: For each answer that is generated, to its last token; servers give it 120 seconds.
        retry: What happens while the broker is unavailable.
    """

    deadline_seconds: float = 10.0
    infer_deadline_seconds: float = 30.0
    generate_deadline_seconds: float = 150.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)


def channel_options(options: ClientOptions) -> list[tuple[str, str | int]]:
    """The same in gRPC's words."""
    retry = options.retry
    method_config = {
        "name": [
            *({"service": _SERVICE, "method": method} for method in _IDEMPOTENT),
            {"service": _PROJECTS, "method": "FindMissingObjects"},
            {"service": _FILES, "method": "ListFiles"},
        ],
        "retryPolicy": {
            "maxAttempts": retry.attempts,
            "initialBackoff": f"{retry.first_pause_seconds}s",
            "maxBackoff": f"{retry.longest_pause_seconds}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        },
    }
    # gRPC takes one attempt for an invalid retry policy, not for none.
    methods = [method_config] if retry.attempts > 1 else []
    return [
        ("grpc.service_config", json.dumps({"methodConfig": methods})),
        ("grpc.enable_retries", 1),
        # A long list of jobs with their last output is more than gRPC's default of 4 MiB.
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # Notices a peer that went without a word; servers refuse pings more often than every five minutes by default.
        ("grpc.keepalive_time_ms", 330_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]

"""What gRPC is told about retries."""

from __future__ import annotations

import json
from typing import Any

from tiercel import ClientOptions, RetryPolicy
from tiercel.broker.client.options import channel_options


def service_config(options: ClientOptions) -> Any:
    return json.loads(str(dict(channel_options(options))["grpc.service_config"]))


def test_only_what_may_be_repeated_is_repeated() -> None:
    (method_config,) = service_config(ClientOptions())["methodConfig"]

    methods = {name["method"] for name in method_config["name"]}
    assert methods.isdisjoint({"WatchJobs", "StreamLogs"}), "streams are resumed, not repeated"
    assert method_config["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]
    assert method_config["retryPolicy"]["maxAttempts"] == 4


def test_one_attempt_is_no_retry_policy() -> None:
    assert service_config(ClientOptions(retry=RetryPolicy(attempts=1))) == {"methodConfig": []}


def test_pauses_double_up_to_the_longest() -> None:
    retry = RetryPolicy(first_pause_seconds=1, longest_pause_seconds=3)

    assert [retry.pause_seconds(failures, jitter=0) for failures in (1, 2, 3, 999)] == [1, 2, 3, 3]

"""What an application got from endpoints while the jobs behind them were still training."""

from __future__ import annotations

import math
from collections.abc import Collection

from benchmarks.scheduling.outcome import Served
from benchmarks.scheduling.schedules import OBJECTIVE_SECONDS
from testing.load_record import LoadRecord, Request, percentile_ms


def served_of(record: LoadRecord, endpoints: Collection[str], began_at: float, seconds: float) -> Served:
    """Sum up a record by whole seconds.

    Args:
        record: What the application saw; the score of an answer is 1 when it is right, else 0.
        endpoints: Those of the schedule.
        began_at: When the schedule began, seconds since the Unix epoch.
        seconds: How long to look, from then on.
    """
    buckets: list[dict[str, list[Request]]] = [{} for _ in range(math.ceil(seconds))]
    for request in record.requests:
        second = math.floor(request.at - began_at)
        if 0 <= second < len(buckets) and request.endpoint in endpoints:
            buckets[second].setdefault(request.endpoint, []).append(request)
    latencies = [request.latency for request in record.requests if not request.failed]
    return Served(
        quality=tuple(round(math.fsum(_quality(asked) for asked in bucket.values()), 4) for bucket in buckets),
        satisfied=tuple(sum(_is_satisfied(asked) for asked in bucket.values()) for bucket in buckets),
        live=tuple(len(bucket) for bucket in buckets),
        requests=len(record.requests),
        failed=record.failed,
        p99_ms=percentile_ms(latencies, 99),
    )


def _quality(requests: list[Request]) -> float:
    in_time = (request.score or 0.0 for request in requests if request.latency <= OBJECTIVE_SECONDS)
    return math.fsum(in_time) / len(requests)


def _is_satisfied(requests: list[Request]) -> bool:
    return math.fsum(request.latency for request in requests) / len(requests) <= OBJECTIVE_SECONDS

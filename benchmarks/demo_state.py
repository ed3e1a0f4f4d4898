"""What is known while a demo runs: the jobs, and the application's figures so far."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.subscriber import Subscriber
from benchmarks.timeline import FirstAnswer, Timeline
from testing.load_record import percentile_ms

RATE_WINDOW_SECONDS = 5.0


@dataclass(slots=True)
class LoadFigures:
    """What the application has told so far."""

    requests: int = 0  # how many it has sent and seen the end of
    failed: int = 0  # how many of them failed
    latencies: list[float] = field(default_factory=list)  # of the others, in seconds
    _counts: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)], maxlen=1000))

    def add(self, news: Mapping[str, Any], now: float) -> None:
        """Take in what the application tells twice a second."""
        self.requests = int(news["requests"])
        self.failed += int(news["failed"])
        self.latencies.extend(news["latencies"])
        self._counts.append((now, self.requests))
        while len(self._counts) > 1 and now - self._counts[0][0] > RATE_WINDOW_SECONDS:
            self._counts.popleft()

    @property
    def rate(self) -> float:
        """Requests a second over the last seconds."""
        (start, before), (end, after) = self._counts[0], self._counts[-1]
        return (after - before) / (end - start) if end > start else 0.0

    @property
    def p99_ms(self) -> float | None:
        """99th percentile of the latencies so far, in milliseconds."""
        return percentile_ms(self.latencies, 99)


@dataclass(slots=True)
class DemoState:
    """Everything that the live view shows."""

    timeline: Timeline = field(default_factory=Timeline)  # the jobs
    load: LoadFigures = field(default_factory=LoadFigures)  # the application's figures
    subscriber: Subscriber | None = None  # counts MQTT messages; None before there is one
    phase: str = "starting"  # what is being done, in a few words
    began: float = field(default_factory=time.monotonic)  # when, by the clock that never jumps

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    @property
    def mqtt_messages(self) -> int:
        """How many MQTT messages came."""
        return self.subscriber.messages if self.subscriber is not None else 0

    def add_news(self, news: Mapping[str, Any]) -> None:
        """Take in a line that the application told."""
        if "requests" in news:
            self.load.add(news, time.monotonic())
        elif "version" in news:
            answer = FirstAnswer(str(news["endpoint"]), int(news["version"]), float(news["at"]))
            self.timeline.first_answers.append(answer)

"""What endpoints' requests took between two heartbeats, from the inference server's running totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tiercel.v1 import common_pb2, nodes_pb2

_Feedback = tuple[nodes_pb2.VersionFeedback, ...]
_Inputs = Mapping[str, common_pb2.InputDrift]
"""What is known of what the live version of each variant is asked, by variant."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What one endpoint's requests took since the server began."""

    requests: int = 0  # requests that arrived
    answers: int = 0  # those that were answered with a result
    delay_seconds: float = 0.0  # from arrival to answer, added up over the answers
    cpu_seconds: float = 0.0  # CPU that running the model took
    failures: int = 0  # requests that were refused for want of room, timed out, or failed
    on_time: int = 0  # answers within the endpoint's objective
    answered_by: Mapping[str, int] = field(default_factory=dict)  # of an endpoint with variants: answers of each
    # Time that accelerators were kept for running the model; copies to and from them included.
    accelerator_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ServingUsage:
    """What a server counted."""

    uptime_seconds: float  # for how long it had been running
    totals: Mapping[str, Totals] = field(default_factory=dict)  # by endpoint
    # Delays of the last few seconds, by endpoint.
    windows: Mapping[str, tuple[common_pb2.DelayWindow, ...]] = field(default_factory=dict)
    lag_seconds: float | None = None  # by how much its event loop came late, or None while nobody knows
    keys: Mapping[str, int] = field(default_factory=dict)  # requests that came with each key, by its id
    routes_number: int = 0  # of the table by which it hands requests on; 0 for none
    # What applications said of versions, by endpoint.
    feedback: Mapping[str, _Feedback] = field(default_factory=dict)
    # Whether what versions that answer are asked is as it was at first, by endpoint.
    inputs: Mapping[str, _Inputs] = field(default_factory=dict)


def usage_from_json(content: Mapping[str, Any]) -> ServingUsage:
    """What a server says at ``/v2/usage``; one that says nothing of delays has no windows.

    Raises:
        KeyError: Something is missing.
        TypeError: Something is of another type than it should be.
        ValueError: Something is no number.
    """
    lines = {str(line["name"]): line for line in content["models"]}
    lags = [window["p95"] for window in content.get("loop_lag", [])[:1]]
    return ServingUsage(
        float(content["uptime_seconds"]),
        {name: _totals(line) for name, line in lines.items()},
        {name: tuple(map(_window, line.get("windows", ()))) for name, line in lines.items()},
        lags[0] if lags else None,
        {str(line["id"]): int(line["requests"]) for line in content.get("keys", ())},
        max(0, int(content.get("routes_number", 0))),
        _feedback(content.get("feedback", ())),
        _inputs(content.get("inputs", ())),
    )


def _feedback(lines: Iterable[Mapping[str, Any]]) -> dict[str, _Feedback]:
    """What was said of versions, by endpoint; of a version and its cheap variants together."""
    found: dict[str, dict[int, nodes_pb2.VersionFeedback]] = {}
    for line in lines:
        version = int(line["version"])
        said = found.setdefault(line["model"], {}).setdefault(version, nodes_pb2.VersionFeedback(version=version))
        said.rows += line["rows"]
        said.right += line["right"]
    return {model: tuple(versions.values()) for model, versions in found.items()}


def _inputs(lines: Iterable[Mapping[str, Any]]) -> dict[str, _Inputs]:
    """What is known of what versions are asked, by endpoint."""
    found: dict[str, dict[str, common_pb2.InputDrift]] = {}
    for line in lines:
        said = common_pb2.InputDrift(
            version=int(line["version"]),
            rows=line["rows"],
            reference_rows=line["reference_rows"],
            features=line["features"],
            drifted=line["drifted"],
            bound=line["bound"],
            farthest=[common_pb2.FeatureDrift(**each) for each in line["farthest"]],
        )
        found.setdefault(line["model"], {})[line["variant"]] = said
    return {**found}


def _totals(line: Mapping[str, Any]) -> Totals:
    return Totals(
        int(line["requests"]),
        int(line["answers"]),
        float(line["delay_seconds"]),
        float(line["cpu_seconds"]),
        int(line.get("failures", 0)),
        int(line.get("on_time", 0)),
        {str(variant): int(answers) for variant, answers in line.get("answered_by", {}).items()},
        float(line.get("accelerator_seconds", 0.0)),
    )


def _window(window: Mapping[str, Any]) -> common_pb2.DelayWindow:
    return common_pb2.DelayWindow(
        seconds=window["seconds"],
        answers=window["answers"],
        failures=window["failures"],
        in_objective=window["in_objective"],
        p50_seconds=window["p50"],
        p95_seconds=window["p95"],
        p99_seconds=window["p99"],
    )


_NOTHING = Totals()
# Of more names than these, most were deleted: what is known is dropped, and the next look is the first one again.
MOST_ENDPOINTS: Final = 16384


class UsageMeter:
    """Turns totals into what happened since it was last asked; whose server it is may change any time.

    What looking costs grows with the endpoints that were asked something, not with those that are there.

    Attributes:
        lag_seconds: By how much the server's event loop came late when it was last looked at, or None.
    """

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._looked_at = 0.0
        self._totals: dict[str, Totals] = {}
        self._windows: dict[str, tuple[common_pb2.DelayWindow, ...]] = {}
        # What was told last, of endpoints that changed since then.
        self._before: dict[str, Totals] = {}
        self._keys: Mapping[str, int] | None = None
        self._keys_asked: Counter[str] = Counter()
        self._feedback: Mapping[str, _Feedback] = {}
        self._feedback_told: dict[str, _Feedback] = {}
        self._inputs: dict[str, _Inputs] = {}
        self._inputs_told: dict[str, _Inputs] = {}
        self.lag_seconds: float | None = None

    @property
    def since(self) -> float:
        """Only what changed from this uptime on is news; 0 for all."""
        return self._looked_at

    def begin_anew(self) -> None:
        """It is another server's from now on."""
        self._told_at, self._looked_at, self.lag_seconds = None, 0.0, None
        self._totals, self._windows, self._before, self._keys = {}, {}, {}, None
        self._feedback, self._feedback_told = {}, {}
        self._inputs, self._inputs_told = {}, {}

    def tell_anew(self) -> None:
        """Whoever asks next knows nothing yet of what versions are asked and of how often they are right."""
        self._feedback_told, self._inputs_told = {}, {}

    def note(self, usage: ServingUsage) -> None:
        """Take in what the server counted; endpoints that are left out did not change.

        What it counted before the first look is nobody's news.
        """
        if usage.uptime_seconds < self._looked_at:
            self.begin_anew()
        if len(self._totals) > MOST_ENDPOINTS:
            self.begin_anew()
            return  # it is of what changed only
        first = self._told_at is None
        if first:
            self._told_at = usage.uptime_seconds
        for name, totals in usage.totals.items():
            known = self._totals.get(name, totals if first else _NOTHING)
            if totals != known:
                self._before.setdefault(name, known)
            self._totals[name] = totals
        if self._keys is not None:
            self._keys_asked += Counter(usage.keys) - Counter(self._keys)
        self._keys = usage.keys
        self._windows.update(usage.windows)
        self._feedback = usage.feedback
        self._inputs |= {name: {**self._inputs.get(name, {}), **said} for name, said in usage.inputs.items()}
        self._looked_at, self.lag_seconds = usage.uptime_seconds, usage.lag_seconds

    def take_keys(self) -> list[nodes_pb2.KeyUse]:
        """What came with keys since the last call; those that nobody showed are left out."""
        asked, self._keys_asked = self._keys_asked, Counter()
        return [nodes_pb2.KeyUse(id=key, requests=requests) for key, requests in sorted(asked.items())]

    def take(self) -> list[nodes_pb2.EndpointUsage]:
        """What happened since the last call, endpoints by name; those that nobody asked anything are left out."""
        if self._told_at is None:
            return []
        seconds = self._looked_at - self._told_at
        if seconds <= 0:
            return []
        self._told_at = self._looked_at
        before, self._before = self._before, {}
        told, self._feedback_told = self._feedback_told, dict(self._feedback)
        told_anew = {name for name, said in self._feedback.items() if said != told.get(name)}
        asked, self._inputs_told = self._inputs_told, dict(self._inputs)
        told_anew |= {name for name, said in self._inputs.items() if said != asked.get(name)}
        return [
            _message(
                name,
                seconds,
                _change(before[name], self._totals[name]) if name in before else _NOTHING,
                self._windows.get(name, ()),
                self._feedback.get(name, ()),
                self._inputs.get(name, {}).values(),
            )
            for name in sorted({*before, *told_anew})
        ]


def _message(
    name: str,
    seconds: float,
    change: Totals,
    windows: tuple[common_pb2.DelayWindow, ...],
    feedback: _Feedback,
    inputs: Iterable[common_pb2.InputDrift],
) -> nodes_pb2.EndpointUsage:
    return nodes_pb2.EndpointUsage(
        endpoint=name,
        seconds=seconds,
        requests=change.requests,
        answers=change.answers,
        delay_seconds=change.delay_seconds,
        cpu_seconds=change.cpu_seconds,
        failures=change.failures,
        on_time=change.on_time,
        windows=windows,
        answered_by=change.answered_by,
        accelerator_seconds=change.accelerator_seconds,
        feedback=feedback,
        inputs=inputs,
    )


def _change(before: Totals, after: Totals) -> Totals:
    return Totals(
        max(after.requests - before.requests, 0),
        max(after.answers - before.answers, 0),
        max(after.delay_seconds - before.delay_seconds, 0.0),
        max(after.cpu_seconds - before.cpu_seconds, 0.0),
        max(after.failures - before.failures, 0),
        max(after.on_time - before.on_time, 0),
        Counter(after.answered_by) - Counter(before.answered_by),
        max(after.accelerator_seconds - before.accelerator_seconds, 0.0),
    )

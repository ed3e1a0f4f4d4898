"""From an event to the MQTT message that tells it: pure, and the only place that knows topics and payloads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tiercel.core.events import (
    EndpointEvent,
    EndpointGone,
    EndpointMeasured,
    EndpointShareChanged,
    Event,
    InputsJudged,
    JobEvent,
    NodeEvent,
    PriorityChanged,
    ProgressMade,
    PromiseJudged,
    RetrainingTold,
    ShareChanged,
    StateChanged,
    TierChanged,
)
from tiercel.core.feedback import AccuracyInUse, VersionFeedback

ROOT = "tiercel/v1"
READABLE = (f"{ROOT}/{{tenant}}/#", f"{ROOT}/nodes/#", f"{ROOT}/broker/#")
"""What a tenant may read, as filters: the embedded server goes by it, and so do the files for mosquitto."""


@dataclass(frozen=True, slots=True)
class Message:
    """An MQTT message to be published."""

    topic: str  # where
    payload: bytes  # a JSON object in UTF-8
    qos: int  # 0 for what may get lost, 1 for what must arrive
    # Whether the MQTT broker keeps it for those who subscribe later. Exactly what is state is retained.
    retain: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """Where one kind of news goes."""

    path: str  # below :data:`ROOT`, its parts in braces
    tells: str  # what a message there says
    is_state: bool = True  # whether each message takes the place of the one before: those are retained and must arrive

    @property
    def qos(self) -> int:
        """0 for what may get lost, 1 for what must arrive."""
        return 1 if self.is_state else 0

    def message(self, at: float, news: Mapping[str, Any], **parts: str | int) -> Message:
        """A message there.

        Args:
            at: When it happened, in seconds since the Unix epoch.
            news: What it tells.
            parts: Those of the path.
        """
        path = self.path.format(**{name: _segment(str(part)) for name, part in parts.items()})
        payload = json.dumps({"at": _iso(at), **_finite(news)}, allow_nan=False, ensure_ascii=False).encode()
        return Message(f"{ROOT}/{path}", payload, self.qos, self.is_state)


_JOB, _ENDPOINT = "{tenant}/jobs/{job}", "{tenant}/endpoints/{endpoint}"
STATE = Topic(f"{_JOB}/state", "The job entered a state.")
PROGRESS = Topic(f"{_JOB}/progress", "The script reported metrics.", is_state=False)
TIER = Topic(f"{_JOB}/tiers/{{number}}", "A tier was reached, delivered, failed, or found out of reach.")
ALLOCATION = Topic(f"{_JOB}/allocation", "The job's share changed.")
PRIORITY = Topic(f"{_JOB}/priority", "The job's tenant gave it another priority, -100 to 100.")
VERSION = Topic(f"{_ENDPOINT}/version", "Another version answers.")
VARIANT_VERSION = Topic(f"{_ENDPOINT}/variants/{{variant}}/version", "The same, of an endpoint with variants.")
ENDPOINT_ALLOCATION = Topic(f"{_ENDPOINT}/allocation", "What the endpoint may use changed.")
PROMISE = Topic(f"{_ENDPOINT}/promise", "Whether a version is as often right as promised, once that changes.")
INPUTS = Topic(f"{_ENDPOINT}/inputs", "Whether a version is asked something else than at first, once that changes.")
RETRAINING = Topic(f"{_ENDPOINT}/retraining", "What is done about a model that is too seldom right, or why nothing is.")
LOAD = Topic(f"{_ENDPOINT}/load", "How it answered lately; with each heartbeat, while it is asked.", is_state=False)
NODE_PRESENCE = Topic(
    "nodes/{node}/presence",
    "A node came or went, began or ceased to be drained, or something of its accelerators changed.",
)
BROKER_PRESENCE = Topic("broker/presence", "The broker came or went.")
TOPICS = (
    *(STATE, PROGRESS, TIER, ALLOCATION, PRIORITY),
    *(VERSION, VARIANT_VERSION, ENDPOINT_ALLOCATION, PROMISE, INPUTS, RETRAINING, LOAD),
    *(NODE_PRESENCE, BROKER_PRESENCE),
)
"""All that there are."""


def message_of(event: Event) -> Message:
    """The message that tells ``event``."""
    match event:
        case JobEvent():
            return _job_message(event)
        case EndpointEvent():
            return _endpoint_message(event)
        case EndpointGone():
            return _endpoint_gone_message(event)
        case EndpointShareChanged():
            return _endpoint_share_message(event)
        case PromiseJudged():
            return _promise_message(event)
        case InputsJudged():
            return _inputs_message(event)
        case RetrainingTold():
            return _retraining_message(event)
        case EndpointMeasured():
            return _endpoint_load_message(event)
        case NodeEvent():
            return _node_message(event)


def broker_presence(*, online: bool, at: float) -> Message:
    """Birth (online) and last will (offline) of the broker.

    Args:
        online: Whether the broker is there.
        at: Seconds since the Unix epoch; in a last will, when the connection began whose end it tells.
    """
    return BROKER_PRESENCE.message(at, {"presence": _presence(online)})


def _job_message(event: JobEvent) -> Message:
    parts = {"tenant": event.tenant, "job": event.job_id}
    about: dict[str, Any] = {"sequence": event.sequence, "job": event.job_id, "tenant": event.tenant}
    match event.change:
        case StateChanged(state=state, reason=reason):
            return STATE.message(event.at, {**about, "state": state.value, "reason": reason}, **parts)
        case ProgressMade() as progress:
            news = {
                "epoch": progress.epoch,
                "value": progress.value,
                "metrics": dict(progress.metrics),
                "cpu_seconds": progress.cpu_seconds,
                "accelerator_seconds": progress.accelerator_seconds,
            }
            return PROGRESS.message(event.at, {**about, **news}, **parts)
        case TierChanged() as change:
            return TIER.message(event.at, {**about, **_tier(change)}, **parts, number=change.tier.number)
        case ShareChanged(node_id=node_id, share=share):
            allocation = {
                "node": node_id,
                "cpu_weight": share.cpu_weight,
                "cpu_cap_cores": share.cpu_cap_cores,
                "accelerators": {held.id: held.fraction for held in share.accelerators},
                "reason": share.reason,
            }
            return ALLOCATION.message(event.at, {**about, **allocation}, **parts)
        case PriorityChanged(priority=priority):
            return PRIORITY.message(event.at, {**about, "priority": priority}, **parts)


def _tier(change: TierChanged) -> dict[str, Any]:
    status = change.tier
    return {
        "tier": status.number,
        "target": status.tier.target,
        "value": status.tier.value,
        "deadline_seconds": status.tier.deadline_seconds,
        "state": status.state.value,
        "reached_value": status.reached_value,
        "delivered_value": status.delivered_value,
        "reached_seconds": status.reached_seconds,
        "delivered_seconds": status.delivered_seconds,
        "version": status.version,
        "reason": status.reason,
    }


def _endpoint_message(event: EndpointEvent) -> Message:
    version = event.version
    news = {
        **_endpoint_names(event.endpoint, version.variant, event.tenant),
        "version": version.version,
        "job": version.job_id,
        "tier": version.tier,
        "metric": version.metric,
        "value": version.value,
        "delivered_at": _iso(version.delivered_at),
        "sha256": version.sha256,
        "deployed_by": version.deployed_by,
        "file": version.file,
        "cheap_variants": [each.to_json() for each in version.cheap_variants],
    }
    return _version_message(event.at, news, event.endpoint, version.variant, event.tenant)


def _endpoint_gone_message(event: EndpointGone) -> Message:
    news = {**_endpoint_names(event.endpoint, event.variant, event.tenant), "version": None}
    return _version_message(event.at, news, event.endpoint, event.variant, event.tenant)


def _endpoint_names(endpoint: str, variant: str, tenant: str) -> dict[str, Any]:
    return {"endpoint": endpoint, **({"variant": variant} if variant else {}), "tenant": tenant}


def _version_message(at: float, news: Mapping[str, Any], endpoint: str, variant: str, tenant: str) -> Message:
    # Each variant has a version that answers, and each topic one message that is kept.
    if not variant:
        return VERSION.message(at, news, tenant=tenant, endpoint=endpoint)
    return VARIANT_VERSION.message(at, news, tenant=tenant, endpoint=endpoint, variant=variant)


def _endpoint_share_message(event: EndpointShareChanged) -> Message:
    share = event.share
    allocation = {
        "node": event.node_id,
        "cpu_weight": None if share is None else share.cpu_weight,
        "cpu_cap_cores": None if share is None else share.cpu_cap_cores,
        "reason": "" if share is None else share.reason,
    }
    about = {"endpoint": event.endpoint, "tenant": event.tenant}
    return ENDPOINT_ALLOCATION.message(event.at, {**about, **allocation}, **about)


def _in_use(said: VersionFeedback) -> dict[str, Any]:
    return {"version": said.version, **asdict(AccuracyInUse.of(said))}


def _promise_message(event: PromiseJudged) -> Message:
    news = {
        "endpoint": event.endpoint,
        "tenant": event.tenant,
        "version": event.version,
        "kept": event.kept,
        "promised": event.promised,
        **asdict(event.in_use),
    }
    return PROMISE.message(event.at, news, tenant=event.tenant, endpoint=event.endpoint)


def _inputs_message(event: InputsJudged) -> Message:
    about = {"endpoint": event.endpoint, "tenant": event.tenant}
    inputs = asdict(event.inputs)
    node = {"node": inputs.pop("node_id")}
    return INPUTS.message(event.at, {**about, **inputs, **node, "drifted": event.drifted}, **about)


def _retraining_message(event: RetrainingTold) -> Message:
    about = {"endpoint": event.endpoint, "tenant": event.tenant}
    return RETRAINING.message(event.at, {**about, "job": event.job_id or None, "reason": event.words}, **about)


def _endpoint_load_message(event: EndpointMeasured) -> Message:
    load = event.load
    news = {
        "endpoint": event.endpoint,
        "tenant": event.tenant,
        "node": event.node_id,
        "objective_seconds": event.objective_seconds,
        "requests_per_second": load.requests_per_second,
        "delay_seconds": load.delay_seconds,
        "cpu_cores": load.cpu_cores,
        "in_objective": load.in_objective,
        "lag_seconds": load.lag_seconds,
        "windows": [asdict(window) for window in load.windows],
        **({"feedback": [_in_use(each) for each in event.feedback]} if event.feedback else {}),
        **({"answered_parts": dict(load.answered_parts)} if load.answered_parts else {}),
    }
    return LOAD.message(event.at, news, tenant=event.tenant, endpoint=event.endpoint)


def _node_message(event: NodeEvent) -> Message:
    news = {
        "node": event.node_id,
        "presence": _presence(event.online),
        "lease_epoch": event.lease_epoch,
        "drain": event.drain.value,
        "accelerators": [asdict(accelerator) for accelerator in event.accelerators],
    }
    return NODE_PRESENCE.message(event.at, news, node=event.node_id)


def _presence(online: bool) -> str:
    return "online" if online else "offline"


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _segment(name: str) -> str:
    # A name must not add a level to the topic nor be taken for a wildcard.
    return quote(name, safe=" :@=,")


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity, and scripts do report them.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value

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
    JobEvent,
    NodeEvent,
    PriorityChanged,
    ProgressMade,
    ShareChanged,
    StateChanged,
    TierChanged,
)

ROOT = "tiercel/v1"
BROKER_PRESENCE_TOPIC = f"{ROOT}/broker/presence"
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
    return _state(BROKER_PRESENCE_TOPIC, at, {"presence": _presence(online)})


def _job_message(event: JobEvent) -> Message:
    base = f"{ROOT}/{_segment(event.tenant)}/jobs/{_segment(event.job_id)}"
    about: dict[str, Any] = {"sequence": event.sequence, "job": event.job_id, "tenant": event.tenant}
    match event.change:
        case StateChanged(state=state, reason=reason):
            return _state(f"{base}/state", event.at, {**about, "state": state.value, "reason": reason})
        case ProgressMade() as progress:
            news = {
                "epoch": progress.epoch,
                "value": progress.value,
                "metrics": dict(progress.metrics),
                "cpu_seconds": progress.cpu_seconds,
                "accelerator_seconds": progress.accelerator_seconds,
            }
            return Message(f"{base}/progress", _payload(event.at, {**about, **news}), qos=0, retain=False)
        case TierChanged() as change:
            return _state(f"{base}/tiers/{change.tier.number}", event.at, {**about, **_tier(change)})
        case ShareChanged(node_id=node_id, share=share):
            allocation = {
                "node": node_id,
                "cpu_weight": share.cpu_weight,
                "cpu_cap_cores": share.cpu_cap_cores,
                "accelerators": {held.id: held.fraction for held in share.accelerators},
                "reason": share.reason,
            }
            return _state(f"{base}/allocation", event.at, {**about, **allocation})
        case PriorityChanged(priority=priority):
            return _state(f"{base}/priority", event.at, {**about, "priority": priority})


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
    }
    return _state(_version_topic(event.endpoint, version.variant, event.tenant), event.at, news)


def _endpoint_gone_message(event: EndpointGone) -> Message:
    news = {**_endpoint_names(event.endpoint, event.variant, event.tenant), "version": None}
    return _state(_version_topic(event.endpoint, event.variant, event.tenant), event.at, news)


def _endpoint_names(endpoint: str, variant: str, tenant: str) -> dict[str, Any]:
    return {"endpoint": endpoint, **({"variant": variant} if variant else {}), "tenant": tenant}


def _version_topic(endpoint: str, variant: str, tenant: str) -> str:
    # Each variant has a version that answers, and each topic one message that is kept.
    of_variant = f"/variants/{_segment(variant)}" if variant else ""
    return f"{ROOT}/{_segment(tenant)}/endpoints/{_segment(endpoint)}{of_variant}/version"


def _endpoint_share_message(event: EndpointShareChanged) -> Message:
    share = event.share
    allocation = {
        "node": event.node_id,
        "cpu_weight": None if share is None else share.cpu_weight,
        "cpu_cap_cores": None if share is None else share.cpu_cap_cores,
        "reason": "" if share is None else share.reason,
    }
    topic = f"{ROOT}/{_segment(event.tenant)}/endpoints/{_segment(event.endpoint)}/allocation"
    return _state(topic, event.at, {"endpoint": event.endpoint, "tenant": event.tenant, **allocation})


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
        **({"answered_parts": dict(load.answered_parts)} if load.answered_parts else {}),
    }
    topic = f"{ROOT}/{_segment(event.tenant)}/endpoints/{_segment(event.endpoint)}/load"
    return Message(topic, _payload(event.at, news), qos=0, retain=False)


def _node_message(event: NodeEvent) -> Message:
    topic = f"{ROOT}/nodes/{_segment(event.node_id)}/presence"
    news = {
        "node": event.node_id,
        "presence": _presence(event.online),
        "lease_epoch": event.lease_epoch,
        "drain": event.drain.value,
        "accelerators": [asdict(accelerator) for accelerator in event.accelerators],
    }
    return _state(topic, event.at, news)


def _state(topic: str, at: float, news: Mapping[str, Any]) -> Message:
    return Message(topic, _payload(at, news), qos=1, retain=True)


def _payload(at: float, news: Mapping[str, Any]) -> bytes:
    return json.dumps({"at": _iso(at), **_finite(news)}, allow_nan=False, ensure_ascii=False).encode()


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

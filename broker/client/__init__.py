"""The client SDK: submit training jobs, follow them, and use what they feed.

It talks to the broker over gRPC only and knows none of its code besides the words in ``core``.

What a name needs is imported when it is first used: most commands need a small part of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiercel.broker.client.client import Client
    from tiercel.broker.client.curves import Curve
    from tiercel.broker.client.endpoint_client import EndpointClient
    from tiercel.broker.client.functions import FunctionJob, job
    from tiercel.broker.client.handle import JobHandle
    from tiercel.broker.client.options import ClientOptions, RetryPolicy
    from tiercel.broker.client.spec_file import load_spec, parse_spec
    from tiercel.broker.client.sync import SyncClient, SyncEndpointClient, SyncJobHandle
    from tiercel.core.disk_use import DiskUse, NodeDisk, Removal, RoomTaken
    from tiercel.core.endpoint_views import EndpointExplanation, EndpointInfo, ReplicaInfo, VariantInfo, VersionInfo
    from tiercel.core.errors import TierMissedError
    from tiercel.core.file_views import FileInfo
    from tiercel.core.jobs import TierStatus
    from tiercel.core.lineage import CurvePoint, Lineage
    from tiercel.core.models import Difference, ModelCard
    from tiercel.core.views import (
        AcceleratorInfo,
        DecisionInfo,
        Explanation,
        JobEvent,
        JobInfo,
        NodeInfo,
        PriorityEvent,
        ProgressEvent,
        ShareEvent,
        StateEvent,
        TierEvent,
    )

_HOMES = {
    "tiercel.broker.client.client": "Client",
    "tiercel.broker.client.curves": "Curve",
    "tiercel.broker.client.endpoint_client": "EndpointClient",
    "tiercel.broker.client.functions": "FunctionJob job",
    "tiercel.broker.client.handle": "JobHandle",
    "tiercel.broker.client.options": "ClientOptions RetryPolicy",
    "tiercel.broker.client.spec_file": "load_spec parse_spec",
    "tiercel.broker.client.sync": "SyncClient SyncEndpointClient SyncJobHandle",
    "tiercel.core.disk_use": "DiskUse NodeDisk Removal RoomTaken",
    "tiercel.core.errors": "TierMissedError",
    "tiercel.core.endpoint_views": "EndpointExplanation EndpointInfo ReplicaInfo VariantInfo VersionInfo",
    "tiercel.core.file_views": "FileInfo",
    "tiercel.core.jobs": "TierStatus",
    "tiercel.core.lineage": "CurvePoint Lineage",
    "tiercel.core.models": "Difference ModelCard",
    "tiercel.core.views": (
        "AcceleratorInfo DecisionInfo Explanation JobEvent JobInfo NodeInfo PriorityEvent ProgressEvent "
        "ShareEvent StateEvent TierEvent"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AcceleratorInfo",
    "Client",
    "ClientOptions",
    "Curve",
    "CurvePoint",
    "DecisionInfo",
    "Difference",
    "DiskUse",
    "EndpointClient",
    "EndpointExplanation",
    "EndpointInfo",
    "Explanation",
    "FileInfo",
    "FunctionJob",
    "JobEvent",
    "JobHandle",
    "JobInfo",
    "Lineage",
    "ModelCard",
    "NodeDisk",
    "NodeInfo",
    "PriorityEvent",
    "ProgressEvent",
    "Removal",
    "ReplicaInfo",
    "RetryPolicy",
    "RoomTaken",
    "ShareEvent",
    "StateEvent",
    "SyncClient",
    "SyncEndpointClient",
    "SyncJobHandle",
    "TierEvent",
    "TierMissedError",
    "TierStatus",
    "VariantInfo",
    "VersionInfo",
    "job",
    "load_spec",
    "parse_spec",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)

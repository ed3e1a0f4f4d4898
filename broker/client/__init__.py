"""The client SDK: submit training jobs, follow them, and use what they feed.

It talks to the broker over gRPC only and knows none of its code besides the words in ``core``.
"""

from tiercel.broker.client.client import Client
from tiercel.broker.client.functions import FunctionJob, job
from tiercel.broker.client.handle import JobHandle
from tiercel.broker.client.options import ClientOptions, RetryPolicy
from tiercel.broker.client.spec_file import load_spec, parse_spec
from tiercel.broker.client.sync import SyncClient, SyncJobHandle
from tiercel.core.disk_use import DiskUse, NodeDisk, Removal, RoomTaken
from tiercel.core.errors import TierMissedError
from tiercel.core.file_views import FileInfo
from tiercel.core.jobs import TierStatus
from tiercel.core.lineage import CurvePoint, Lineage
from tiercel.core.views import (
    AcceleratorInfo,
    DecisionInfo,
    EndpointExplanation,
    EndpointInfo,
    Explanation,
    JobEvent,
    JobInfo,
    NodeInfo,
    ProgressEvent,
    ShareEvent,
    StateEvent,
    TierEvent,
    VariantInfo,
    VersionInfo,
)

__all__ = [
    "AcceleratorInfo",
    "Client",
    "ClientOptions",
    "CurvePoint",
    "DecisionInfo",
    "DiskUse",
    "EndpointExplanation",
    "EndpointInfo",
    "Explanation",
    "FileInfo",
    "FunctionJob",
    "JobEvent",
    "JobHandle",
    "JobInfo",
    "Lineage",
    "NodeDisk",
    "NodeInfo",
    "ProgressEvent",
    "Removal",
    "RetryPolicy",
    "RoomTaken",
    "ShareEvent",
    "StateEvent",
    "SyncClient",
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

"""Frozen types and the contract's messages: the same facts under the same names."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message

from testing.jobs import make_spec
from tiercel.core.endpoint_views import EndpointInfo, VariantInfo, VersionInfo
from tiercel.core.endpoints import DelayWindow, EndpointLoad, EndpointUsage
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import JobEvent, ProgressMade, ShareDecision, StateChanged
from tiercel.core.jobs import JobSpec, JobState, Resources, Script, Tier, TierState, TierStatus
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import AcceleratorShare, Share
from tiercel.core.shipping import Shipping
from tiercel.core.views import AcceleratorInfo, DecisionInfo, Explanation, JobInfo, NodeInfo
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2, jobs_pb2, nodes_pb2

# Of each type the message it is sent as, and what the message says that the type has under other names or not at all.
PAIRS: list[tuple[type, type[Message], set[str]]] = [
    (JobSpec, common_pb2.JobSpec, set()),
    (Tier, common_pb2.Tier, set()),
    (Script, common_pb2.Script, set()),
    (Resources, common_pb2.Resources, set()),
    (Shipping, common_pb2.Shipping, set()),
    (Share, common_pb2.Share, set()),
    (AcceleratorShare, common_pb2.AcceleratorShare, set()),
    (DelayWindow, common_pb2.DelayWindow, set()),
    (TierStatus, jobs_pb2.TierStatus, set()),
    (JobInfo, jobs_pb2.Job, set()),
    (
        JobEvent,
        jobs_pb2.JobEvent,
        {f"{kind}_changed" for kind in ("state", "tier", "share", "priority")} | {"progress_made"},
    ),
    (ProgressMade, jobs_pb2.ProgressMade, set()),
    (ShareDecision, jobs_pb2.Decision, set()),
    (DecisionInfo, jobs_pb2.Decision, set()),
    (Explanation, jobs_pb2.ExplainJobResponse, set()),
    (NodeInfo, jobs_pb2.Node, {"state"}),
    (AcceleratorInfo, jobs_pb2.NodeAccelerator, set()),
    (VersionInfo, jobs_pb2.EndpointVersion, set()),
    (VariantInfo, jobs_pb2.EndpointVariant, set()),
    (EndpointInfo, jobs_pb2.Endpoint, {"load"}),
    (EndpointLoad, jobs_pb2.EndpointLoad, set()),
    (EndpointUsage, nodes_pb2.EndpointUsage, {"accelerator_seconds"}),
    (Accelerator, nodes_pb2.Accelerator, set()),
]


@pytest.mark.parametrize(("kind", "message", "otherwise"), PAIRS, ids=[kind.__name__ for kind, _, _ in PAIRS])
def test_a_type_and_its_message_have_the_same_fields(kind: Any, message: Any, otherwise: set[str]) -> None:
    known = {field.name: None for field in dataclasses.fields(kind)}
    from_proto(kind, message(), **known)  # a field that the message lacks, or that does not fit, is refused here
    told = {field.name for field in dataclasses.fields(kind)}
    assert {field.name for field in message.DESCRIPTOR.fields} - told == otherwise


def test_what_is_left_out_takes_its_default_and_a_zero_does_not_pass_for_it() -> None:
    assert from_proto(Resources, common_pb2.Resources()) == Resources()
    assert from_proto(Resources, common_pb2.Resources(cpu_cores=0.0)) == Resources(cpu_cores=0.0)
    assert from_proto(Tier, common_pb2.Tier(target=0.5)) == Tier(0.5)
    assert from_proto(Tier, common_pb2.Tier(target=0.5, deadline_seconds=0.0)) == Tier(0.5, deadline_seconds=0.0)


def test_of_two_programs_the_empty_one_does_not_take_the_place_of_the_other() -> None:
    spec = make_spec(script=Script("train.py", b"print()"), module="")
    assert to_proto(spec, common_pb2.JobSpec).WhichOneof("program") == "script"
    bare = make_spec(script=None, module="", image="python:3.12")
    assert to_proto(bare, common_pb2.JobSpec).WhichOneof("program") is None
    assert from_proto(JobSpec, to_proto(bare, common_pb2.JobSpec)) == bare


def test_times_are_seconds_or_aware_moments() -> None:
    event = JobEvent(1, "j1", "alice", 1_700_000_000.25, StateChanged(JobState.RUNNING, ""))
    assert from_proto(JobEvent, to_proto(event, jobs_pb2.JobEvent)) == event
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    decision = DecisionInfo(moment, "fair", "arrival", "n1", Share(0.5))
    assert from_proto(DecisionInfo, to_proto(decision, jobs_pb2.Decision)) == decision


def test_what_is_known_of_a_message_otherwise_is_given_beside_it() -> None:
    node = from_proto(NodeInfo, jobs_pb2.Node(id="n1", runtimes=["process", "docker"]), online=True)
    assert (node.id, node.online, node.runtimes) == ("n1", True, ("process", "docker"))


def test_a_value_of_an_enum_that_is_younger_than_this_version_is_refused() -> None:
    message = jobs_pb2.TierStatus(number=1, tier=common_pb2.Tier(target=1.0))
    assert from_proto(TierStatus, message).state is TierState.PENDING
    message.MergeFromString(b"\x18\x63")  # field 3, value 99
    with pytest.raises(InvalidSpecError, match=r"state: 99 is no TierState .* pending"):
        from_proto(TierStatus, message)


def test_what_has_no_default_must_be_there() -> None:
    with pytest.raises(InvalidSpecError, match="direction: is missing"):
        from_proto(JobSpec, common_pb2.JobSpec(endpoint="digits"))


@dataclass(frozen=True)
class Stranger:
    colour: str


@dataclass(frozen=True)
class Wrong:
    target: str


def test_types_that_do_not_fit_a_message_are_refused() -> None:
    with pytest.raises(TypeError, match="has no field colour"):
        to_proto(Stranger("red"), common_pb2.Tier)
    with pytest.raises(TypeError, match="does not fit"):
        to_proto(Wrong("red"), common_pb2.Tier)

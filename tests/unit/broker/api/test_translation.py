"""Between the wire and the broker's words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.events import progress_event, share_event, state_event, tier_event
from testing.jobs import AT, make_spec, running_job
from tiercel.broker.actors.node_messages import EndpointSharesDeclared
from tiercel.broker.api.endpoints import Seen, endpoint_to_proto, lag_of, usages_of, wanted_endpoints
from tiercel.broker.api.translation import job_to_proto, node_to_proto, spec_from_proto
from tiercel.core.data_sets import DataSet
from tiercel.core.endpoints import DelayWindow, Endpoint, EndpointLoad, Version
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import JobEvent
from tiercel.core.jobs import (
    DEFAULT_MAX_EPOCHS,
    DEFAULT_REPORT_TIMEOUT_SECONDS,
    Direction,
    JobSpec,
    JobState,
    Resources,
    Script,
    Tier,
)
from tiercel.core.nodes import Node
from tiercel.core.retraining import Retrain
from tiercel.core.shares import AcceleratorShare, Share
from tiercel.core.shipping import Shipping
from tiercel.core.wire import from_proto, seconds_of, timestamp, to_proto
from tiercel.v1 import common_pb2, jobs_pb2, nodes_pb2


@pytest.mark.parametrize(
    "spec",
    [
        make_spec(),
        make_spec(script=Script("train.py", b"print(1)"), module=""),
        make_spec(module="", image="python:3.12", runtime="docker"),
        make_spec(
            direction=Direction.MIN,
            tiers=(Tier(2.0, 3.0, 60.0), Tier(-1.0)),
            arguments=("--fast", ""),
            resources=Resources(2.5, 2**40, accelerators=2, accelerator_memory_bytes=2**35, scratch_bytes=2**33),
            runtime="process",
            max_epochs=7,
            report_timeout_seconds=12.5,
            endpoint_objective_seconds=0.05,
            variant="small",
            continue_after_last_tier=True,
            replace=True,
            ship=Shipping(every=0.01, best_every_seconds=60.0),
            retrain=Retrain(2.5, 0.85, 5, 3600.0, ("inputs",)),
            labels={"sweep": "7", "team/owner": "vision"},
            data=(DataSet("imagenet"), DataSet("digits", "https://host/x.npz", "0" * 64)),
            outputs=("reports/*.html", "tokenizer/"),
            env={"SEED": "7"},
            secrets=("WANDB_KEY",),
            requirements=("lightning>=2.5",),
            max_duration_seconds=7200.0,
            queue=True,
            every_seconds=86400.0,
            priority=-3,
            node_labels={"disk": "ssd"},
            warm_start="4f0c9a1e",
            retries=3,
            retry_back_off_seconds=30.0,
            retry_exit_codes=(75, 137),
            warm=False,
            ranks=2,
            variants=("fp32", "int8"),
            variants_max_loss=0.0,
        ),
    ],
)
def test_a_spec_crosses_the_wire_unchanged(spec: JobSpec) -> None:
    assert (
        spec_from_proto(common_pb2.JobSpec.FromString(to_proto(spec, common_pb2.JobSpec).SerializeToString())) == spec
    )


def test_an_image_says_the_runtime_and_packages_leave_it_open() -> None:
    for spec, runtime in (
        (make_spec(image="python:3.12"), "docker"),
        (make_spec(image="python:3.12", requirements=("lightning",)), "docker"),
        (make_spec(requirements=("lightning",)), ""),
        (make_spec(requirements=("lightning",), runtime="process"), "process"),
    ):
        assert spec_from_proto(to_proto(spec, common_pb2.JobSpec)).runtime == runtime


def test_what_is_left_out_gets_its_default() -> None:
    message = common_pb2.JobSpec(
        endpoint="digits", metric="accuracy", direction=common_pb2.DIRECTION_MAX, tiers=[common_pb2.Tier(target=0.9)]
    )
    spec = spec_from_proto(message)
    assert spec.name == "digits"
    assert spec.tiers == (Tier(0.9, 1.0, None),)
    assert spec.resources == Resources()
    assert (spec.max_epochs, spec.report_timeout_seconds) == (DEFAULT_MAX_EPOCHS, DEFAULT_REPORT_TIMEOUT_SECONDS)
    assert spec.runtime == ""


def test_an_image_asks_for_the_runtime_that_can_use_it() -> None:
    message = common_pb2.JobSpec(image="python:3.12", direction=common_pb2.DIRECTION_MAX)
    assert spec_from_proto(message).runtime == "docker"


def test_a_direction_that_nobody_knows_is_refused() -> None:
    message = common_pb2.JobSpec()
    with pytest.raises(InvalidSpecError) as caught:
        spec_from_proto(message)
    assert caught.value.field == "direction"
    message.ParseFromString(b"\x40\x63")  # field 8, value 99: as a newer client might send it
    with pytest.raises(InvalidSpecError):
        spec_from_proto(message)


@given(st.floats(0, 4e9))
def test_times_keep_their_microseconds(seconds: float) -> None:
    assert math.isclose(seconds_of(timestamp(seconds)), seconds, abs_tol=1e-6)


def test_tenants_do_not_get_the_script_back() -> None:
    job = running_job(script=Script("train.py", b"secret"), module="")
    message = job_to_proto(job)
    assert message.spec.script.name == "train.py"
    assert b"secret" not in message.SerializeToString()
    assert b"secret" in to_proto(job.spec, common_pb2.JobSpec).SerializeToString()


def test_a_job_says_what_is_known_and_no_more() -> None:
    message = job_to_proto(running_job())
    assert (message.state, message.node_id, message.attempts) == (jobs_pb2.JOB_STATE_RUNNING, "n1", 1)
    assert (message.started_seconds, message.finished_seconds) == (10.0, 0.0)
    assert seconds_of(message.submitted_at) == AT
    assert not message.HasField("latest_value")
    assert [tier.tier.target for tier in message.tiers] == [0.8, 0.9]


@pytest.mark.parametrize("state", JobState)
def test_every_state_has_its_name_on_the_wire(state: JobState) -> None:
    message = to_proto(state_event(state), jobs_pb2.JobEvent)
    assert jobs_pb2.JobState.Name(message.state_changed.state) == f"JOB_STATE_{state.name}"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (state_event(JobState.RUNNING), "state_changed"),
        (progress_event(3), "progress_made"),
        (tier_event(1), "tier_changed"),
        (share_event(), "share_changed"),
    ],
)
def test_every_kind_of_event_crosses_the_wire(event: JobEvent, kind: str) -> None:
    message = to_proto(event, jobs_pb2.JobEvent)
    assert message.WhichOneof("event") == kind
    assert (message.sequence, message.job_id, message.tenant) == (event.sequence, event.job_id, event.tenant)


def test_no_cap_is_zero_on_the_wire() -> None:
    assert to_proto(Share(0.5), common_pb2.Share).cpu_cap_cores == 0.0
    assert to_proto(Share(0.5, 1.5), common_pb2.Share).cpu_cap_cores == 1.5


def test_what_a_job_holds_of_accelerators_goes_there_and_back() -> None:
    held = (AcceleratorShare("GPU-1", 0.25, 2**33), AcceleratorShare("GPU-2", 1.0, 2**34, cap=0.75))
    share = Share(0.5, 1.5, "because", held)
    wire = common_pb2.Share.FromString(to_proto(share, common_pb2.Share).SerializeToString())
    assert from_proto(Share, wire) == share
    assert wire.accelerators[0].cap == 0.0


def test_a_node_adds_up_what_its_jobs_hold() -> None:
    node = Node("n1", 4.0, 8, online=False)
    message = node_to_proto(node, [running_job(), running_job()], {})
    assert (message.state, message.jobs) == (jobs_pb2.NODE_STATE_OFFLINE, 2)
    assert message.memory_reserved_bytes == 2 * Resources().memory_bytes


def test_an_endpoint_says_where_its_live_version_is() -> None:
    version = Version(1, "j1", 1, "accuracy", 0.9, AT, "ab")
    endpoint = Endpoint("digits", "alice", 2, (version,), "n1")
    message = endpoint_to_proto(endpoint, {"n1": Node("n1", 1.0, 1, serving_http="h:1", serving_grpc="h:2")})
    assert (message.live_version, message.serving_http, message.serving_grpc) == (1, "h:1", "h:2")
    assert endpoint_to_proto(Endpoint("new", "alice")).live_version == 0


def test_an_endpoint_says_its_objective_its_share_and_what_was_measured() -> None:
    endpoint = Endpoint("digits", "alice", objective_seconds=0.05)
    message = endpoint_to_proto(endpoint, seen=Seen(Share(0.25, 0.5, "slow"), EndpointLoad(8.0, 0.01, 0.4)))
    assert (message.objective_seconds, message.share.cpu_cap_cores, message.share.reason) == (0.05, 0.5, "slow")
    assert (message.load.requests_per_second, message.load.delay_seconds, message.load.cpu_cores) == (8.0, 0.01, 0.4)
    bare = endpoint_to_proto(Endpoint("new", "alice"), seen=Seen(load=EndpointLoad()))
    assert (bare.objective_seconds, bare.HasField("share"), bare.load.HasField("delay_seconds")) == (0.0, False, False)
    assert not endpoint_to_proto(Endpoint("new", "alice")).HasField("load")


def test_delays_of_an_endpoint_go_there_and_back() -> None:
    windows = (DelayWindow(9.5, 7, 2, 0.5, 0.01, 0.02, 0.03), DelayWindow(60.0))
    load = EndpointLoad(8.0, 0.01, 0.4, 0.75, windows, 0.002)
    message = endpoint_to_proto(Endpoint("digits", "alice"), seen=Seen(load=load)).load
    assert (message.in_objective, message.lag_seconds) == (0.75, 0.002)
    usage = nodes_pb2.EndpointUsage(endpoint="digits", seconds=1.0, failures=2, on_time=5, windows=message.windows)
    beat = nodes_pb2.Heartbeat(endpoints=[usage], serving_lag_seconds=0.25)
    (found,) = usages_of(beat)
    assert (found.windows, found.failures, found.on_time) == (windows, 2, 5)
    assert (lag_of(beat), lag_of(nodes_pb2.Heartbeat())) == (0.25, None)


@pytest.mark.parametrize(
    "window",
    [
        {"seconds": math.inf},
        {"seconds": -1.0},
        {"seconds": 1.0, "in_objective": 1.5},
        {"seconds": 1.0, "p95_seconds": math.nan},
    ],
)
def test_windows_that_make_no_sense_are_left_out(window: dict[str, float]) -> None:
    usage = nodes_pb2.EndpointUsage(endpoint="a", seconds=1.0, windows=[common_pb2.DelayWindow(**window)])  # type: ignore[arg-type]
    (found,) = usages_of(nodes_pb2.Heartbeat(endpoints=[usage], serving_lag_seconds=math.nan))
    assert found.windows == ()
    assert lag_of(nodes_pb2.Heartbeat(serving_lag_seconds=math.nan)) is None


@pytest.mark.parametrize("field", ["seconds", "delay_seconds", "cpu_seconds"])
def test_usage_that_nobody_can_have_had_is_left_out(field: str) -> None:
    for wrong in (math.inf, math.nan, -1.0, 1e300):
        usage = nodes_pb2.EndpointUsage(endpoint="a", seconds=1.0)
        setattr(usage, field, wrong)
        assert usages_of(nodes_pb2.Heartbeat(endpoints=[usage])) == ()


def test_a_node_is_told_shares_and_objectives_of_endpoints_that_have_either() -> None:
    declared = EndpointSharesDeclared((("a", Share(0.25, 0.5, "slow")),), (("a", 0.1), ("b", 0.2)))
    a, b = wanted_endpoints(declared)
    assert (a.endpoint, a.share.cpu_cap_cores, a.objective_seconds) == ("a", 0.5, 0.1)
    assert (b.endpoint, b.HasField("share"), b.objective_seconds) == ("b", False, 0.2)


def test_an_endpoint_says_its_variants_and_who_answered() -> None:
    versions = tuple(
        Version(number, "j1", 1, "accuracy", value, AT, "ab", variant=variant)
        for number, value, variant in ((1, 0.8, "small"), (2, 0.9, "large"), (3, 0.85, "small"))
    )
    endpoint = Endpoint("digits", "alice", 4, versions, "n1")
    message = endpoint_to_proto(endpoint, seen=Seen(load=EndpointLoad(answered_parts={"small": 1.0})))
    assert [(each.name, each.live_version, each.accuracy, each.answered_part) for each in message.variants] == [
        ("large", 2, 0.9, 0.0),
        ("small", 3, 0.85, 1.0),
    ]
    assert [each.variant for each in message.versions] == ["small", "large", "small"]
    quiet = endpoint_to_proto(endpoint, seen=Seen(load=EndpointLoad())).variants
    assert not any(each.HasField("answered_part") for each in quiet)
    usage = nodes_pb2.EndpointUsage(endpoint="digits", seconds=1.0, answered_by={"small": 3})
    (found,) = usages_of(nodes_pb2.Heartbeat(endpoints=[usage]))
    assert found.answered_by == {"small": 3}


def test_what_a_node_says_of_inputs_is_left_out_where_it_makes_no_sense() -> None:
    def heard(**changes: Any) -> int:
        fine: dict[str, Any] = {
            "version": 3,
            "rows": 500,
            "reference_rows": 500,
            "features": 1,
            "drifted": True,
            "bound": 0.2,
        }
        farthest = changes.pop("farthest", [("x", 0.4)])
        said = common_pb2.InputDrift(**(fine | changes))
        for name, distance in farthest:
            said.farthest.add(name=name, distance=distance)
        usage = nodes_pb2.EndpointUsage(endpoint="a", seconds=1.0, inputs=[said])
        (found,) = usages_of(nodes_pb2.Heartbeat(endpoints=[usage]))
        return len(found.inputs)

    assert heard() == 1
    assert heard(rows=0, farthest=[]) == 1
    assert heard(farthest=[]) == 0
    assert heard(bound=math.nan) == 0
    assert heard(farthest=[("x", 1.5)]) == 0
    assert heard(farthest=[("x" * 65, 0.5)]) == 0
    assert heard(farthest=[("x", 0.5)] * 9) == 0
    said = common_pb2.InputDrift(version=1, bound=0.2)
    usage = nodes_pb2.EndpointUsage(endpoint="a", seconds=1.0, inputs=[said] * 1000)
    (found,) = usages_of(nodes_pb2.Heartbeat(endpoints=[usage]))
    assert len(found.inputs) == 32

"""What the broker wants, from the wire into the types of the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from tiercel.core.jobs import JobSpec
from tiercel.core.shares import AcceleratorShare
from tiercel.core.wire import from_proto
from tiercel.trainer_agent.deliveries.copies import PlacedFiles
from tiercel.trainer_agent.disk.names import is_place, is_plain
from tiercel.trainer_agent.inference_server.endpoint_shares import EndpointTerms, beside_training
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.models.served import WantedVersions
from tiercel.trainer_agent.models.variants import Place
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.reconciler import WantedRun
from tiercel.v1 import common_pb2, nodes_pb2

_MessageT = TypeVar("_MessageT", bound=Message)


def wanted_run(run: nodes_pb2.WantedRun) -> WantedRun:
    """What the reconciler has to know of a run."""
    return WantedRun(_share(run.share), run.stop, run.carry, run.finish)


def run_order(wanted: nodes_pb2.WantedRun, is_delivered: Callable[[str], bool]) -> RunOrder:
    """What to start a run with.

    Raises:
        InvalidSpecError: Its spec says something that this version does not know.
    """
    spec = from_proto(JobSpec, wanted.spec)
    open_tiers = tuple(
        tier
        for number, tier in enumerate(spec.tiers, start=1)
        if number not in wanted.delivered_tiers and not is_delivered(f"{wanted.job_id}-tier-{number}")
    )
    return RunOrder(
        wanted.run_id,
        wanted.job_id,
        spec,
        _share(wanted.share),
        open_tiers,
        transferred=bool(wanted.carried_run_id),
        retried=wanted.retried,
        script_sha256=wanted.script_sha256,
        warm_start=wanted.warm_start_job_id,
        tenant=wanted.tenant,
    )


def endpoint_terms(wanted: nodes_pb2.WantedState, node_cores: float) -> EndpointTerms:
    """What the inference server is told of endpoints."""
    shares = {each.endpoint: _cpu_share(each.share) for each in wanted.endpoints if each.HasField("share")}
    objectives = {each.endpoint: each.objective_seconds for each in wanted.endpoints if each.objective_seconds > 0}
    training = [run.spec.resources.cpu_cores for run in wanted.runs if not run.stop]
    return EndpointTerms(beside_training(shares, training, node_cores), objectives)


def wanted_versions(wanted: nodes_pb2.WantedState) -> dict[Place, WantedVersions]:
    """What is wanted of models; names that cannot be folders are left out, as no delivery has made them."""
    return {
        Place(each.endpoint, each.variant): WantedVersions(each.version, frozenset(each.kept_versions))
        for each in wanted.models
        if is_place(each.endpoint, each.variant)
    }


def wanted_files(
    wanted: nodes_pb2.WantedState,
) -> tuple[frozenset[PlacedFiles], frozenset[PlacedFiles], frozenset[PlacedFiles]]:
    """The versions that this node shall have of others, those that it shall send, and the first that nobody waits for.

    Bad names are left out.
    """
    copies, sends, paced = set(), set(), set()
    for each in wanted.models:
        place = Place(each.endpoint, each.variant)
        if is_place(each.endpoint, each.variant):
            for files in each.copies:
                copies.add(found := PlacedFiles(place, files.version, files.sha256))
                if each.paced and not files.delivery_id:
                    paced.add(found)
            sends |= {
                PlacedFiles(place, files.version, files.sha256, files.delivery_id)
                for files in each.sends
                if not files.delivery_id or is_plain(files.delivery_id)
            }
    return frozenset(copies), frozenset(sends), frozenset(paced)


def copied(part: _MessageT) -> _MessageT:
    """A part of a message without the rest, which it would keep in memory."""
    copy = type(part)()
    copy.CopyFrom(part)
    return copy


def _share(share: common_pb2.Share) -> Share:
    return Share(_cpu_share(share), tuple(map(_accelerator_share, share.accelerators)))


def _accelerator_share(share: common_pb2.AcceleratorShare) -> AcceleratorShare:
    fraction = share.fraction if 0 < share.fraction <= 1 else 1.0
    return AcceleratorShare(share.id, fraction, share.memory_bytes, share.cap if 0 < share.cap <= 1 else None)


def _cpu_share(share: common_pb2.Share) -> CpuShare:
    weight = share.cpu_weight if 0 < share.cpu_weight <= 1 else 1.0
    return CpuShare(weight, share.cpu_cap_cores if share.cpu_cap_cores > 0 else None)

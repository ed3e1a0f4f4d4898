"""The service that says which policy decides; see ``protos/tiercel/v1/policy.proto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.scheduling.registry import policy_names
from tiercel.core.wire import to_proto
from tiercel.v1 import policy_pb2, policy_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.actors.policy_choice import PolicyKeeper
    from tiercel.broker.actors.scheduler import SchedulerActor
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.api.auth import Context


class PolicyService(policy_pb2_grpc.PolicyServiceServicer):
    """Translates calls."""

    def __init__(self, keeper: PolicyKeeper, scheduler: SchedulerActor, supervisor: Supervisor) -> None:
        self._keeper = keeper
        self._scheduler = scheduler
        self._supervisor = supervisor

    async def GetPolicy(self, request: policy_pb2.GetPolicyRequest, context: Context) -> policy_pb2.GetPolicyResponse:
        """Tell which one decides."""
        choice = to_proto(self._keeper.choice, policy_pb2.PolicyChoice)
        return policy_pb2.GetPolicyResponse(policy=choice, names=policy_names())

    async def SetPolicy(self, request: policy_pb2.SetPolicyRequest, context: Context) -> policy_pb2.SetPolicyResponse:
        """Have another one decide."""
        choice = await self._keeper.set(request.name, dict(request.options), self._scheduler, self._supervisor)
        return policy_pb2.SetPolicyResponse(policy=to_proto(choice, policy_pb2.PolicyChoice))

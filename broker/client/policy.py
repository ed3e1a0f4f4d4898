"""Which policy decides, asked and changed on a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.policies import PolicyChoice
from tiercel.core.wire import from_proto
from tiercel.v1 import policy_pb2, policy_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.client.connection import Connection


async def get_policy(connection: Connection) -> tuple[PolicyChoice, tuple[str, ...]]:
    """The policy that decides, and the names of all that there are."""
    stub = policy_pb2_grpc.PolicyServiceStub(connection.channel)
    answer = await connection.call(stub.GetPolicy, policy_pb2.GetPolicyRequest())
    return from_proto(PolicyChoice, answer.policy), tuple(answer.names)


async def set_policy(connection: Connection, name: str, options: Mapping[str, str]) -> PolicyChoice:
    """Have another policy decide from now on, with the operator's token.

    Raises:
        InvalidSpecError: There is no such policy or option, or it cannot plan for what is the case; nothing changes.
    """
    stub = policy_pb2_grpc.PolicyServiceStub(connection.channel)
    request = policy_pb2.SetPolicyRequest(name=name, options=dict(options))
    answer = await connection.call(stub.SetPolicy, request)
    return from_proto(PolicyChoice, answer.policy)

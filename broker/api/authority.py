"""The service by which the operator replaces the broker's authority; see ``protos/tiercel/v1/authority.proto``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.access.audit import Subject
from tiercel.core.audit import DONE
from tiercel.core.errors import TiercelError, wrong_field
from tiercel.core.wire import to_proto
from tiercel.v1 import authority_pb2, authority_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.access.audit import Audit
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.api.auth import Context
    from tiercel.broker.trust.rotation import Rotation
    from tiercel.core.authority import AuthorityState

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0
_OURSELVES = "broker"


class AuthorityService(authority_pb2_grpc.AuthorityServiceServicer):
    """Translates the operator's calls.

    Args:
        rotation: Decides; None where the broker listens on this machine alone.
    """

    def __init__(self, rotation: Rotation | None) -> None:
        self._rotation = rotation

    async def GetAuthority(
        self, request: authority_pb2.GetAuthorityRequest, context: Context
    ) -> authority_pb2.GetAuthorityResponse:
        """Tell how it stands."""
        return authority_pb2.GetAuthorityResponse(authority=_state(self._open().state()))

    async def RotateAuthority(
        self, request: authority_pb2.RotateAuthorityRequest, context: Context
    ) -> authority_pb2.RotateAuthorityResponse:
        """Take the first step."""
        return authority_pb2.RotateAuthorityResponse(authority=_state(await self._open().begin()))

    async def FinishRotation(
        self, request: authority_pb2.FinishRotationRequest, context: Context
    ) -> authority_pb2.FinishRotationResponse:
        """Take the second step."""
        state = await self._open().finish(force=request.force)
        return authority_pb2.FinishRotationResponse(authority=_state(state))

    def _open(self) -> Rotation:
        if self._rotation is None:
            raise wrong_field(
                "listen",
                "this broker listens on its own machine alone, and needs no authority; start it again with "
                "'tiercel up --listen ADDRESS'",
            )
        return self._rotation


async def finish_in_time(rotation: Rotation, audit: Audit, clock: Clock) -> None:
    """Take the second step of each rotation once all nodes have turned and the time is over, for ever."""
    while True:
        if rotation.is_due():
            try:
                await _finish(rotation, audit)
            except TiercelError as error:  # the operator was faster, or the disk takes nothing now
                logger.warning("the rotation of the authority is not finished now: %s", error.message)
        await clock.sleep(_LOOK_SECONDS)


async def _finish(rotation: Rotation, audit: Audit) -> None:
    """As when the operator asks for it: written down first."""
    subject = Subject(_OURSELVES, "", "", "AuthorityService.FinishRotation", "", rotation.state().pin)
    number, outcome = await audit.begin(subject), "cancelled"
    try:
        await rotation.finish()
        outcome = DONE
    except TiercelError as error:
        outcome = error.code
        raise
    finally:
        audit.end(number, subject, outcome)


def _state(state: AuthorityState) -> authority_pb2.AuthorityState:
    return to_proto(state, authority_pb2.AuthorityState)

"""Signs a person in from a terminal: the provider gives a code, and the person enters it in a browser anywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiercel.broker.access.people.site import ProviderSite, problem_of
from tiercel.broker.access.people.tokens import MAX_CHARACTERS, has_form
from tiercel.core.errors import NotAuthenticatedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
# Between two questions whether the person has signed in; the provider may ask for more, within reason.
PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0
# A code counts for as long as the provider says, and no longer than this.
LONGEST_SECONDS = 1800.0
_MAX_CODE_CHARACTERS = 64
_MAX_SECRET_CHARACTERS = 16_000


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a person needs to sign in."""

    address: str  # where to go
    code: str  # what to enter there
    device_code: str = field(repr=False)  # what asks whether that was done
    pause_seconds: float  # between two questions
    seconds: float  # for how long it counts


@dataclass(frozen=True, slots=True)
class SignedIn:
    """What a provider gave."""

    token: str = field(repr=False)  # says who it is
    renewal: str = field(repr=False)  # gets the next one; empty for none
    expires_at: float  # until when the token is good, in seconds since the Unix epoch


class DeviceSignIn:
    """Signs one person in (RFC 8628).

    Args:
        issuer: URL of the provider.
        scope: What is asked for; ``openid`` is among it.
        sleep: Lets seconds pass.
        clock: Seconds, monotonic.

    Raises:
        InvalidSpecError: The URL cannot be a provider's.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        scope: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site = ProviderSite(issuer)
        self._client_id = client_id
        self._scope = scope
        self._sleep = sleep
        self._clock = clock

    async def invite(self) -> Invitation:
        """Ask for a code.

        Raises:
            UnavailableError: The provider does not answer, or gives none.
        """
        async with self._site.asking() as asking:
            address = asking.address_in(await asking.about(), "device_authorization_endpoint")
            answer = await asking.send(address, {"client_id": self._client_id, "scope": self._scope})
        if "error" in answer:
            raise UnavailableError(f"the provider gives no code: {_reason(answer)}")
        where, code, device_code = (answer.get(name) for name in ("verification_uri", "user_code", "device_code"))
        if (
            not isinstance(where, str)
            or problem_of(where)
            or not _is_text(code, _MAX_CODE_CHARACTERS)
            or not _is_text(device_code, _MAX_SECRET_CHARACTERS)
        ):
            raise UnavailableError("the provider's answer has no address (https) and code that could be shown")
        pause = min(max(_seconds(answer, "interval", PAUSE_SECONDS), 1.0), LONGEST_PAUSE_SECONDS)
        seconds = min(_seconds(answer, "expires_in", LONGEST_SECONDS), LONGEST_SECONDS)
        return Invitation(where, str(code), str(device_code), pause, seconds)

    async def wait(self, invitation: Invitation) -> SignedIn:
        """Wait until the person has signed in.

        Raises:
            NotAuthenticatedError: The person did not, or may not.
        """
        pause, until = invitation.pause_seconds, self._clock() + invitation.seconds
        while self._clock() < until:
            await self._sleep(pause)
            try:
                answer = await self._ask({"grant_type": _DEVICE_CODE, "device_code": invitation.device_code})
            except UnavailableError:
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            error = answer.get("error")
            if error is None:
                return _signed_in(answer)
            if error == "slow_down":
                pause = min(pause + PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            elif error != "authorization_pending":
                raise NotAuthenticatedError(f"you are not signed in: {_reason(answer)}")
        raise NotAuthenticatedError(
            f"nobody signed in with the code within {math.ceil(invitation.seconds / 60)} minutes"
        )

    async def renew(self, signed_in: SignedIn) -> SignedIn:
        """Get the next token.

        Raises:
            NotAuthenticatedError: There is none: the person has to sign in again.
            UnavailableError: The provider does not answer.
        """
        answer = await self._ask({"grant_type": "refresh_token", "refresh_token": signed_in.renewal})
        if "error" in answer:
            raise NotAuthenticatedError(f"the token cannot be renewed, sign in again: {_reason(answer)}")
        return _signed_in(answer, signed_in.renewal)

    async def _ask(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        async with self._site.asking() as asking:
            address = asking.address_in(await asking.about(), "token_endpoint")
            return await asking.send(address, {**form, "client_id": self._client_id})


def _signed_in(answer: Mapping[str, Any], renewal: str = "") -> SignedIn:
    token, following = answer.get("id_token"), answer.get("refresh_token", renewal)
    if not _is_text(token, MAX_CHARACTERS) or not has_form(str(token)) or not isinstance(following, str):
        raise NotAuthenticatedError(
            f"the provider gave no token that says who you are (id_token) of up to {MAX_CHARACTERS} characters; "
            "openid has to be in --scope"
        )
    payload = str(token).split(".")[1]
    try:
        # Nobody is let in by this: the broker verifies it.
        expires_at = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise NotAuthenticatedError("the provider's token does not say until when it is good (exp)") from None
    return SignedIn(str(token), following if len(following) <= _MAX_SECRET_CHARACTERS else "", expires_at)


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and value.isprintable()


def _seconds(answer: Mapping[str, Any], name: str, default: float) -> float:
    value = answer.get(name)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_SECONDS
    return float(value) if fits and value is not None else default


def _reason(answer: Mapping[str, Any]) -> str:
    words = [answer.get("error"), answer.get("error_description")]
    return ", ".join(word[:200] for word in words if isinstance(word, str) and word.isprintable()) or "without a reason"

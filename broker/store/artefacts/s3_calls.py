"""Calls to a bucket, tried again while what fails may pass; what a library raises becomes a sentence of ours."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from tiercel.broker.store.artefacts import failures
from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKOFF: Final = Backoff(first_seconds=0.2, longest_seconds=5.0)
_NO_CREDENTIALS: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}
)
_CANNOT_BE: Final = frozenset({"NoRegionError", "ProfileNotFound", "ConfigParseError", "ParamValidationError"})
_BAD_GATEWAYS: Final = frozenset({429, 500, 502, 503, 504})
_NO_ROOM: Final = 507
# A store's code, as far as it is repeated.
_CODE: Final = re.compile(r"[A-Za-z0-9.]{1,60}")


class MissingError(Exception):
    """There is nothing by that name."""


class TakenError(Exception):
    """There is something by that name already, which was not to be."""


class Trying:
    """Takes what its ``with`` block raises as a failure that may pass; whoever goes on then pauses and tries again.

    Args:
        note: Told what failed; raises what will not pass: MissingError, TakenError or a TiercelError.
    """

    def __init__(self, note: Callable[[Exception], None]) -> None:
        self._note = note

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, (TiercelError, MissingError, TakenError)):
            return False
        self._note(error)  # of libraries of which nobody says what they raise
        return True


class Calls:
    """Calls to one bucket until a deadline that whoever makes them holds.

    Args:
        where: What people know the store by.

    Attributes:
        client: The library's, once there is one.
        problem: What went wrong last, in a few words; empty for nothing.
    """

    def __init__(self, where: str, bucket: str) -> None:
        self.client: Any = None
        self.problem = ""
        self._where = where
        self._bucket = bucket
        self._attempts = Attempts(_BACKOFF)

    async def do(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client for the bucket, again while what fails may pass.

        Raises:
            MissingError: There is no such object.
            TakenError: There is one.
            TiercelError: The store refuses.
        """
        while True:
            with self.trying():
                answer = await getattr(self.client, method)(Bucket=self._bucket, **arguments)
                self._attempts.reset()
                return answer
            await self.pause()

    def trying(self) -> Trying:
        """A block in which what fails may pass: see :class:`Trying`."""
        return Trying(self._note)

    async def pause(self) -> None:
        """Wait before the next try."""
        await asyncio.sleep(self._attempts.next_seconds())

    def _note(self, error: Exception) -> None:
        self.problem = self._passing(error)

    def _passing(self, error: Exception) -> str:
        """What went wrong, in a few words; raises what will not pass."""
        name = type(error).__name__
        if name in _NO_CREDENTIALS:
            raise failures.refused(self._where, "the broker has no credentials for it") from None
        if name in _CANNOT_BE:
            raise failures.refused(self._where, f"the configuration of its library is wrong ({name})") from None
        answer = getattr(error, "response", None)
        if not isinstance(answer, dict):
            return name
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = str(answer.get("Error", {}).get("Code", ""))
        words = code if _CODE.fullmatch(code) else f"status {status}"
        if code == "NoSuchBucket":
            raise failures.refused(self._where, "there is no such bucket") from None
        if status == 404:
            raise MissingError
        if status in {409, 412}:
            raise TakenError
        if status in {401, 403}:
            raise failures.refused(self._where, f"its credentials do not open it ({words})") from None
        if status == _NO_ROOM:
            raise failures.full(self._where, words) from None
        if status in _BAD_GATEWAYS or status < 300 or "Timeout" in code:
            return words
        raise failures.refused(self._where, words) from None

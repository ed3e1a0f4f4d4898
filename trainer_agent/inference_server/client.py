"""What the agent asks of the inference server, over the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.inference_server.endpoint_shares import EndpointTerms
from tiercel.trainer_agent.inference_server.endpoint_usage import ServingUsage, usage_from_json

_READY: Final = aiohttp.ClientTimeout(total=2.0)
_INDEX: Final = aiohttp.ClientTimeout(total=5.0)
# For one load; verification included.
_LOAD: Final = aiohttp.ClientTimeout(total=120.0)
_RETRY_SECONDS: Final = 0.1
_TRY_AGAIN: Final = frozenset({503, 504})
_OK: Final = 200
_NOT_FOUND: Final = 404
_REASON_LENGTH: Final = 300


async def _at_once() -> None:
    """Nothing is waited for."""


class ServingUnreachableError(Exception):
    """Nothing answers there now; the message says what happened."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A version that answers, or one that does not and why."""

    model: str  # its model's name
    version: int  # its number
    why_not: str = ""  # why it does not answer, in the server's words; empty of one that does


def _served(entry: Mapping[str, Any]) -> ServedModel | None:
    name, version, reason = str(entry["name"]), str(entry["version"]), str(entry.get("reason", ""))
    if not version:  # a model of which nothing was ever loaded
        return None
    if entry.get("state") == "READY":
        # One with a reason is on trial: it gets a part of the requests, and the version before it answers.
        return None if reason else ServedModel(name, int(version))
    is_refused = entry.get("state") == "UNAVAILABLE" and reason
    return ServedModel(name, int(version), reason[:_REASON_LENGTH]) if is_refused else None


class ServingClient:
    """Talks to the node's inference server, wherever it is at the moment.

    Args:
        session: Connections.
        address: Where it answers, ``host:port``, or empty while it does not.
        wait_seconds: How long a load waits for a server that is down.
        token: What operators of the server send, or empty where nobody has to send anything.
        may_load: Waits until something may be loaded; raises DeliveryFailedError where that does not come.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: Callable[[], str],
        *,
        wait_seconds: float = 60.0,
        token: Callable[[], str] = str,
        may_load: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._may_load = may_load
        self._token = token
        self._session = session
        self._address = address
        self._wait_seconds = wait_seconds

    async def load(self, model: str, version: int | None = None) -> str:
        """Have a version of a model verified, loaded, warmed and put in charge.

        Of an endpoint with variants: have read which they are.

        Args:
            model: Its name.
            version: Its number, which also brings back one that was rolled back; None for the one that is chosen in
                its folder, or the newest.

        Returns:
            SHA-256 of the ONNX file that answers now, hexadecimal; empty of an endpoint with variants.

        Raises:
            DeliveryFailedError: The server refused it, or did not come back in time.
        """
        await self._may_load()
        give_up_at = asyncio.get_running_loop().time() + self._wait_seconds
        while True:
            try:
                parameters = {} if version is None else {"version": str(version)}
                answer = await self._post_once(f"{model}/load", {"parameters": parameters} if parameters else {})
                return _sha256_in(answer)
            except ServingUnreachableError as error:
                if asyncio.get_running_loop().time() > give_up_at:
                    raise DeliveryFailedError(
                        f"The inference server did not answer for {self._wait_seconds:g} s ({error}); see serving.log "
                        "in the agent's state directory."
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS)

    async def unload(self, model: str) -> None:
        """Have a model answer no more; one that is not loaded does not.

        Raises:
            DeliveryFailedError: The server refused, or does not answer.
        """
        try:
            await self._post_once(f"{model}/unload", {}, also_fine=_NOT_FOUND)
        except ServingUnreachableError as error:
            raise DeliveryFailedError(f"The inference server does not answer: {error}.") from error

    async def is_ready(self, address: str) -> bool:
        """Whether the server at ``address`` says that it is ready."""
        try:
            async with self._session.get(f"http://{address}/v2/health/ready", timeout=_READY) as response:
                return response.status == _OK
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def served(self, address: str) -> tuple[ServedModel, ...]:
        """Versions that answer, and those of which the server says why they do not, sorted.

        Raises:
            ServingUnreachableError: Nothing answers, or something that is not an inference server.
        """
        url = f"http://{address}/v2/repository/index"
        try:
            async with self._session.post(url, json={}, headers=self._headers(), timeout=_INDEX) as response:
                if response.status != _OK:
                    raise ServingUnreachableError(f"{url} answered {response.status}")
                models = await response.json(content_type=None)
            found = [each for each in map(_served, models) if each is not None]
        except (aiohttp.ClientError, TimeoutError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ServingUnreachableError(str(error) or type(error).__name__) from error
        return tuple(sorted(found, key=lambda each: (each.model, each.version)))

    async def usage(self, address: str, since: float = 0.0) -> ServingUsage:
        """What the requests of each endpoint took so far.

        Args:
            address: The server's.
            since: Endpoints that nobody asked anything since that uptime, in seconds, are left out; 0 for all.

        Raises:
            ServingUnreachableError: Nothing answers, or a server that does not count.
        """
        url = f"http://{address}/v2/usage?since={since!r}"
        try:
            async with self._session.get(url, timeout=_INDEX) as response:
                if response.status != _OK:
                    raise ServingUnreachableError(f"{url} answered {response.status}")
                content = await response.json(content_type=None)
            return usage_from_json(content)
        except (aiohttp.ClientError, TimeoutError, ValueError, TypeError, KeyError) as error:
            raise ServingUnreachableError(str(error) or type(error).__name__) from error

    async def declare_shares(self, address: str, terms: EndpointTerms) -> None:
        """Say what endpoints may use from now on, and how fast they are wanted; those not named are not limited.

        Raises:
            ServingUnreachableError: Nothing answers, or the server does not take it.
        """
        url = f"http://{address}/v2/shares"
        models: dict[str, dict[str, float | None]] = {
            name: {"cpu_weight": share.weight, "cpu_cap_cores": share.cap_cores} for name, share in terms.shares.items()
        }
        for name, seconds in terms.objectives.items():
            models.setdefault(name, {})["objective_seconds"] = seconds
        try:
            async with self._session.post(
                url, json={"models": models}, headers=self._headers(), timeout=_INDEX
            ) as response:
                if response.status != _OK:
                    raise ServingUnreachableError(_error_in(await response.text()))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServingUnreachableError(str(error) or type(error).__name__) from error

    def _headers(self) -> dict[str, str]:
        """What says that an operator asks."""
        token = self._token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _post_once(self, path: str, content: dict[str, Any], *, also_fine: int = _OK) -> str:
        """Ask something of the model repository; returns the answer's body."""
        address = self._address()
        if not address:
            raise ServingUnreachableError("it is not running")
        url = f"http://{address}/v2/repository/models/{path}"
        try:
            async with self._session.post(url, json=content, headers=self._headers(), timeout=_LOAD) as response:
                body = await response.text()
        except TimeoutError as error:
            raise DeliveryFailedError(
                f"The inference server did not load the model within {_LOAD.total:g} s."
            ) from error
        except aiohttp.ClientError as error:
            raise ServingUnreachableError(str(error) or type(error).__name__) from error
        if response.status in {_OK, also_fine}:
            return body
        if response.status in _TRY_AGAIN:
            raise ServingUnreachableError(_error_in(body))
        raise DeliveryFailedError(_error_in(body))


def _sha256_in(body: str) -> str:
    try:
        return str(json.loads(body)["sha256"])
    except (ValueError, TypeError, KeyError):
        return ""


def _error_in(body: str) -> str:
    """The sentence in an answer of the protocol, ``{"error": "..."}``, or the answer itself."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return body.strip()[:500] or "the inference server refused the model without saying why"

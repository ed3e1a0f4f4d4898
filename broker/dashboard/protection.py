"""What each request and answer goes through: by which name we are called, from which page, and what browsers may do.

A page of somebody else's must not act in the name of who is signed in here, nor read what they may: the cookie is for
our own pages alone (``SameSite=Strict``), a name that somebody pointed at this machine (DNS rebinding) is not ours, and
what a browser says of the page that asks has to be ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tiercel.broker.api.methods import CallRefusedError
from tiercel.core.errors import NotAllowedError, TiercelError
from tiercel.core.jsonable import Json

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp.typedefs import Handler, Middleware

logger = logging.getLogger(__name__)

API = "/api/"
# Of one that is answered at once; streams bound each of their writes.
REQUEST_SECONDS = 30.0
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE = frozenset({"GET", "HEAD"})
_OUR_PAGES = frozenset({"same-origin", "none"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STRICT_TRANSPORT = "max-age=31536000"


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer that nobody keeps."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    told = {"Cache-Control": "no-store", **(headers or {})}
    return web.Response(text=text, status=status, content_type="application/json", headers=told)


def text_answer(text: str) -> web.Response:
    """Plain text, which no browser takes for a page."""
    return web.Response(text=text, headers={"Cache-Control": "no-store"})


def error_answer(code: str, message: str, status: int, field: str = "", seconds: float | None = None) -> web.Response:
    """An error of the catalogue."""
    told: Json = {"code": code, "message": message, **({"field": field} if field else {})}
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))} if seconds is not None else {}
    return json_answer(told, status, headers)


def protection(names: Collection[str]) -> Middleware:
    """Refuses what does not come from our own pages or from programs, and answers with errors of the catalogue.

    Args:
        names: By which this machine is called, beside those that it has for itself.
    """
    known = LOOPBACK_NAMES | {name.lower() for name in names}

    @web.middleware
    async def protect(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _host_of(request) not in known:
            message = "this is not a name of the broker; use the address that 'tiercel dashboard' prints"
            return error_answer("not_found", message, 421)
        try:
            _check_page(request)
            return await handler(request)
        except TiercelError as error:
            return error_answer(error.code, error.message, error.http_status, error.field)
        except CallRefusedError as error:
            return error_answer(error.code, error.message, error.http_status, error.field, error.seconds)
        except web.HTTPException as error:
            return error_answer("not_found" if error.status == 404 else "invalid_request", error.reason, error.status)
        except TimeoutError:
            return error_answer("deadline_exceeded", f"this took longer than {REQUEST_SECONDS:g} s; try again", 504)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            logger.exception("the dashboard failed on a defect of the broker")
            message = f"the broker failed on a defect of its own ({type(error).__name__}); its log has the details"
            return error_answer("internal", message, 500)

    return protect


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """What every answer says to browsers."""
    response.headers.update(_HEADERS)
    response.headers["Server"] = "tiercel"
    if request.secure:
        response.headers["Strict-Transport-Security"] = _STRICT_TRANSPORT


def _host_of(request: web.Request) -> str:
    """The name by which we are called, without port and brackets."""
    host = request.headers.get("Host", "").lower()
    name, _, rest = host.partition("]") if host.startswith("[") else host.partition(":")
    del rest
    return name.removeprefix("[").removesuffix(".")


def _check_page(request: web.Request) -> None:
    """Refuse what a page of somebody else's asks; its browser says which page that is, and programs say nothing."""
    if request.method in _SAFE and not request.path.startswith(API):
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    own = f"{request.scheme}://{request.headers.get('Host', '')}".lower()
    is_ours = site in _OUR_PAGES if site is not None else origin is None or origin.lower() == own
    if not is_ours:
        raise NotAllowedError("this was asked by a page of another site; open the dashboard itself")

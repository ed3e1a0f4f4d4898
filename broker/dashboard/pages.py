"""The files that browsers show."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from aiohttp import web

from tiercel.core.errors import NotFoundError

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
_PATH: Final = re.compile(r"[A-Za-z0-9_-]+([./-][A-Za-z0-9_-]+)*")
_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


async def show_index(request: web.Request) -> web.Response:
    """The page, whatever it is called by: what it shows stands in the address' fragment."""
    if "." in request.path.rpartition("/")[2] or request.path.startswith("/api/"):
        raise NotFoundError("there is no such page; begin at /")
    return _file(request, INDEX)


async def show_file(request: web.Request) -> web.Response:
    """A file of the pages."""
    return _file(request, request.match_info["path"])


def _file(request: web.Request, path: str) -> web.Response:
    place = STATIC / path
    kind = _KINDS.get(place.suffix)
    if kind is None or not _PATH.fullmatch(path) or not place.is_file():
        raise NotFoundError(f"there is no page {path[:80]!r}")
    content = place.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # What is vendored has its version in its name; all else is asked for anew, and is mostly the same.
    headers = {"ETag": tag, "Cache-Control": _FOR_EVER if path.startswith("vendor/") else "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=content, headers={**headers, "Content-Type": kind})

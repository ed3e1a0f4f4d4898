"""A hub for data sets, as huggingface_hub asks one: the few calls that listing and reading take."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
TOKEN: Final = "hf_operator"


@dataclass
class HubServer:
    """Has the data set team/books."""

    port: int = 0  # where it listens, on 127.0.0.1
    files: dict[str, bytes] = field(default_factory=dict)  # contents by path
    is_private: bool = False  # whether it takes a token
    heard: list[str] = field(default_factory=list)  # tokens that came, empty ones too
    answers: list[int] = field(default_factory=list)  # statuses to answer with first
    is_endless: bool = False  # whether its list of files has no end

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def application(self) -> web.Application:
        """What it answers."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get("/api/datasets/team/books", self._repository)
        application.router.add_get("/api/datasets/team/books/revision/{revision:.+}", self._repository)
        application.router.add_get("/api/datasets/team/books/tree/{revision}", self._tree)
        application.router.add_get("/api/datasets/team/books/tree/{revision}/{path:.*}", self._tree)
        application.router.add_post("/api/datasets/team/books/paths-info/{revision}", self._paths)
        application.router.add_get("/datasets/team/books/resolve/{revision}/{path:.+}", self._file)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.heard.append(token)
        if self.answers:
            return web.Response(status=self.answers.pop(0))
        known = "/datasets/team/books" in request.path
        if not known or (self.is_private and token != TOKEN):  # it tells nobody that there is something private
            return web.json_response({"error": "Invalid username or password."}, status=401)
        answer: web.StreamResponse = await handler(request)
        answer.headers["X-Repo-Commit"] = COMMIT
        return answer

    async def _repository(self, _: web.Request) -> web.Response:
        return web.json_response({"id": "team/books", "sha": COMMIT, "private": self.is_private, "siblings": []})

    def _entries(self, folder: str) -> list[dict[str, object]]:
        entries: dict[str, dict[str, object]] = {}
        start = f"{folder}/" if folder else ""
        for path, content in self.files.items():
            if not path.startswith(start):
                continue
            name, slash, _ = path.removeprefix(start).partition("/")
            oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            if slash:
                entries[name] = {"type": "directory", "path": start + name, "oid": "0" * 40, "size": 0}
            else:
                entries[name] = {"type": "file", "path": path, "oid": oid, "size": len(content)}
        return list(entries.values())

    async def _tree(self, request: web.Request) -> web.Response:
        if self.is_endless:
            page = int(request.query.get("cursor", "0"))
            entries = [
                {"type": "file", "path": f"{page:06}-{number:06}{'x' * 200}", "oid": "0" * 40, "size": 1}
                for number in range(5000)
            ]
            return web.json_response(
                entries, headers={"Link": f'<{request.url.with_query(cursor=page + 1)}>; rel="next"'}
            )
        folder = request.match_info.get("path", "")
        entries = self._entries(folder)
        if request.query.get("recursive", "").lower() == "true":
            folders = [str(entry["path"]) for entry in entries if entry["type"] == "directory"]
            while folders:
                below = self._entries(folders.pop())
                entries += below
                folders += [str(entry["path"]) for entry in below if entry["type"] == "directory"]
        if not entries:
            return web.json_response({"error": "x"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        return web.json_response(entries)

    async def _paths(self, request: web.Request) -> web.Response:
        if request.content_type == "application/json":
            wanted = [str(path) for path in (await request.json())["paths"]]
        else:
            wanted = [str(path) for path in (await request.post()).getall("paths", [])]
        folders = {path.rpartition("/")[0] for path in wanted}
        found = [entry for folder in folders for entry in self._entries(folder) if entry["path"] in wanted]
        return web.json_response(found)

    async def _file(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["path"])
        if content is None:
            return web.json_response({"error": "x"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        part = request.http_range
        headers = {"ETag": f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'}
        if part.start is None:
            return web.Response(body=content, headers=headers)
        stop = min(part.stop or len(content), len(content))
        headers["Content-Range"] = f"bytes {part.start}-{stop - 1}/{len(content)}"
        return web.Response(status=206, body=content[part.start : stop], headers=headers)


@asynccontextmanager
async def hub_server() -> AsyncIterator[HubServer]:
    """A hub of its own."""
    server = HubServer()
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()

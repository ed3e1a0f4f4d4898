"""What a browser or a script asks the dashboard of a broker, over real HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

API = "/api/v1/"


class Answer(NamedTuple):
    """What came back."""

    status: int
    content: Any
    headers: Any

    @property
    def code(self) -> str:
        return str(self.content["code"])


class Browser:
    """Keeps cookies as browsers do."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(self, verb: str, path: str, **options: Any) -> Answer:
        """A request; what is JSON comes back as such."""
        async with self.session.request(verb, f"{self.url}{path}", **options) as answer:
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, await answer.json() if is_json else await answer.text(), answer.headers)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.ask("GET", f"{API}{path}", **options)

    async def post(self, path: str, content: Any = None, **options: Any) -> Answer:
        return await self.ask("POST", f"{API}{path}", json={} if content is None else content, **options)

    async def sign_in(self, token: str) -> None:
        answer = await self.post("session", {"token": token})
        assert answer.status == 200, answer


@contextlib.asynccontextmanager
async def browser_of(address: str, token: str = "") -> AsyncIterator[Browser]:
    """A browser at a dashboard in the clear; signed in where there is a token."""
    jar = aiohttp.CookieJar(unsafe=True)  # of hosts that are addresses too
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(20)) as session:
        browser = Browser(session, f"http://{address}")
        if token:
            await browser.sign_in(token)
        yield browser

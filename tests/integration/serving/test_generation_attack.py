"""Hundreds of callers of eight rows, of every kind, and a swap among them: nothing is wrong, nothing is left over."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from testing import onnx_models
from testing.generating import Served, exported, greedy
from testing.serving_process import DEADLINE, ServingProcess, serving, wait_for

CALLERS, TOKENS = 200, 24
PROMPTS = [[5, 9], [3], [7, 1, 4, 4, 2, 8], [(3 * place) % 61 for place in range(150)]]  # the last one is long
BEFORE_SWAP = 20
KINDS, SLOW = 10, 6  # of ten callers one takes nothing before all others are done
LEFT_OVER = (
    *(f'tiercel_generation_rows{{state="{state}"}}' for state in ("begun", "waiting")),
    "tiercel_generation_cache_bytes",
)


@dataclass
class Attack:
    """What callers do, and what came of it."""

    server: ServingProcess
    wanted: dict[tuple[str, int], list[int]]  # tokens by version and prompt
    wrong: list[object] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    some_are_answered: asyncio.Event = field(default_factory=asyncio.Event)
    others_ended: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, how: str) -> str:
        return f"http://{self.server.http}/v2/models/gpt/{how}"

    def body(self, number: int, **more: Any) -> dict[str, Any]:
        return {"input_ids": PROMPTS[number % len(PROMPTS)], "max_tokens": TOKENS, **more}

    def note(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        if self.outcomes["version 1"] >= BEFORE_SWAP:
            self.some_are_answered.set()

    def judge(self, number: int, status: int, content: Any) -> None:
        """An answer is right to the last token, or says in a sentence that there is no room now."""
        if status == 200 and content["finish_reason"] == "length":
            key = (content["model_version"], number % len(PROMPTS))
            is_right = content["output_ids"] == self.wanted[key]
            self.note(f"version {key[0]}")
        else:
            is_right = status == 503 and "try again in a moment" in content["error"]
            self.note(str(status))
        if not is_right:
            self.wrong.append((number, status, content))

    async def whole(self, session: aiohttp.ClientSession, number: int) -> None:
        async with session.post(self.url("generate"), json=self.body(number)) as reply:
            self.judge(number, reply.status, await reply.json())

    async def stream(self, session: aiohttp.ClientSession, number: int, *, is_slow: bool = False) -> None:
        async with session.post(self.url("generate_stream"), json=self.body(number)) as reply:
            if is_slow:
                await self.others_ended.wait()
            content = await reply.read()
            if reply.status != 200:
                self.judge(number, reply.status, json.loads(content))
                return
            events = [json.loads(line[6:]) for line in content.splitlines() if line]
            tokens = [token for event in events for token in event["output_ids"]]
            self.judge(number, reply.status, events[-1] | {"output_ids": tokens})

    async def leave(self, session: aiohttp.ClientSession, number: int) -> None:
        """Goes after the first token."""
        async with session.post(self.url("generate_stream"), json=self.body(number, max_tokens=900)) as reply:
            await reply.content.readline()
            self.note("left")
            reply.close()

    async def leave_at_once(self, number: int) -> None:
        """Goes before anything comes back."""
        host, _, port = self.server.http.rpartition(":")
        content = json.dumps(self.body(number)).encode()
        _, writer = await asyncio.open_connection(host, int(port))
        head = b"POST /v2/models/gpt/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(content) + content)
        await writer.drain()
        writer.close()
        self.note("left")

    async def refused(self, session: aiohttp.ClientSession, number: int) -> None:
        """Asks what makes no sense, or has no time."""
        is_late = number % 2 == 0
        more = {"timeout": 1} if is_late else {"max_tokens": 10**6}
        async with session.post(self.url("generate"), json=self.body(number, **more)) as reply:
            said = (await reply.json())["error"]
            expected = {503, 504} if is_late else {400}
            self.note(str(reply.status))
            if reply.status not in expected or not said:
                self.wrong.append((number, reply.status, said))

    async def caller(self, session: aiohttp.ClientSession, number: int) -> None:
        match number % KINDS:
            case 0 | 1 | 2:
                await self.whole(session, number)
            case 3 | 4 | 5:
                await self.stream(session, number)
            case kind if kind == SLOW:
                await self.stream(session, number, is_slow=True)
            case 7:
                await self.leave(session, number)
            case 8:
                await self.leave_at_once(number)
            case _:
                await self.refused(session, number // KINDS)

    async def run(self) -> None:
        """All callers; once some of them have had their answers, another version takes the place of theirs."""
        limits = aiohttp.ClientTimeout(total=DEADLINE)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=limits, connector=connector) as session, asyncio.TaskGroup() as group:
            callers = [group.create_task(self.caller(session, number)) for number in range(CALLERS)]
            await self.some_are_answered.wait()
            assert (await asyncio.to_thread(self.server.load, "gpt")).status == 200
            callers += [group.create_task(self.caller(session, number)) for number in range(CALLERS)]
            await asyncio.wait([each for number, each in enumerate(callers) if number % KINDS != SLOW])
            self.others_ended.set()


async def test_two_hundred_callers_and_a_swap_leave_nothing_wrong_and_nothing_over(tmp_path: Path) -> None:
    (old, first), (new, second) = exported(0), exported(5)
    onnx_models.put(tmp_path / "models", "gpt", 1, first)
    wanted = {
        (version, place): greedy(model, prompt, TOKENS)
        for version, model in (("1", old), ("2", new))
        for place, prompt in enumerate(PROMPTS)
    }
    settings = {"max_generated_rows": 8, "max_waiting_rows": 100, "max_generated_tokens": 1000}
    with serving(tmp_path / "models", tmp_path, settings) as server:
        served = Served(server, old)
        served.generate({"input_ids": [1], "max_tokens": 2})
        process = psutil.Process(server.process.pid)
        open_before = process.num_fds()
        onnx_models.put(tmp_path / "models", "gpt", 2, second)
        attack = Attack(server, wanted)
        await attack.run()
        assert attack.wrong == []
        assert attack.outcomes.total() == 2 * CALLERS
        assert all(attack.outcomes[each] for each in ("version 1", "version 2", "left", "400")), attack.outcomes
        wait_for(lambda: not any(served.rows()[name] for name in LEFT_OVER), "rows and cache to be free")
        wait_for(lambda: server.index()["gpt", "1"][0] == "UNAVAILABLE", "the old version to be released")
        wait_for(lambda: process.num_fds() <= open_before, "connections to end")
        assert served.generate({"input_ids": PROMPTS[0], "max_tokens": TOKENS})["output_ids"] == wanted["2", 0]

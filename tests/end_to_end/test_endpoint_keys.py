"""An endpoint that takes keys: made, shown, rated, run out and revoked, also while the broker is dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from testing.product_use import JOB_SECONDS, client_of, digits_job, files_with, running_product, tiercel
from tiercel import Client
from tiercel.broker.client.inference import InferenceResult
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import NotAuthenticatedError, NotFoundError, RateExceededError
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

INPUTS = {"input": [[[0.0] * 8] * 8]}


async def answered(ask: Callable[[], Awaitable[InferenceResult]]) -> InferenceResult:
    """The first answer: the nodes hear of a key within about a second."""
    async with asyncio.timeout(JOB_SECONDS):
        while True:
            try:
                return await ask()
            except NotAuthenticatedError:
                await asyncio.sleep(0.05)  # a call each time, of a node that tells nobody


async def until_refused(ask: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Ask until that is refused."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await ask()
            except NotAuthenticatedError:
                return
            await asyncio.sleep(0.05)  # a call each time, of a node that tells nobody


async def test_who_has_a_key_asks_while_it_is_good_and_nobody_else(tmp_path: Path) -> None:
    async with running_product(tmp_path) as product, client_of(product) as alice:

        async def command(*arguments: str, text: str = "") -> str:
            said = await tiercel(*arguments, state_dir=product.state_dir, tenant="alice", text=text)
            assert said.exit_code == 0, said.errors
            return said.output

        job = await alice.submit(digits_job("locked", targets=(0.3,), access=EndpointAccess.KEY))
        # Before there is a model already, so that whoever shall ask can be told.
        key = (await command("key", "create", "--endpoint", "locked", "--name", "shop")).strip()
        assert (await job.wait(JOB_SECONDS)).state is JobState.COMPLETED
        with pytest.raises(NotAuthenticatedError, match="TIERCEL_KEY"):
            await alice.infer("locked", INPUTS)
        assert (await answered(lambda: alice.infer("locked", INPUTS, key=key))).version == 1
        said = await command("infer", "locked", "--key", "-", text=f"{key}\n{json.dumps(INPUTS)}")
        assert "version 1" in said
        await a_key_asks_as_often_as_was_said(alice)

        lasting, _ = await alice.keys.create("locked", seconds=60.0)
        listed = json.loads(await command("key", "ls", "--json"))
        assert {entry["id"] for entry in listed} >= {key.split("_")[2], lasting.id}
        assert key not in json.dumps(listed)
        await somebody_else_sees_nothing_of_it(product.state_dir, key)

        await command("key", "revoke", key.split("_")[2])
        await until_refused(lambda: alice.infer("locked", INPUTS, key=key), 10.0)

        await the_broker_is_dead_and_a_key_runs_out(alice, product.kill)
        await product.start()
    assert files_with(key, tmp_path) == []


async def a_key_asks_as_often_as_was_said(alice: Client) -> None:
    _, rated = await alice.keys.create("locked", per_second=1.0)

    async def ask() -> InferenceResult:
        return await alice.infer("locked", INPUTS, key=rated)

    await answered(ask)
    with pytest.raises(RateExceededError):
        await asyncio.gather(*(ask() for _ in range(20)))


async def somebody_else_sees_nothing_of_it(state_dir: Path, key: str) -> None:
    for arguments in (
        ("key", "create", "--endpoint", "locked"),
        ("key", "revoke", key.split("_")[2]),
        ("endpoints", "access", "locked", "public"),
    ):
        refused = await tiercel(*arguments, state_dir=state_dir, tenant="bob")
        assert refused.exit_code == 1
        assert "there is no" in refused.errors
    assert json.loads((await tiercel("key", "ls", "--json", state_dir=state_dir, tenant="bob")).output) == []


async def the_broker_is_dead_and_a_key_runs_out(alice: Client, kill: Callable[[], Awaitable[None]]) -> None:
    _, short = await alice.keys.create("locked", seconds=6.0)
    _, good = await alice.keys.create("locked")
    await answered(lambda: alice.infer("locked", INPUTS, key=short))
    with pytest.raises(NotFoundError):
        await alice.keys.create("nothing")
    await kill()
    await until_refused(lambda: alice.infer("locked", INPUTS, key=short), 15.0)
    assert (await alice.infer("locked", INPUTS, key=good)).version == 1

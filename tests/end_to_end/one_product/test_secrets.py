"""A secret from the command line into a script, and nowhere else."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import psutil
import pytest

from testing.product import Product, processes_of
from testing.product_use import JOB_SECONDS, client_of, digits_job, files_with, tiercel
from tiercel import Script
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

VALUE = "hunter2-and-no-more"
SCRIPT = b"""import hashlib, os, time
print(os.environ["SEED"], hashlib.sha256(os.environ["A_KEY"].encode()).hexdigest(), flush=True)
time.sleep(600)
"""


async def test_a_secret_reaches_the_script_and_nothing_else(product: Product) -> None:
    async with client_of(product, "secrets") as client:

        async def secret(*arguments: str, text: str = "") -> str:
            said = await tiercel("secret", *arguments, state_dir=product.state_dir, tenant="secrets", text=text)
            assert said.exit_code == 0, said.errors
            return said.output + said.errors

        assert await secret("set", "A_KEY", text=f"{VALUE}\n") == "Secret A_KEY is set.\n"
        spec = digits_job(
            "secrets", module="", script=Script("t.py", SCRIPT), arguments=(), env={"SEED": "7"}, secrets=("A_KEY",)
        )
        job = await client.submit(spec)
        async with asyncio.timeout(JOB_SECONDS):
            while not (output := b"".join([piece async for piece in job.logs()])).endswith(b"\n"):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert output.split() == [b"7", hashlib.sha256(VALUE.encode()).hexdigest().encode()]

        shown = [await secret("ls"), await secret("ls", "--json")]
        shown += [
            (await tiercel(*command, state_dir=product.state_dir, tenant="secrets")).output
            for command in (("show", job.id), ("show", job.id, "--json"), ("ls", "--json"), ("explain", job.id))
        ]
        assert "A_KEY" in shown[0]
        assert not [text for text in shown if VALUE in text]
        assert holders_of(product.state_dir) == ["script"]
        await job.cancel()
        assert (await job.wait(JOB_SECONDS)).state is JobState.CANCELLED
        await secret("remove", "A_KEY")
        refused = await tiercel("secret", "remove", "A_KEY", state_dir=product.state_dir, tenant="secrets")
        assert "there is no secret 'A_KEY'" in refused.errors
        assert files_with(VALUE, product.state_dir.parent) == []


def holders_of(state_dir: Path) -> list[str]:
    """Whoever has it in a file, in an environment or in its arguments: only the script may."""
    found = files_with(VALUE, state_dir)
    for process in processes_of(state_dir):
        try:
            command, environment = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if any(VALUE in word for word in command):
            found.append(f"arguments of {command}")
        if VALUE in environment.values():
            found.append("script" if command[-1].endswith("t.py") else f"environment of {command}")
    return found

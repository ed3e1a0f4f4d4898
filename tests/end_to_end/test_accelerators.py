"""The product on a machine with GPUs, as far as their driver's answers go: they are made up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from testing.fake_nvml import MIB, FakeNvml, a100, old_card
from testing.made_up_gpus import MadeUpGpus
from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, running_product, tiercel
from tiercel import Resources, Script
from tiercel.core.jobs import JobState

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

GIB = 1024 * MIB
SLEEPER = Script("sleeper.py", b"import time\ntime.sleep(600)\n")
SEEN = Script(
    "seen.py",
    b"import os\n"
    b"seen = [os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'CUDA_VISIBLE_DEVICES')]\n"
    b"os.write(1, (' '.join(seen) + '\\n').encode())\n",
)


async def devices(product: Product) -> list[dict[str, Any]]:
    """What ``tiercel nodes`` says of the only node's accelerators."""
    told = await tiercel("nodes", "--json", state_dir=product.state_dir, tenant="alice")
    assert told.exit_code == 0, told.errors
    found: list[dict[str, Any]] = told.content[0]["accelerators"]
    return found


async def devices_once(product: Product, **wanted: Any) -> list[dict[str, Any]]:
    """The same once the first device is as wanted."""
    async with asyncio.timeout(JOB_SECONDS):
        while {key: (found := await devices(product))[0][key] for key in wanted} != wanted:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.2)
    return found


async def test_gpus_are_seen_held_by_jobs_and_not_given_while_they_are_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = a100()
    gpus, library = MadeUpGpus(tmp_path / "nvml.json", monkeypatch), FakeNvml(card, old_card())
    gpus.answer(library)
    async with running_product(tmp_path) as product, client_of(product) as alice:
        large, small = await devices_once(product, utilisation=0.87)
        assert (large["id"], large["name"]) == (card.uuid, "NVIDIA A100-SXM4-40GB")
        assert (large["memory_bytes"], large["memory_used_bytes"]) == ((40960 - 571) * MIB, 3142 * MIB)
        assert (large["jobs"], large["memory_reserved_bytes"], large["problem"]) == (0, 0, "")
        assert (small["name"], small["utilisation"]) == ("NVIDIA GeForce GTX 1080 Ti", 0.0)

        needs = Resources(1.0, GIB, accelerators=1, accelerator_memory_bytes=39 * GIB)  # only the large one has it
        spec = digits_job(module="", script=SLEEPER, arguments=(), resources=needs)
        handle = await alice.submit(spec)
        large, _ = await devices_once(product, jobs=1)
        assert large["memory_reserved_bytes"] == 39 * GIB
        shown = await tiercel("nodes", state_dir=product.state_dir, tenant="alice")
        assert "39 GiB of 39.4 GiB" in shown.output
        async with asyncio.timeout(JOB_SECONDS):
            while (await handle.refresh()).state is not JobState.RUNNING:  # noqa: ASYNC110 - it has no report to wait for
                await asyncio.sleep(0.2)
        await handle.cancel()

        card.uncorrected, card.utilisation = 2, 0
        gpus.answer(library)
        large, small = await devices_once(product, utilisation=0.0)
        assert large["problem"].startswith("2 memory errors were found that could not be corrected")
        assert not small["problem"]
        shown = await tiercel("nodes", state_dir=product.state_dir, tenant="alice")
        assert large["problem"] in shown.output
        handle = await alice.submit(spec)  # no other device has as much memory
        async with asyncio.timeout(JOB_SECONDS):
            while large["problem"] not in (waiting := await handle.refresh()).reason:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.2)
        assert waiting.state is JobState.PENDING

        card.uncorrected = 0  # it was reset
        gpus.answer(library)
        await devices_once(product, problem="", jobs=1)
        await handle.cancel()

        both = Resources(1.0, GIB, accelerators=2, accelerator_memory_bytes=GIB)
        handle = await alice.submit(digits_job("both", module="", script=SEEN, arguments=(), resources=both))
        assert (await handle.wait(JOB_SECONDS)).state is JobState.FAILED, "it has reported nothing"
        shown = await tiercel("show", handle.id, state_dir=product.state_dir, tenant="alice")
        assert "2 GPUs with 1 GiB of it, as 2 ranks" in shown.output
        log = await tiercel("logs", handle.id, state_dir=product.state_dir, tenant="alice")
        lines = [line.split() for line in log.output.splitlines() if "[tiercel" not in line]
        assert sorted(line[:3] for line in lines) == [["0", "0", "2"], ["1", "1", "2"]]
        ids = {line[3] for line in lines}
        assert len(ids) == 1, "each sees both, in the same order, and takes the one of its number"
        assert set(ids.pop().split(",")) == {large["id"], small["id"]}

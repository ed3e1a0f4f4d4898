"""Ends all jobs that are not over, and begins one in a state that a line of a document needs; prints its id.

Usage: ``python document_job.py none|active|suspended|ended``, in a folder with the project ``digits``.
"""

import asyncio
import sys

import tiercel

SECONDS = 60


async def end_all(client: tiercel.Client) -> None:
    """Cancel all, and wait until each is over."""
    for job in await client.list_jobs(active_only=True):
        handle = client.job(job.id)
        await handle.cancel()
        await handle.wait(SECONDS)


async def main(state: str) -> None:
    """See above."""
    async with tiercel.Client.from_state_dir() as client:
        await end_all(client)
        if state == "none":
            return
        spec = tiercel.load_spec("digits", {"endpoint": "other", "arguments": ["--pause", "0.5"]})
        job = await client.submit(spec)
        if state == "suspended":
            await job.suspend()
        elif state == "ended":
            await end_all(client)
        print(job.id)


asyncio.run(main(sys.argv[1]))

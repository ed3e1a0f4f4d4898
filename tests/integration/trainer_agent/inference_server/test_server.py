from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import psutil

from testing.until import until
from tiercel.core.locks import is_held
from tiercel.trainer_agent.inference_server import process as serving_process
from tiercel.trainer_agent.inference_server.client import ServingClient
from tiercel.trainer_agent.inference_server.process import ServingPlaces
from tiercel.trainer_agent.inference_server.server import InferenceServer, ServingPorts


async def test_a_server_that_hands_over_is_followed_to_its_new_process_and_ended_there(tmp_path: Path) -> None:
    places = ServingPlaces(tmp_path)
    entered = tmp_path / "cgroup.procs"
    async with aiohttp.ClientSession() as session:
        client = ServingClient(session, lambda: server.address(), token=places.read_token)
        server = InferenceServer(places, ServingPorts(), client, confines=lambda: (entered,), changed=lambda: None)
        run = asyncio.ensure_future(server.run())
        await until(lambda: server.address())
        address = server.address()
        first = int(entered.read_text())
        operator = {"Authorization": f"Bearer {places.read_token()}"}
        async with session.post(f"http://{address}/v2/handover", headers=operator) as response:
            following = (await response.json())["pid"]
        await until(lambda: entered.read_text() == str(following))
        assert server.address() == address
        await until(lambda: not psutil.pid_exists(first))
        assert entered.read_text() == str(following), "nothing is started while the fresh process serves"
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await server.stop()
    assert not is_held(places.lock_file)
    assert serving_process.find_living(places) is None


async def test_a_server_that_does_not_listen_yet_is_ended_as_well(tmp_path: Path) -> None:
    """An agent that came back, and is stopped before the server of its life before is ready, leaves none behind."""
    places = ServingPlaces(tmp_path)
    holds = "import sys, time, pathlib; from tiercel.core.locks import take\nwith take(pathlib.Path(sys.argv[1])):"
    holds += " time.sleep(600)"
    starting = await asyncio.create_subprocess_exec(sys.executable, "-c", holds, str(places.lock_file))
    await until(lambda: is_held(places.lock_file))
    async with aiohttp.ClientSession() as session:
        client = ServingClient(session, lambda: server.address(), token=places.read_token)
        server = InferenceServer(places, ServingPorts(), client, confines=tuple, changed=lambda: None)
        run = asyncio.ensure_future(server.run())
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await server.stop()
    async with asyncio.timeout(90):
        assert await starting.wait() == -signal.SIGTERM

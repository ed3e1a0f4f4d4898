"""A program as several ranks, in every runtime: real processes and real containers."""

from __future__ import annotations

import asyncio
import os
import signal

import psutil
import pytest

from testing.needs import need
from testing.run_handles import Start, finish, read, ready
from testing.until import until
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.runtimes.contract import OUT_OF_MEMORY, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

LAUNCHER = "tiercel.trainer_agent.runtimes.ranks"
RANK = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
# Rank 0 lets the others find it where it was told to, as torch does, whose sockets allow the same.
MEET = """
import socket
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", where[1]))
    listener.listen()
    listener.accept()[0].sendall(b"met\\n")
else:
    while True:
        try:
            os.write(1, socket.create_connection(where).recv(4))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
told = [os.environ[name] for name in ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")]
os.write(1, f"{rank} {told} {sys.argv[1:]}\\n".encode())  # at once, as the lines of several ranks may mix
"""


async def test_each_rank_knows_which_it_is_and_finds_the_first_of_its_run(start: Start) -> None:
    runs = [await start(RANK + MEET, job=job, ranks=2, cpu_cores=5.0) for job in ("one", "two")]  # side by side
    told = "'2', '2', '2'] []"
    for code, output in await asyncio.gather(*map(finish, runs)):
        assert code == 0, output
        assert sorted(output.splitlines()) == [f"0 ['0', {told}", f"1 ['1', {told}", "met"]


async def test_the_first_rank_that_fails_ends_the_run_with_its_exit_code(start: Start) -> None:
    script = "if rank == 1:\n    sys.exit(7)\ntime.sleep(600)"
    code, output = await finish(await start(RANK + script, ranks=2))
    assert code == 7
    assert output.startswith("[tiercel: rank 1 (process ")
    assert output.endswith(") ended with exit code 7, and the others were ended]\n")


async def test_a_rank_that_is_killed_ends_the_run_likewise_though_others_do_not_listen(start: Start) -> None:
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(600)"
    )
    code, output = await finish(await start(RANK + script, ranks=3))
    assert code == -9
    assert "rank 1 (process" in output
    assert "was ended by SIGKILL" in output


async def test_a_stop_reaches_every_rank_once_and_leaves_them_their_time(start: Start) -> None:
    script = """
count = 0
def leave(*_):
    global count
    count += 1
signal.signal(signal.SIGTERM, leave)
os.write(1, b"ready\\n" if rank == 1 else b"here!\\n")
while not count:
    time.sleep(0.01)
time.sleep(1)
os.write(1, b"rank %d leaves after %d\\n" % (rank, count))
"""
    run = await start(RANK + script, ranks=2)
    lines, reading = await ready(run)
    await until(lambda: b"here!" in b"".join(lines))
    async with asyncio.timeout(90):
        await run.stop(20)
        assert (await run.wait()).code == 0
        await reading
    said = b"".join(lines)
    assert b"rank 0 leaves after 1\n" in said
    assert b"rank 1 leaves after 1\n" in said
    await run.close()


async def test_no_rank_is_left_when_their_parent_is_killed(start: Start) -> None:
    run = await start(RANK + "print('ready', os.getppid(), flush=True)\ntime.sleep(600)", ranks=3)
    lines, reading = await ready(run)
    await until(lambda: b"".join(lines).count(b"ready") == 3)
    living = [psutil.Process(pid) for pid in run.pids()]  # the launcher, its ranks, and the engine's first process
    [launcher] = [process for process in living if process.cmdline()[1:4] == ["-P", "-m", LAUNCHER]]
    ranks = launcher.children()
    assert len(ranks) == 3
    assert {rank.pid for rank in ranks} <= {process.pid for process in living}, "one group has all of them"
    os.kill(launcher.pid, signal.SIGKILL)
    async with asyncio.timeout(90):
        assert (await run.wait()).code == -9
        await reading
    await run.close()
    await until(lambda: not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks))


async def test_the_memory_of_all_ranks_together_is_limited(start: Start, runtime: Runtime, limits: Limits) -> None:
    need(
        runtime.name == "docker" or limits.name != "cooperative", "control groups that may be written, to limit memory"
    )
    run = await start(RANK + "x = b'x' * 70_000_000\ntime.sleep(600)", ranks=2, memory_bytes=120 * 1024**2)
    async with asyncio.timeout(60):
        _, how = await asyncio.gather(read(run), run.wait())
    await run.close()
    assert how.code == -9
    assert how.reason == OUT_OF_MEMORY

"""What every runtime has to do, over real processes and real containers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import venv
from pathlib import Path

import pytest
from aiodocker import Docker

from testing.docker import DockerEngine
from testing.needs import need
from testing.run_handles import Start, command_of, finish, finish_bytes, read, ready
from testing.until import until
from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.contract import CpuShare, Limits
from tiercel.trainer_agent.limits.entering import ENDED_FIRST
from tiercel.trainer_agent.limits.thread_scheduling import may_take_back
from tiercel.trainer_agent.runtimes.containers.config import LABEL_INSTANCE
from tiercel.trainer_agent.runtimes.contract import OUT_OF_MEMORY, Launch, Program, Runtime
from tiercel.trainer_agent.runtimes.processes.runtime import ProcessRuntime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image


async def test_runs_a_script_and_keeps_its_output(start: Start) -> None:
    script = """
import sys
print("out"); sys.stdout.flush()
print("err", file=sys.stderr, flush=True)
print(sys.argv[1:], flush=True)
sys.stdout.buffer.write(b"\\xff\\x00bytes that are no text\\n" + b"x" * 100_000 + b"\\n")
"""
    run = await start(script, program=Program(script="train.py", arguments=("--rate", "0.1 0.2")))
    code, output = await finish_bytes(run)
    assert code == 0
    assert b"err\n" in output
    # An engine keeps the two streams apart until it writes them down, so a line of one may land in the other's.
    output = output.replace(b"err\n", b"", 1)
    for part in (b"out\n", b"['--rate', '0.1 0.2']\n", b"\xff\x00bytes that are no text\n" + b"x" * 100_000):
        assert part in output


async def test_runs_an_installed_module(start: Start) -> None:
    run = await start("", program=Program(module="tiercel.trainer_agent.disk.names"))
    assert (await finish(run))[0] == 0


async def test_a_container_tells_the_id_of_its_image(start: Start, runtime: Runtime) -> None:
    run = await start("")
    assert run.image_id.startswith("sha256:") == (runtime.name == "docker")
    await finish(run)


async def test_tells_the_exit_code(start: Start) -> None:
    assert (await finish(await start("raise SystemExit(7)")))[0] == 7


async def test_tells_which_signal_ended_it(start: Start) -> None:
    script = "import ctypes, os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)"
    assert (await finish(await start(script)))[0] == -15


async def test_stop_lets_a_script_leave_by_itself(start: Start) -> None:
    run = await start(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('leaving', flush=True), sys.exit(5)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    lines, reading = await ready(run)
    async with asyncio.timeout(90):
        await run.stop(20)
        assert (await run.wait()).code == 5
        await reading
    assert b"leaving" in b"".join(lines)
    await run.close()


async def test_stop_ends_a_script_that_ignores_it_with_all_its_children(start: Start) -> None:
    run = await start(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0: os.setsid()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    _, reading = await ready(run)
    async with asyncio.timeout(90):
        await run.stop(0.3)
        assert (await run.wait()).code == -9
        await run.stop(0.3)  # a second time changes nothing
        await reading  # the pipe is closed: the child in a session of its own is gone too
    await run.close()
    await run.close()


async def test_the_environment_is_minimal(start: Start) -> None:
    run = await start("import json, os; print(json.dumps(dict(os.environ)))", cpu_cores=1.5)
    environment = json.loads((await finish(run))[1])
    job_folder = environment["TIERCEL_RUN_DIR"]
    assert environment["HOME"] == f"{job_folder}/work"
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "2"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert "A_SECRET" not in environment
    assert environment["CUDA_VISIBLE_DEVICES"] == ""  # it holds no accelerator, so that it sees none
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    expected = {"PATH", "HOME", "LANG", "TIERCEL_RUN_DIR", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONUNBUFFERED"}
    expected |= {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ORT_DISABLE_TELEMETRY"}
    extra = {
        "NVIDIA_VISIBLE_DEVICES",
        "PWD",
        "HOSTNAME",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "OPENBLAS_CORETYPE",
        "TZ",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert expected <= set(environment) <= expected | extra


async def test_a_job_adds_variables_to_its_environment_and_takes_none_of_ours_away(start: Start) -> None:
    given = {"PYTHONPATH": "lib", "n": "kept", "LANG": "C", "OMP_NUM_THREADS": "64", "TEXT": "a=b\nc 'é'"}
    run = await start("import json, os; print(json.dumps(dict(os.environ)))", variables=given)
    environment = json.loads((await finish(run))[1])
    assert {name: environment[name] for name in given} == given | {"OMP_NUM_THREADS": "1"}


async def test_secrets_are_in_the_environment_of_the_script_alone(
    start: Start, runtime: Runtime, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given = {"A_KEY": "hunter2 'é' $(exit 3) \\ \"`\n", "LARGE": "x" * 30_000}
    script = "import hashlib, os, sys; print(hashlib.sha256(os.environ[sys.argv[1]].encode()).hexdigest())"
    for name, value in given.items():
        program = Program(script="train.py", arguments=(name,))
        run = await start(f"{script}\nassert not sys.stdin.read()", program=program, secrets=given)
        if runtime.name == "docker":
            engine: DockerEngine = request.getfixturevalue("engine")
            ours = json.dumps({"label": [f"{LABEL_INSTANCE}=contract-{os.getpid()}"]})  # others come and go
            async with Docker(url=engine.host) as docker:
                containers = await docker.containers.list(all=True, filters=ours)
                shown = [json.dumps(await each.show()) for each in containers]
            assert any("train.py" in each for each in shown)
            assert not any("hunter2" in each or "x" * 100 in each for each in shown)
        code, output = await finish(run)
        assert (code, output.strip()) == (0, hashlib.sha256(value.encode()).hexdigest())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


async def test_variables_that_break_python_break_the_script_alone(start: Start) -> None:
    code, output = await finish(await start("print('never')", variables={"PYTHONHOME": "/nowhere"}))
    assert code == 1
    assert "encodings" in output


async def test_accelerators_are_visible_in_the_order_of_the_share(start: Start, runtime: Runtime) -> None:
    held = (AcceleratorShare("GPU-b", 0.5), AcceleratorShare("GPU-a", 1.0))
    script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    if runtime.name == "process":
        assert (await finish(await start(script, accelerators=held)))[1] == "GPU-b,GPU-a\n"
        return
    if shutil.which("nvidia-ctk") or shutil.which("nvidia-container-cli"):
        pytest.skip("the engine may have a runtime for accelerators, and looks for these")
    with pytest.raises(RunFailedError, match="install the NVIDIA Container Toolkit"):
        await start(script, accelerators=held)


async def test_the_run_folder_is_writable_and_the_token_readable(start: Start, tmp_path: Path) -> None:
    script = """
import os, pathlib
run = pathlib.Path(os.environ["TIERCEL_RUN_DIR"])
assert pathlib.Path.cwd() == run / "work"
for name in ("exports", "checkpoints", "work"):
    (run / name / "made").write_text(name)
print((run / "token").read_text())
"""
    code, output = await finish(await start(script))
    assert (code, output.strip()) == (0, "t")
    for name in ("exports", "checkpoints", "work"):
        assert (tmp_path / "jobs" / "job" / name / "made").read_text() == name


async def test_usage_grows(start: Start) -> None:
    run = await start("x = bytearray(50_000_000)\nprint('ready', flush=True)\nwhile True: pass")
    _, reading = await ready(run)
    before = await run.usage()
    async with asyncio.timeout(90):
        now = before
        while now.cpu_seconds < before.cpu_seconds + 0.5:
            await asyncio.sleep(0.05)
            now = await run.usage()
    assert now.memory_bytes > 50_000_000
    await run.stop(0)
    await reading
    assert (await run.usage()).cpu_seconds >= now.cpu_seconds
    await run.close()
    assert (await run.usage()).cpu_seconds >= now.cpu_seconds


async def test_a_share_can_be_changed_after_the_end_too(start: Start) -> None:
    run = await start("")
    await asyncio.gather(read(run), run.wait())
    await run.apply_share(CpuShare(0.5, 0.5))
    await run.close()
    await run.apply_share(CpuShare(0.25))


async def test_who_is_left_a_floor_gives_way_until_it_gets_more(start: Start) -> None:
    need(may_take_back(), "to be allowed to let a run come to the front again (the capability CAP_SYS_NICE)")
    script = "import os, time\nos.fork()\nprint('ready', os.getpid(), flush=True)\ntime.sleep(600)"
    run = await start(script, share=CpuShare(0.001))

    def policies() -> set[int]:
        return {os.sched_getscheduler(pid) for pid in run.pids()}

    try:
        await until(lambda: len(run.pids()) >= 2)
        await until(lambda: policies() == {os.SCHED_IDLE})
        await run.apply_share(CpuShare(0.5))
        assert policies() == {os.SCHED_OTHER}
        await run.apply_share(CpuShare(0.001))
        assert policies() == {os.SCHED_IDLE}
    finally:
        await run.close()


async def test_closing_ends_what_runs(start: Start) -> None:
    run = await start("print('ready', flush=True)\nimport time; time.sleep(600)")
    _, reading = await ready(run)
    async with asyncio.timeout(90):
        await run.close()
        await reading
        await run.wait()


async def test_a_program_that_is_not_there_says_so(start: Start) -> None:
    run = await start("", program=Program(script="missing.py"))
    code, output = await finish(run)
    assert code != 0
    assert "missing.py" in output


async def test_the_memory_limit_kills(start: Start, runtime: Runtime, limits: Limits) -> None:
    need(
        runtime.name == "docker" or limits.name != "cooperative", "control groups that may be written, to limit memory"
    )
    run = await start("x = []\nwhile True: x.append(bytearray(10_000_000))", memory_bytes=100 * 1024**2)
    async with asyncio.timeout(60):
        _, how = await asyncio.gather(read(run), run.wait())
    await run.close()
    assert how.code != 0
    assert how.reason == OUT_OF_MEMORY


async def test_training_is_ended_before_others_when_the_machine_is_out_of_memory(start: Start) -> None:
    script = "print(open('/proc/self/oom_score_adj').read())"
    assert (await finish(await start(script)))[1].strip() == str(ENDED_FIRST)


async def test_images(runtime: Runtime, request: pytest.FixtureRequest) -> None:
    images = await runtime.images()
    if runtime.name == "process":
        assert images == ()
    else:
        assert request.getfixturevalue("engine").image in images


async def test_process_needs_a_program(limits: Limits, tmp_path: Path) -> None:
    launch = Launch(run_id="job-1", job_folder=tmp_path, program=Program())
    with pytest.raises(RunFailedError, match="give the job a script or a command"):
        await ProcessRuntime(tmp_path / "minders", limits).start(launch)


async def test_its_processes_are_known_as_the_machine_numbers_them(start: Start) -> None:
    script = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
    run = await start(script)
    await until(lambda: _is_whole([command_of(pid) for pid in run.pids()]), seconds=60)
    assert os.getpid() not in run.pids()
    await run.stop(0.0)
    assert run.pids() == []
    await run.close()


def _is_whole(commands: list[str]) -> bool:
    """Whether script and child are among them."""
    return any("train.py" in one for one in commands) and any("time.sleep(600)" in one for one in commands)


async def test_a_run_has_the_interpreter_that_it_is_given_and_its_folder_comes_first(
    start: Start, runtime: Runtime, tmp_path: Path
) -> None:
    if runtime.name != "process":  # its environment is mounted over its image's; see test_warm_containers.py for one
        with pytest.raises(RunFailedError, match="does not exist: /no/environment"):
            await start("", python="/no/environment/bin/python")
        return
    venv.create(tmp_path / "own", symlinks=True)
    python = tmp_path / "own" / "bin" / "python"
    script = "import os, shutil, sys; print(sys.prefix, sys.executable, shutil.which('python'), sep='\\n')"
    code, output = await finish(await start(script, python=str(python)))
    assert (code, output.split()) == (0, [str(tmp_path / "own"), str(python), str(python)])

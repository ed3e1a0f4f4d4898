"""Environments built by the real uv and the real pip, offline, from packages that the tests write."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from testing.node_environments import NodeEnvironments, prints
from testing.until import until
from testing.wheels import write_wheel
from tiercel.core.locks import take
from tiercel.trainer_agent.environments import building, commands, environments, folders, installers
from tiercel.trainer_agent.environments.environments import EnvironmentLimits
from tiercel.trainer_agent.environments.folders import disk_bytes
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.limits.detect import detect


@pytest.mark.usefixtures("installer")
async def test_has_what_was_asked_for_and_all_that_the_node_has(node: NodeEnvironments) -> None:
    write_wheel(node.wheels, "alpha", requires=["beta>=1", "pyyaml"], scripts={"say-alpha": "alpha:main"})
    write_wheel(node.wheels, "beta", "1.5")
    interpreter = await node.ready("alpha")
    told = "import alpha, beta, yaml, grpc, tiercel.trainer, sys; print(alpha.VERSION, beta.VERSION, sys.prefix)"
    assert prints(interpreter, told) == f"1.0 1.5 {Path(interpreter).parents[1]}"
    assert (Path(interpreter).parent / "say-alpha").exists()
    assert building.key_of(interpreter) == node.built()[0].name
    packages = [entry[0] for entry in json.loads((node.built()[0] / building.COMPLETE).read_text())["packages"]]
    assert sorted(packages) == ["alpha", "beta"]  # nothing that the node has is installed again
    assert any("alpha" in line for line in node.said)
    compiled = list((Path(interpreter).parents[1] / "lib").rglob("alpha.*.pyc"))
    assert compiled  # else each start of a run would compile it
    assert not compiled[0].stat().st_mode & 0o222
    assert not list(node.built()[0].glob("cache*"))


@pytest.mark.usefixtures("installer")
async def test_a_version_that_contradicts_the_nodes_is_one_clear_error(node: NodeEnvironments) -> None:
    present = importlib.metadata.version("pyyaml")
    write_wheel(node.wheels, "PyYAML", "0.1")
    write_wheel(node.wheels, "old", requires=["pyyaml<1"])
    with pytest.raises(RunFailedError, match=rf"leads to (?i:pyyaml) 0\.1, and the node has {present}"):
        await node.ready("old")
    assert node.built() == []


async def test_what_cannot_be_resolved_fails_with_the_resolvers_words_and_is_not_tried_again(
    node: NodeEnvironments,
) -> None:
    for _ in range(2):
        with pytest.raises(RunFailedError, match="nowhere-to-be-found"):
            await node.ready("nowhere-to-be-found==1")
    tries = sum("builds it from" in line for line in node.said)
    assert tries == 1
    assert sorted(path.name for path in node.state.glob("[!.]*")) == ["failed"]
    node.begin_life()
    with pytest.raises(RunFailedError, match="as was found before"):
        await node.ready("nowhere-to-be-found==1")
    write_wheel(node.wheels, "nowhere_to_be_found")  # where packages come from is different
    assert prints(await node.ready("nowhere-to-be-found==1.0"), "import nowhere_to_be_found") == ""


async def test_a_failure_that_cannot_be_written_down_ends_nothing_but_its_runs(node: NodeEnvironments) -> None:
    node.state.mkdir()
    (node.state / "failed").write_text("in the way of the folder")
    for _ in range(2):
        with pytest.raises(RunFailedError, match="nowhere"):
            await node.ready("nowhere")
    assert sum("builds it from" in line for line in node.said) == 2


@pytest.mark.parametrize("said", ["No space left on device", "Failed to fetch: `https://nobody/`"])
async def test_what_may_pass_is_tried_again(node: NodeEnvironments, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(node.wheels, "alpha")
    broken = node.folder / "uv"
    broken.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo uv 0 || {{ echo 'No solution found: {said}'; exit 1; }}\n"
    )
    broken.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(installers, "find_uv", lambda: str(broken))
        for _ in range(2):
            with pytest.raises(RunFailedError, match=said.split(":", maxsplit=1)[0]):
                await node.ready("alpha")
    assert sum("builds it from" in line for line in node.said) == 2


async def test_runs_that_ask_for_the_same_share_one_build_and_its_log(node: NodeEnvironments) -> None:
    write_wheel(node.wheels, "alpha")
    logs: list[list[str]] = [[], [], []]
    found = await asyncio.gather(
        *(node.environments.ready(f"job-{number}", ("alpha",), log.append) for number, log in enumerate(logs))
    )
    assert len(set(found)) == 1
    assert logs[0] == logs[1] == logs[2] != []
    assert sum("builds it from" in line for line in logs[0]) == 1
    assert len(list((node.built()[0] / "users").iterdir())) == 1  # who is over is forgotten when the next one comes
    await node.ready("alpha", run_id="job-9")
    assert node.said == []  # nothing is built


async def test_a_build_that_nobody_waits_for_any_more_ends(
    node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = node.folder / "uv"
    slow.write_text("#!/bin/sh\n[ $1 = --version ] && echo uv 0 || { echo waiting $$; exec sleep 600; }\n")
    slow.chmod(0o755)
    monkeypatch.setattr(installers, "find_uv", lambda: str(slow))
    waiting = asyncio.ensure_future(node.ready("alpha"))
    await until(lambda: any("waiting" in line for line in node.said))
    pid = int(node.said[-1].split()[-1])
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not Path(f"/proc/{pid}").exists())
    await until(lambda: not list(node.state.glob("[!.]*")))  # nor does it leave a file


async def test_a_build_that_takes_too_long_or_too_much_room_ends_with_that_reason(
    node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_LOOK_SECONDS", 0.05)
    slow = node.folder / "uv"
    script = "head -c 3000000 /dev/zero > filled; exec sleep 600"
    slow.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo uv 0 || {{ {script}; }}\n")
    slow.chmod(0o755)
    monkeypatch.setattr(installers, "find_uv", lambda: str(slow))
    for limits, reason in (
        (EnvironmentLimits(build_seconds=0.5), "it takes longer than the node gives it"),
        (EnvironmentLimits(size_bytes=1_000_000), "more than the 1000000 bytes"),
        (EnvironmentLimits(reserve_bytes=2**62), "disk has less than"),
    ):
        node.limits = limits
        node.begin_life()
        for _ in range(2):  # none is remembered
            with pytest.raises(RunFailedError, match=reason):
                await node.ready("alpha")


async def test_a_build_is_confined_like_a_run_and_leaves_no_process(
    node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.confines = await asyncio.to_thread(detect, f"environments-{os.getpid()}", 2.0)
    if node.confines.name == Cooperative.name:
        pytest.skip("control groups cannot be made here")
    script = "cat /proc/self/cgroup; setsid sleep 600 > /dev/null 2>&1 & echo pid $!; sleep 0.2; exit 1"
    escaping = node.folder / "uv"
    escaping.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo uv 0 || {{ {script}; }}\n")
    escaping.chmod(0o755)
    monkeypatch.setattr(installers, "find_uv", lambda: str(escaping))
    node.begin_life()
    try:
        with pytest.raises(RunFailedError):
            await node.ready("alpha")
        assert any("run-environment-" in line for line in node.said)
        pid = int(next(line for line in node.said if "pid" in line and line.split()[-1].isdecimal()).split()[-1])
        await until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        await asyncio.to_thread(node.confines.close)


async def test_what_a_killed_agent_left_half_built_is_built_anew(
    node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(node.wheels, "alpha")
    interpreter = await node.ready("alpha")
    folder = node.built()[0]
    (folder / building.COMPLETE).unlink()
    next((folder / "venv").rglob("alpha.py")).unlink()
    node.begin_life()
    assert prints(await node.ready("alpha"), "import alpha; print(alpha.VERSION)") == "1.0"
    (folder / building.COMPLETE).unlink()
    # A builder of the earlier life that goes on keeps the next one away until it is done.
    with take(node.environments._lock_of(folder)):
        node.environments.clear()
        assert folder.exists()
        waiting = asyncio.ensure_future(node.ready("alpha"))
        await until(lambda: bool(node.environments._building))
        await asyncio.sleep(0)
        assert not (folder / building.COMPLETE).exists()
    assert await waiting == interpreter
    (folder / building.COMPLETE).unlink()
    node.environments.clear()
    assert not folder.exists()


async def test_two_environments_share_no_file(node: NodeEnvironments) -> None:
    write_wheel(node.wheels, "alpha")
    write_wheel(node.wheels, "beta")
    for asked in (("alpha",), ("alpha", "beta")):
        await node.ready(*asked)
    files = [path.stat().st_ino for folder in node.built() for path in folder.rglob("alpha.py")]
    assert len(files) == len(set(files)) == 2
    assert all(
        path.stat().st_nlink == 1 for folder in node.built() for path in folder.rglob("alpha*") if path.is_file()
    )


async def test_what_was_not_used_for_longest_goes_and_never_what_a_live_run_uses(node: NodeEnvironments) -> None:
    for name in ("alpha", "beta", "gamma", "delta"):
        write_wheel(node.wheels, name, files={f"{name}.txt": os.urandom(200_000).hex()})
    first = await node.ready("alpha", run_id="alive-1")
    node.live.add("alive-1")
    second, third = await node.ready("beta"), await node.ready("gamma")
    for seconds, interpreter in enumerate((first, second, third)):
        os.utime(Path(interpreter).parents[2] / building.COMPLETE, (seconds, seconds))
    await node.ready("beta", run_id="over-1")  # used again
    largest = max(disk_bytes(folder) for folder in node.built())
    node.limits = replace(node.limits, size_bytes=3 * largest + 10_000)
    node.begin_life()
    fourth = await node.ready("delta")
    assert {str(building.python_of(folder)) for folder in node.built()} == {first, second, fourth}


async def test_what_cannot_be_removed_or_read_keeps_nobody_from_what_is_built(
    node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = folders.remove

    def refuse(folder: Path) -> None:
        if folder.parent == node.state and folder.exists():
            raise PermissionError(f"{folder} stays")
        remove(folder)

    write_wheel(node.wheels, "alpha")
    write_wheel(node.wheels, "beta")
    first = await node.ready("alpha")
    (node.built()[0] / building.COMPLETE).write_text("damaged")
    node.limits = EnvironmentLimits(size_bytes=200_000)
    node.begin_life()
    monkeypatch.setattr(folders, "remove", refuse)
    assert prints(await node.ready("beta"), "import beta") == ""
    Path(first).parents[2].joinpath(building.COMPLETE).unlink(missing_ok=True)
    node.environments.clear()


async def test_no_code_of_packages_runs_while_they_are_installed(node: NodeEnvironments) -> None:
    seen = node.folder / "seen"
    # Python runs such a line whenever it starts, also when it compiles what was installed.
    line = f"import os; open({str(seen)!r}, 'a').write('x')\n"
    write_wheel(node.wheels, "hostile", files={"hostile.py": "", "hostile.pth": line})
    interpreter = await node.ready("hostile")
    assert not seen.exists()
    prints(interpreter, "import hostile")
    assert seen.exists()


async def test_what_has_to_be_built_is_refused_unless_the_operator_allows_it(node: NodeEnvironments) -> None:
    source = node.folder / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "built"\nversion = "1.0"\n'
    )
    (source / "backend.py").write_text("raise SystemExit('it ran')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: built\nVersion: 1.0\n")
    with tarfile.open(node.wheels / "built-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "built-1.0")
    with pytest.raises(RunFailedError, match="building from source is disabled") as caught:
        await node.ready("built")
    assert "it ran" not in caught.value.message
    node.sdists = True
    node.begin_life()
    with pytest.raises(RunFailedError, match="it ran"):
        await node.ready("built")


async def test_a_hash_that_is_asked_for_is_checked(node: NodeEnvironments) -> None:
    write_wheel(node.wheels, "alpha")
    with pytest.raises(RunFailedError, match=r"(?i)hash"):
        await node.ready(f"alpha==1.0 --hash=sha256:{'0' * 64}")


async def test_a_node_without_installer_says_so(node: NodeEnvironments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "find_installer", lambda: None)
    with pytest.raises(RunFailedError, match="neither uv nor pip"):
        await node.ready("alpha")

"""Environments over what an image has, as a Python of this machine says it that stands in for an image's."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testing.node_environments import NodeEnvironments, prints
from testing.until import until
from testing.wheels import write_wheel
from tiercel.trainer_agent.environments import building, installers
from tiercel.trainer_agent.environments.image_layer import ImageLayer, layer_of
from tiercel.trainer_agent.environments.image_program import MARK, PROGRAM
from tiercel.trainer_agent.errors import RunFailedError

MACHINE = os.uname().machine


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What the Python of these tests says of itself, when asked like that of an image."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout.rpartition(MARK)[2])  # type: ignore[no-any-return]  # a mapping


def image(said: dict[str, Any], folder: Path, **changes: Any) -> ImageLayer:
    return layer_of((MARK + json.dumps(said | changes)).encode(), str(folder / "inside"))


def inside(node: NodeEnvironments, interpreter: str) -> str:
    """The interpreter as programs find it, as if the environment were mounted there."""
    place = node.folder / "inside"
    place.symlink_to(Path(interpreter).parents[1])
    return str(place / "bin" / "python")


@pytest.mark.usefixtures("installer")
async def test_has_what_was_asked_for_and_all_that_the_image_has(node: NodeEnvironments, said: dict[str, Any]) -> None:
    module = "import sys\nVERSION = '1.0'\ndef main():\n    print(sys.prefix)\n"
    needs, commands = ["beta>=1", "pyyaml"], {"say-alpha": "alpha:main"}
    write_wheel(node.wheels, "alpha", requires=needs, scripts=commands, files={"alpha.py": module})
    write_wheel(node.wheels, "beta", "1.5")
    interpreter = await node.ready("alpha", image=image(said, node.folder))
    packages = [entry[0] for entry in json.loads((node.built()[0] / building.COMPLETE).read_text())["packages"]]
    assert sorted(packages) == ["alpha", "beta"]  # nothing that the image has is installed again
    found = inside(node, interpreter)
    told = "import alpha, beta, yaml, tiercel.trainer, sys; print(alpha.VERSION, beta.VERSION, sys.prefix)"
    assert prints(found, told) == f"1.0 1.5 {node.folder}/inside"
    command = (Path(found).parent / "say-alpha").read_text()
    assert command.startswith(f"#!{found}\n")
    assert prints(found, f"import sys; sys.argv = ['x']; exec({command!r})") == f"{node.folder}/inside"
    venv = Path(interpreter).parents[1]
    compiled = next((venv / "lib").rglob("alpha.*.pyc"))
    modes = {path.stat().st_mode & 0o777 for path in (venv, compiled, venv / "pyvenv.cfg", venv / "bin" / "say-alpha")}
    assert modes == {0o555, 0o444}
    assert not any((node.built()[0] / name).exists() for name in ("layer", "cache"))
    assert not list(venv.rglob("_manylinux*"))


async def test_a_version_that_contradicts_the_images_is_one_clear_error(
    node: NodeEnvironments, said: dict[str, Any]
) -> None:
    has = [["PyYAML", "6.0", [], []], ["torch", "2.9.0+cpu", ["numpy<3", "extra1; extra == 'x'"], ["x"]]]
    layer = image(said, node.folder, distributions=[*has, ["numpy", "2.0", [], []]])
    write_wheel(node.wheels, "PyYAML", "0.1")
    write_wheel(node.wheels, "old", requires=["pyyaml<1"])
    write_wheel(node.wheels, "extra1")
    reason = r"leads to (?i:pyyaml) 0\.1, and its image has 6\.0, which .* use an image that has the other\.$"
    with pytest.raises(RunFailedError, match=reason):
        await node.ready("old", image=layer)
    with pytest.raises(RunFailedError, match="as was found before: it leads to"):
        await node.ready("old", image=layer)
    await node.ready("pyyaml>=1", "torch[x]", image=layer)
    (built,) = node.built()
    assert json.loads((built / building.COMPLETE).read_text())["packages"] == [["extra1", "1.0"]]


async def test_packages_are_those_for_the_images_python(node: NodeEnvironments, said: dict[str, Any]) -> None:
    write_wheel(node.wheels, "alpha", requires=["newer; python_version >= '3.29'", "older; python_version < '3.29'"])
    write_wheel(node.wheels, "newer", tag=f"cp329-cp329-manylinux_2_17_{MACHINE}")
    write_wheel(node.wheels, "older")
    layer = image(said, node.folder, version="3.29.1", python="/opt/x/bin/python3.29", folders=["/opt/x/p"])
    interpreter = await node.ready("alpha", image=layer)
    venv = Path(interpreter).parents[1]
    assert os.readlink(interpreter) == "/opt/x/bin/python3.29"  # noqa: PTH115 - as it is written
    packages = venv / "lib" / "python3.29" / "site-packages"
    assert {path.name for path in packages.glob("*.py")} == {"alpha.py", "newer.py"}
    assert (packages / "tiercel-layer.pth").read_text() == "import site; site.addsitedir('/opt/x/p')\n"
    assert "home = /opt/x/bin\n" in (venv / "pyvenv.cfg").read_text()
    assert [path.name for path in (venv / "lib").iterdir()] == ["python3.29"]
    assert {path.name for path in (venv / "bin").iterdir()} == {"python", "python3", "python3.29"}
    assert any("not compiled, as its image has Python 3.29.1" in line for line in node.said)
    assert not list(venv.rglob("*.pyc"))


@pytest.mark.usefixtures("installer")
async def test_packages_are_those_for_the_images_c_library(node: NodeEnvironments, said: dict[str, Any]) -> None:
    for version, platform in (("1.0", "manylinux_2_17"), ("2.0", "manylinux_2_35"), ("3.0", "musllinux_1_2")):
        write_wheel(node.wheels, "alpha", version, tag=f"py3-none-{platform}_{MACHINE}")
    expected = {("glibc", "2.28"): "1.0", ("glibc", "2.36"): "2.0", ("musl", "1.2.5"): "3.0"}
    if isinstance(installers.find_installer(), installers.Pip):
        del expected["glibc", "2.36"]
        why = r"cannot be built for its image: pip, which is all that the node has, .* install tiercel\[envs\]"
        with pytest.raises(RunFailedError, match=why):
            await node.ready("alpha", image=image(said, node.folder, libc=["musl", "1.2.5"]))
        del expected["musl", "1.2.5"]
    for libc, version in expected.items():
        interpreter = await node.ready("alpha", image=image(said, node.folder, libc=[*libc]))
        folder = Path(interpreter).parents[2]
        assert json.loads((folder / building.COMPLETE).read_text())["packages"] == [["alpha", version]]
    with pytest.raises(RunFailedError, match=r"cannot be built for its image: .*(musl|glibc) "):
        await node.ready("alpha", image=image(said, node.folder, libc=["musl", "1.1.24"]))


@pytest.mark.parametrize("installer", ["pip"], indirect=True)
@pytest.mark.usefixtures("installer")
async def test_pip_builds_for_its_own_python_alone(node: NodeEnvironments, said: dict[str, Any]) -> None:
    layer = image(said, node.folder, version="3.29.1")
    with pytest.raises(RunFailedError, match=r"pip, which .* and not for 3\.29\.1 with glibc; install tiercel\[envs\]"):
        await node.ready("alpha", image=layer)


@pytest.mark.usefixtures("installer")
async def test_neither_packages_nor_what_an_image_says_run_here(node: NodeEnvironments, said: dict[str, Any]) -> None:
    seen = node.folder / "seen"
    line = f"import os; open({str(seen)!r}, 'a').write('x')\n"
    write_wheel(node.wheels, "hostile", files={"hostile.py": line, "hostile.pth": line})
    source = node.folder / "built-1.0"
    source.mkdir()
    (source / "setup.py").write_text(line)
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: built\nVersion: 1.0\n")
    with tarfile.open(node.wheels / "built-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "built-1.0")
    node.sdists = True  # which is about the node's own Python
    node.begin_life()
    address = f"{(node.folder / 'wheels').as_uri()}/x-1.0-py3-none-any.whl"
    has = [["a", "1.0", [f"x @ {address}", "y @ git+file:///", "--index-url=x"], []], ["../../b", "1.0", [], []]]
    layer = image(said, node.folder, distributions=has)
    interpreter = await node.ready("hostile", "a", image=layer)
    assert os.readlink(interpreter) == said["python"]  # noqa: PTH115 - as it is written
    with pytest.raises(RunFailedError):
        await node.ready("built", image=layer)
    assert not seen.exists()


async def test_what_two_images_have_alike_is_built_once_and_what_is_another_anew(
    node: NodeEnvironments, said: dict[str, Any]
) -> None:
    write_wheel(node.wheels, "alpha")
    layer, same = image(said, node.folder), image(json.loads(json.dumps(said)), node.folder)
    first = await asyncio.gather(node.ready("alpha", image=layer), node.ready("alpha", run_id="job-2", image=same))
    assert len({*first}) == 1
    assert len(node.built()) == 1
    changes: tuple[dict[str, Any], ...] = (
        {"python": "/elsewhere/python"},
        {"distributions": [["b", "1", [], []]]},
    )
    built = {await node.ready("alpha", image=image(said, node.folder, **each)) for each in changes}
    built.add(await node.ready("alpha"))  # the node's own is another as well
    assert len(built - {*first}) == len(changes) + 1


async def test_a_build_that_nobody_waits_for_any_more_leaves_nothing(
    node: NodeEnvironments, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = node.folder / "uv"
    program.write_text("#!/bin/sh\n[ $1 = --version ] && echo uv 0 || { echo waiting $$; exec sleep 600; }\n")
    program.chmod(0o755)
    monkeypatch.setattr(installers, "find_uv", lambda: str(program))
    waiting = asyncio.ensure_future(node.ready("alpha", image=image(said, node.folder)))
    await until(lambda: any("waiting" in line for line in node.said))
    assert list(node.state.glob("*/layer"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not list(node.state.glob("[!.]*")))


async def test_a_disk_that_takes_nothing_is_no_failure_for_good(
    node: NodeEnvironments, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, text: str) -> int:
        if path.name == "METADATA":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return path.write_bytes(text.encode())

    write_wheel(node.wheels, "alpha")
    layer = image(said, node.folder)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_text)
        with pytest.raises(RunFailedError, match=r"cannot be built: .*No space left on device"):
            await node.ready("alpha", image=layer)
    assert not list(node.state.glob("[!.]*"))
    await node.ready("alpha", image=layer)

"""What an image says of itself is taken for what it can be, and for nothing else."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from tiercel.trainer_agent.environments import venvs
from tiercel.trainer_agent.environments.image_layer import ImageLayer, layer_of
from tiercel.trainer_agent.environments.image_program import MARK
from tiercel.trainer_agent.environments.installers import Pip, Uv
from tiercel.trainer_agent.environments.layers import Interpreter, Platform, Target
from tiercel.trainer_agent.errors import RunFailedError

SAID: dict[str, Any] = {
    "python": "/usr/local/bin/python3.12",
    "version": "3.12.4",
    "implementation": "CPython",
    "abi": "cpython-312-x86_64-linux-gnu",
    "magic": "cb0d0d0a",
    "machine": platform.machine(),
    "libc": ["glibc", "2.36"],
    "folders": ["/usr/local/lib/python3.12/site-packages"],
    "distributions": [["torch", "2.9.0+cpu", ["numpy<3", "triton; extra == 'x'"], ["x"]], ["numpy", "2.1", None, None]],
}


def read(**changes: Any) -> ImageLayer:
    return layer_of(b"a warning\n" + (MARK + json.dumps(SAID | changes)).encode() + b"\n", "/inside")


def test_an_image_says_what_it_is() -> None:
    layer = read()
    assert layer.interpreter == Interpreter("/usr/local/bin/python3.12", "3.12.4")
    assert layer.platform == Platform("3.12.4", platform.machine(), "glibc", (2, 36))
    assert layer.distributions == {"numpy": "2.1", "torch": "2.9.0+cpu"}
    assert layer.packages["torch"].requires == ("numpy<3", "triton; extra == 'x'")
    assert not layer.is_compiled_here


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nothing like it",
        MARK.encode() + b"[]",
        MARK.encode() + b'{"python": ',
        MARK.encode() + b"[" * 100_000,
        MARK.encode() + b"\xff",
    ],
)
def test_what_is_no_answer_is_one_clear_error(said: bytes) -> None:
    with pytest.raises(
        RunFailedError, match=r"^What the Python of its image says of itself is not understood .*Use an"
    ):
        layer_of(said, "/inside")


@pytest.mark.parametrize(
    "changes",
    [
        {"python": "python3"},
        {"python": "/usr/bin/../../etc/python"},
        {"python": "/usr/./python"},
        {"python": "//usr/python"},
        {"python": "/usr/bin/python\nhome = /"},
        {"python": "/usr/bin/python\n"},
        {"python": "/usr/bin/'python"},
        {"python": "/usr/bin/" + "p" * 600},
        {"python": ["/usr/bin/python"]},
        {"version": "3.12"},
        {"version": "3.12.4\n--index-url=x"},
        {"version": 3},
        {"version": "9" * 5000},
        {"libc": ["glibc", "2"]},
        {"libc": ["glibc"]},
        {"libc": ["bionic", "2.36"]},
        {"libc": "musl"},
        {"machine": "../x"},
        {"magic": None},
        {"abi": "a b"},
        {"folders": "/usr"},
        {"folders": ["/usr/lib'); import os; os.system('x') #"]},
        {"folders": ["/usr/lib\nimport os"]},
        {"folders": ["/usr/lib"] * 17},
        {"folders": [{}]},
        {"distributions": {}},
        {"distributions": [[]] * 5001},
    ],
)
def test_what_it_cannot_be_is_not_believed(changes: dict[str, Any]) -> None:
    with pytest.raises(RunFailedError, match="is not understood"):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"implementation": "PyPy"}, "The Python of its image is PyPy 3.12.4, not a plain CPython"),
        ({"implementation": "CPythont"}, "is CPythont 3.12.4"),
        ({"version": "3.7.9"}, "is CPython 3.7.9, not a plain CPython from 3.8 on"),
        ({"machine": "s390x"}, f"is for s390x, and this node is {platform.machine()}"),
    ],
)
def test_a_python_that_nothing_is_built_for_is_named(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RunFailedError, match=reason) as caught:
        read(**changes)
    assert "Use another image, or leave out requirements" in caught.value.message


def test_a_distribution_that_is_none_is_as_good_as_not_there(tmp_path: Path) -> None:
    requires = ["fine>=1", "x @ file:///etc/passwd", "-e .", "a\nProvides-Extra: b", 7, "a" * 1000, "a ;" + " " * 200]
    layer = read(
        distributions=[
            ["Fi_ne", "1.0", requires, ["x"]],
            ["fi-ne", "2.0", [], []],
            ["../../x", "1.0", [], []],
            ["x/y", "1.0", [], []],
            ["a", "1.0/../..", [], []],
            ["b", "1.0\nName: c", [], []],
            ["c", "1.0", "requires", []],
            ["d", "1.0", [], ["x\ny"]],
            ["e"],
            "nonsense",
            None,
        ]
    )
    assert {name: (each.version, each.requires) for name, each in layer.packages.items()} == {
        "fi-ne": ("1.0", ("fine>=1",))
    }
    target = layer.plan_target(tmp_path)
    assert target.platform == layer.platform
    packages = venvs.packages_in(tmp_path / "layer", venvs.THIS)
    assert {path.name for path in packages.iterdir()} == {"Fi_ne-1.0.dist-info", "_manylinux.py"}
    assert [path.name for path in tmp_path.iterdir()] == ["layer"]


@pytest.mark.parametrize(
    ("libc", "version", "name"),
    [
        ("glibc", (2, 17), "manylinux_2_17"),
        ("glibc", (2, 30), "manylinux_2_28"),
        ("glibc", (2, 36), "manylinux_2_36"),
        ("glibc", (2, 99), "manylinux_2_40"),
        ("glibc", (2, 12), ""),
        ("musl", (1, 2), "unknown-linux-musl"),
        ("musl", (1, 1), ""),
    ],
)
def test_an_installer_says_what_it_has_no_packages_for(libc: str, version: tuple[int, int], name: str) -> None:
    layer = read(libc=[libc, ".".join(map(str, version))])
    uv = Uv("uv", "uv 0")
    assert bool(uv.cannot(layer.platform)) == (not name)
    if name:
        command = uv.plan(Target("python", layer.platform), Path("/f"), Path("/f/r.txt"))
        assert command[-4:] == ["--python-version", "3.12.4", "--python-platform", f"{platform.machine()}-{name}"]
    assert "install tiercel[envs]" in Pip("pip 0").cannot(Platform("3.0.0", "x86_64", libc, version))

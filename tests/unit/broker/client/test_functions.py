"""Functions as jobs: what travels, what is refused, and that another process can call it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tiercel
from tiercel.broker.client.functions import FUNCTION, PROGRAM
from tiercel.broker.client.projects.packing import pack
from tiercel.core.errors import InvalidSpecError

FACTOR = 3
LOCK = threading.Lock()


def helper(width: int) -> int:
    return width * FACTOR


@tiercel.job(endpoint="digits", metric="accuracy", tiers=[0.9], resources={"memory": "3GiB"})
def train(width: int = 2, *, note: str = "none") -> int:
    """Train it."""
    print("width", helper(width), "note", note)
    return helper(width)


@tiercel.job(endpoint="digits", metric="accuracy", tiers=[0.9])
def locked() -> None:
    """Need something that cannot travel."""
    with LOCK:
        pass


def folder_of(spec: tiercel.JobSpec) -> Path:
    assert spec.project is not None
    return Path(spec.project.folder)


def test_here_it_is_the_function_that_it_was() -> None:
    assert train(5) == 15
    assert train.__doc__ == "Train it."


def test_it_travels_with_what_its_module_defines_and_needs_nothing_of_it(tmp_path: Path) -> None:
    spec = train.with_arguments(7, note="kept")
    assert (spec.name, spec.command, spec.resources.memory_bytes) == ("train", ("python", PROGRAM), 3 * 1024**3)
    # -I and -S: neither this repository nor any installed package is to be found.
    start = f"import sys; sys.path.insert(0, {str(folder_of(spec))!r}); import run_function"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", start],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "width 21 note kept\n"


def test_the_same_call_is_the_same_project_and_another_is_another() -> None:
    one, same, other = train.with_arguments(1), train.with_arguments(1), train.with_arguments(2)
    assert one.project == same.project
    assert folder_of(one) == folder_of(same) != folder_of(other)
    packed = pack(one.project, 10**6) if one.project is not None else None
    assert packed is not None
    assert packed.left_out == {}
    assert packed.size_bytes < 200_000


def test_what_cannot_travel_is_said_before_anything_is_sent() -> None:
    with pytest.raises(InvalidSpecError, match=r"the function 'locked' cannot be sent \(.*lock.*\); make"):
        locked.with_arguments()


def test_another_version_of_python_is_told_which_one_it_was(tmp_path: Path) -> None:
    spec = train.with_arguments()
    text = (folder_of(spec) / PROGRAM).read_text()
    (tmp_path / PROGRAM).write_text(text.replace(f"!= {sys.version_info[:2]}", "!= (3, 9)"))
    (tmp_path / FUNCTION).write_bytes(b"not a pickle at all")
    done = subprocess.run([sys.executable, str(tmp_path / PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "The function was submitted by Python" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("field", ["script", "module", "command", "project", "arguments"])
def test_a_function_is_all_that_runs(field: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"{field}: the function itself is what runs"):
        tiercel.job(endpoint="e", metric="accuracy", tiers=[0.5], **{field: "x"})

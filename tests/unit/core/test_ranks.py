from __future__ import annotations

from typing import Any

import pytest

from testing.jobs import make_spec
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Resources, Script
from tiercel.core.projects import Project
from tiercel.core.ranks import MAX_RANKS, ranks_of
from tiercel.core.validation import validate_spec

TWO_DEVICES = Resources(accelerators=2)
FOUR_CORES = Resources(cpu_cores=3.5)
PROJECT = Project("0" * 64)
LAUNCHER = ("python", "-m", "torch.distributed.run", "train.py")


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ({}, 1),
        ({"resources": Resources(accelerators=1)}, 1),
        ({"resources": TWO_DEVICES}, 2),
        ({"resources": TWO_DEVICES, "module": "", "script": Script("train.py", b"1")}, 2),
        ({"resources": TWO_DEVICES, "module": "", "project": PROJECT, "command": ("python", "train.py")}, 2),
        ({"resources": TWO_DEVICES, "module": "", "project": PROJECT, "command": ("python", "-m", "package")}, 2),
        ({"resources": TWO_DEVICES, "module": "", "project": PROJECT, "command": LAUNCHER}, 1),
        ({"resources": TWO_DEVICES, "module": "", "project": PROJECT, "command": ("torchrun", "train.py")}, 1),
        ({"resources": TWO_DEVICES, "module": "", "image": "i", "command": ("python", "train.py")}, 1),
        ({"resources": TWO_DEVICES, "module": "", "image": "i"}, 1),
        ({"resources": TWO_DEVICES, "ranks": 1}, 1),
        ({"resources": FOUR_CORES, "ranks": 3}, 3),
    ],
)
def test_as_how_many_a_program_is_started(changes: dict[str, Any], ranks: int) -> None:
    assert ranks_of(make_spec(**changes)) == ranks


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 1, "module": "", "image": "i", "runtime": "docker"},
        {"ranks": 2, "resources": TWO_DEVICES},
        {"ranks": 4, "resources": FOUR_CORES},
        {"ranks": 4, "resources": FOUR_CORES, "module": "", "script": Script("train.py", b"1")},
        {"ranks": 4, "resources": FOUR_CORES, "module": "", "project": PROJECT, "command": ("python", "train.py")},
        {"resources": Resources(cpu_cores=0.5, accelerators=8)},
    ],
)
def test_what_is_taken(changes: dict[str, Any]) -> None:
    validate_spec(make_spec(**changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ranks": -1}, "-1 is not a number of processes from 1 to 64; leave it out, or give one"),
        ({"ranks": 0}, "0 is not a number of processes from 1 to 64; leave it out, or give one"),
        ({"ranks": MAX_RANKS + 1}, "65 is not a number of processes from 1 to 64; leave it out, or give one"),
        (
            {"ranks": 3, "resources": TWO_DEVICES},
            "3 are more than its 2 accelerators; each rank needs one of its own",
        ),
        (
            {"ranks": 5, "resources": FOUR_CORES},
            "5 are more than its 4 cores; raise resources.cpu_cores, or ask for fewer",
        ),
        (
            {"ranks": 2, "resources": FOUR_CORES, "module": "", "image": "i", "runtime": "docker"},
            (
                "an image's own command starts its processes itself; leave it out, or give a script, a module, or in a "
                "project a command such as 'python train.py'"
            ),
        ),
        (
            {"ranks": 2, "resources": FOUR_CORES, "module": "", "project": PROJECT, "command": ("torchrun", "a.py")},
            (
                "the command 'torchrun' starts its processes itself; leave it out, or give a script, a module, or in a "
                "project a command such as 'python train.py'"
            ),
        ),
        (
            {"ranks": 2, "resources": FOUR_CORES, "module": "torch.distributed.run"},
            (
                "is given, but 'python -m torch.distributed.run' starts ranks itself; leave it out, or name the script "
                "alone"
            ),
        ),
    ],
)
def test_what_is_refused_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        validate_spec(make_spec(**changes))
    assert (caught.value.field, caught.value.message) == ("ranks", f"ranks: {sentence}")

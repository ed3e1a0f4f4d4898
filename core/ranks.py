"""How many ranks a job's program is started as: processes that train one model together, each on a part of the data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tiercel.core.commands import python_program
from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

MAX_RANKS = 64
_LAUNCHERS = frozenset(
    {
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "lightning.fabric.cli",
        "torch.distributed.launch",
        "torch.distributed.run",
        "torch.distributed.launcher",
    }
)
"""Modules that start ranks themselves."""


def ranks_of(spec: JobSpec) -> int:
    """As how many ranks the program of a job is started."""
    if spec.ranks is not None:
        return spec.ranks
    script, module = _python_of(spec)
    is_one_of_many = bool(script or module) and module not in _LAUNCHERS
    return max(1, spec.resources.accelerators) if is_one_of_many else 1


def validate_ranks(spec: JobSpec) -> None:
    """Check how many ranks a job asks for.

    Raises:
        InvalidSpecError: There cannot be so many, or the program cannot be started as several.
    """
    if spec.ranks is None:
        return
    if not 1 <= spec.ranks <= MAX_RANKS:
        raise wrong_field(
            "ranks", f"{spec.ranks} is not a number of processes from 1 to {MAX_RANKS}; leave it out, or give one"
        )
    if spec.ranks == 1:
        return
    script, module = _python_of(spec)
    if module in _LAUNCHERS:
        raise wrong_field(
            "ranks", f"is given, but 'python -m {module}' starts ranks itself; leave it out, or name the script alone"
        )
    if not (script or module):
        what = f"the command {spec.command[0]!r}" if spec.command else "an image's own command"
        raise wrong_field(
            "ranks",
            f"{what} starts its processes itself; leave it out, or give a script, a module, or in a project a command "
            "such as 'python train.py'",
        )
    accelerators, cores = spec.resources.accelerators, math.ceil(spec.resources.cpu_cores)
    if accelerators and spec.ranks > accelerators:
        raise wrong_field(
            "ranks", f"{spec.ranks} are more than its {accelerators} accelerators; each rank needs one of its own"
        )
    if not accelerators and spec.ranks > cores:
        raise wrong_field(
            "ranks", f"{spec.ranks} are more than its {cores} cores; raise resources.cpu_cores, or ask for fewer"
        )


def _python_of(spec: JobSpec) -> tuple[str, str]:
    """Script and module of a Python program, as runs are started with them."""
    found = python_program(spec.command) if spec.project is not None else None
    if found is not None:
        return found.script, found.module
    return (spec.script.name if spec.script is not None else ""), spec.module

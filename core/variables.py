"""Variables that a job puts into the environment of its program: which names it may give, and how much."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VARIABLES = 64
MAX_NAME_CHARACTERS = 128
MAX_ENV_BYTES = 32 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Each with what says it instead.
_SET_BY_US = {
    "CUDA_DEVICE_ORDER": "resources.accelerators gives devices",
    "CUDA_VISIBLE_DEVICES": "resources.accelerators gives devices",
    "HOME": "each run has a folder of its own",
    "MKL_NUM_THREADS": "resources.cpu_cores says how many threads compute",
    "NVIDIA_VISIBLE_DEVICES": "resources.accelerators gives devices",
    "OMP_NUM_THREADS": "resources.cpu_cores says how many threads compute",
    "ORT_DISABLE_TELEMETRY": "it is always off",
    "PATH": "the node says where its programs are",
}
_RESERVED = {
    "TIERCEL_": "names that begin like this are Tiercel's own",
    # The loader heeds these in whatever is started first, which is what puts a run within its limits.
    "LD_": "it would take effect before the limits of the run do; let the program set it for what it starts",
    "CUDA_MPS_": "the node says how accelerators are shared",
}


def validate_name(field: str, name: str) -> None:
    """Check the name of a variable that a job gives.

    Raises:
        InvalidSpecError: It is not a variable's name, or one that Tiercel sets itself.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        raise wrong_field(
            field,
            f"{name[:MAX_NAME_CHARACTERS]!r} is not a variable's name; use 1 to {MAX_NAME_CHARACTERS} letters, digits "
            "and '_', not beginning with a digit",
        )
    reserved = _SET_BY_US.get(name) or next((why for head, why in _RESERVED.items() if name.startswith(head)), "")
    if reserved:
        raise wrong_field(f"{field}.{name}", f"cannot be set by a job: {reserved}")


def validate_env(env: Mapping[str, str]) -> None:
    """Check the variables that a job gives, with their values.

    Raises:
        InvalidSpecError: There are too many, a name is wrong, or a value is none.
    """
    if len(env) > MAX_VARIABLES:
        raise wrong_field("env", f"has {len(env)} entries; at most {MAX_VARIABLES} are taken")
    for name, value in env.items():
        validate_name("env", name)
        if "\0" in value:
            raise wrong_field(f"env.{name}", "contains a NUL character, which no environment can carry")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise wrong_field(f"env.{name}", "is not text in UTF-8")
    size = sum(len(name) + len(value.encode()) for name, value in env.items())
    if size > MAX_ENV_BYTES:
        raise wrong_field("env", f"has {size} bytes together; at most {MAX_ENV_BYTES} are taken, put more into a file")

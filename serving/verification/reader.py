"""What runs in the process that reads one artefact, after the fork. It ends with the artefact's check."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any, NoReturn

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving import memory
from tiercel.serving.verification import checks
from tiercel.serving.verification.verdict import read_batching

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Loading a model takes its file's bytes as they are read, as tensors, and as the kernels want them.
_PER_BYTE = 4
# Weights beside it are mapped, which a limit counts whether they are in memory or not, and made what kernels want.
_PER_DATA_BYTE = 3


def read_and_end(request: dict[str, Any], model: int, answer_to: int, *, parent: int) -> NoReturn:
    """Check an artefact, write what was found as JSON, and end this process.

    Args:
        request: What the server asked, see :meth:`.Verifier.verify`.
        model: Descriptor of the ONNX file.
        answer_to: Descriptor to write the verdict to, or why there is none.
        parent: Pid of the process that forked this one.
    """
    status = 1
    try:
        end_with_parent(parent)  # nobody is left over when it dies
        leave_all_but(model, answer_to)
        for descriptor in (1, 2):
            os.dup2(0, descriptor)
        os.write(answer_to, json.dumps(_check(request, model)).encode())
        status = 0
    finally:
        os._exit(status)


def leave_all_but(*kept: int) -> None:
    """Close what the parent had open, its sockets above all, and read nothing from where it reads."""
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 0)
    for path in Path("/proc/self/fd").iterdir():
        descriptor = int(path.name)
        if descriptor > 2 and descriptor not in kept:  # those of output are silenced where nobody is trusted
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the one that forked it ends; end it where that has ended already."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _check(request: dict[str, Any], model: int) -> dict[str, Any]:
    try:
        _limit(request, model)
        verdict = checks.verify(
            str(request["path"]) or f"/proc/self/fd/{model}",
            Path(request["reference"]),
            int(request["max_reference_bytes"]),
            int(request["batch_rows"]),
            read_batching(request["known"], int(request["batch_rows"])),
            is_compared=bool(request["is_compared"]),
        )
    except ArtefactRefusedError as error:
        return {"refused": error.message}
    except (MemoryError, RecursionError) as error:
        return {"refused": f"checking it takes more memory than one model may have here ({type(error).__name__})"}
    except Exception as error:  # whatever an artefact provokes is a reason to refuse it
        return {"refused": f"the check failed: {type(error).__name__}: {error}"[:500]}
    return dataclasses.asdict(verdict)


def _limit(request: dict[str, Any], model: int) -> None:
    seconds = int(request["timeout"]) + 5
    data_room = _PER_DATA_BYTE * int(request["data_bytes"])
    room = memory.private_bytes() + int(request["run_bytes"]) + _PER_BYTE * os.fstat(model).st_size + data_room
    for which, amount in (
        (resource.RLIMIT_AS, int(request["memory_bytes"]) + data_room),
        (resource.RLIMIT_DATA, room + 4 * int(request["max_reference_bytes"])),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CPU, seconds),
    ):
        _, hard = resource.getrlimit(which)
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(which, (amount, amount))
    signal.alarm(seconds)

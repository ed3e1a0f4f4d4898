"""Brings folders of this machine into a container that was started without them; a program that lives for a moment.

What is brought in is a mount of the container and of nobody else: on the machine itself nothing is mounted, so that
nothing can be left over there. Run by its path and without any package, as root. Once it is in the container it makes
system calls and nothing else: every file that it could open there is the image's.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import sys
from typing import Any, Final, NamedTuple

GONE: Final = 3
"""The exit code where the container has ended."""

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_OPEN_TREE_CLONE: Final = 1
_OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
_MOVE_MOUNT_EMPTY_PATHS: Final = 0x04 | 0x40
_CLONE_NEWNS: Final = 0x20000
_MOUNT_ATTR_RDONLY: Final = 0x01
_MOUNT_ATTR_NOSUID: Final = 0x02
_MOUNT_ATTR_NODEV: Final = 0x04
_MS_PRIVATE: Final = 1 << 18
# System calls, which have had the same numbers everywhere since all machines share a list of them.
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
_HERE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """What the kernel calls ``struct mount_attr``."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def main() -> None:
    """Do what standard input says; what went wrong is told by standard error and the exit code.

    With nothing to bring in it only tries whether it could.
    """
    try:
        order = json.loads(sys.stdin.buffer.read())
        process = _find(order["pid"], order["container"])
        trees = [_clone(each) for each in order["mounts"]]
        if not trees:
            _clone({"source": os.devnull, "read_only": True})
        _call("setns", _libc.setns, process, _CLONE_NEWNS)
        for tree, each in zip(trees, order["mounts"], strict=True):
            target = _make(each["place"], each["below"], is_folder=tree.is_folder)
            _system_call("move_mount", _MOVE_MOUNT, tree.descriptor, b"", target, b"", _MOVE_MOUNT_EMPTY_PATHS)
    except ProcessLookupError:
        os._exit(GONE)
    except Exception as error:  # told without a traceback, which would read files of the image
        os.write(2, str(getattr(error, "strerror", None) or type(error).__name__).encode())
        os._exit(1)
    os._exit(0)


def _find(pid: int, container: str) -> int:
    """The first process of a container, held so that nobody else can come by its number."""
    process = os.pidfd_open(pid)
    try:
        with open(f"/proc/{pid}/cgroup") as groups:  # noqa: PTH123 - pathlib takes as long to import as all the rest
            is_it = container in groups.read()
        namespaces = [_namespace(pid, kind) != _namespace(os.getpid(), kind) for kind in ("mnt", "user")]
    except FileNotFoundError:
        raise ProcessLookupError from None
    signal.pidfd_send_signal(process, 0)  # it lives still: all that was read is about it
    if not is_it or namespaces != [True, False]:
        raise OSError(0, "the engine's containers are not below this machine's own root")
    return process


def _namespace(pid: int, kind: str) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/ns/{kind}")  # noqa: PTH116
    return found.st_dev, found.st_ino


class _Tree(NamedTuple):
    """What was mounted at a path, mounted nowhere yet."""

    descriptor: int
    is_folder: bool


def _clone(each: dict[str, Any]) -> _Tree:
    """A copy of what is mounted at a path, which has its own rights, and hears of nothing that is mounted later."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_SYMLINK_NOFOLLOW
    tree = _system_call("open_tree", _OPEN_TREE, _AT_FDCWD, os.fsencode(each["source"]), flags)
    rights = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if each["read_only"] else 0)
    attributes = _Attributes(rights, 0, _MS_PRIVATE, 0)
    size = ctypes.sizeof(attributes)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    _system_call("mount_setattr", _MOUNT_SETATTR, tree, b"", flags, ctypes.byref(attributes), size)
    mode = os.fstat(tree).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(0, "what is to be brought in is a link")
    return _Tree(tree, stat.S_ISDIR(mode))


def _make(place: str, below: list[str], *, is_folder: bool) -> int:
    """The folder or file to mount at, in a place that is there for it and that only the machine's root can write to."""
    found = os.open(place, _HERE | os.O_DIRECTORY)
    if os.fstat(found).st_dev == os.stat("/").st_dev:  # noqa: PTH116
        raise OSError(0, "it has no place for the run's folders")
    for number, name in enumerate(below, start=1):
        if is_folder or number < len(below):
            os.mkdir(name, 0o755, dir_fd=found)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=found))
        found = os.open(name, _HERE, dir_fd=found)
    return found


def _system_call(name: str, number: int, *arguments: Any) -> int:
    return _call(name, _libc.syscall, number, *arguments)


def _call(name: str, function: Any, *arguments: Any) -> int:
    result = function(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(result)


if __name__ == "__main__":
    main()

"""Which process is meant: a number alone may belong to another by now, and the wall clock may have been set since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_BOOT_ID: Final = "sys/kernel/random/boot_id"
# Of /proc/PID/stat, counted from the field after the command's name.
_START_TICKS_FIELD: Final = 19


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, told apart from all others of its machine, of this boot and of others."""

    boot_id: str  # the kernel's name for the time since it booted
    pid: int  # its number
    start_ticks: int  # when it began, in the kernel's ticks since it booted

    def is_alive(self, proc: Path = _PROC) -> bool:
        """Whether this very process is there, be it as a zombie."""
        return identity_of(self.pid, proc) == self


def identity_of(pid: int, proc: Path = _PROC) -> ProcessIdentity | None:
    """The identity of the process that has a number now; None if there is none."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
        boot_id = (proc / _BOOT_ID).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may itself have any of them, and blanks.
    fields = stat.rpartition(")")[2].split()
    return ProcessIdentity(boot_id, pid, int(fields[_START_TICKS_FIELD]))

"""Numbers as Prometheus reads them: text format 0.0.4 (Prometheus, Exposition formats)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its samples."""

    name: str  # in full, with its unit; that of a counter, and of nothing else, ends in ``_total``
    documentation: str  # what it is, without a full stop
    samples: Sequence[tuple[Mapping[str, str], float]]  # labels and value of each

    @property
    def kind(self) -> str:
        """What Prometheus takes it for: ``counter`` or ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"


def to_text(families: Iterable[Family]) -> str:
    """What a scrape is answered with; label values may hold anything."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def process_families() -> list[Family]:
    """What Prometheus' own libraries tell of the process that asks, under their names."""
    import psutil

    process = psutil.Process()
    with process.oneshot():
        cpu, memory = process.cpu_times(), process.memory_info()
        return [
            _one("process_cpu_seconds_total", "CPU time, user and system", cpu.user + cpu.system),
            _one("process_resident_memory_bytes", "Memory in RAM", memory.rss),
            _one("process_virtual_memory_bytes", "Memory that it has addresses for", memory.vms),
            _one("process_start_time_seconds", "When it was started, since the Unix epoch", process.create_time()),
            _one("process_open_fds", "Open file descriptors", process.num_fds()),
            _one("process_max_fds", "File descriptors that it may open", process.rlimit(psutil.RLIMIT_NOFILE)[0]),
        ]


def _one(name: str, documentation: str, value: float) -> Family:
    return Family(name, documentation, [({}, value)])


def _lines(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {family.documentation}."
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{family.name}{{{inside}}} {float(value)!r}" if inside else f"{family.name} {float(value)!r}"


def _escaped(text: str) -> str:
    # A lone surrogate, as of a file's name that is no UTF-8, is no character that could be sent.
    whole = text.encode("utf-8", "replace").decode()
    return whole.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

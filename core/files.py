"""Files that stay: what a run leaves behind that its job's ``outputs`` name, and how much of it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a job that is kept."""

    path: str  # relative to the working directory of the job's program, with ``/`` between its parts
    size_bytes: int  # its size
    sha256: str  # of its content, hexadecimal
    run_id: str = ""  # the run that left it behind
    kept_at: float = 0.0  # since when it is kept, seconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What is kept."""

    job_files: int = 1_000  # files of a job
    job_bytes: int = 1024**3  # what they may have together
    # What the files of all jobs of a tenant may have together; each file counts, whatever is in it.
    tenant_bytes: int = 20 * 1024**3


@dataclass(frozen=True, slots=True)
class Admission:
    """Which files are kept."""

    kept: tuple[KeptFile, ...]  # those that are
    left_out: Mapping[str, str]  # the others by path, each with the reason in plain words


def admit(
    offered: Iterable[KeptFile], known: Mapping[str, KeptFile], tenant_bytes: int, limits: FileLimits
) -> Admission:
    """Which files of a run are kept: in the order of their paths, for as long as there is room for them.

    A file takes the place of an earlier one of the same path; where there is no room for it, the earlier one stays.

    Args:
        offered: What the run left behind.
        known: What is kept of the job, by path.
        tenant_bytes: What is kept of all jobs of the tenant, this one included.
        limits: What may be.
    """
    kept: list[KeptFile] = []
    left_out: dict[str, str] = {}
    paths, job_bytes = set(known), sum(file.size_bytes for file in known.values())
    for file in sorted(offered, key=lambda each: each.path):
        before = known.get(file.path)
        more = file.size_bytes - (before.size_bytes if before is not None else 0)
        if len(paths | {file.path}) > limits.job_files:
            left_out[file.path] = f"{limits.job_files} files of the job are kept already"
        elif more > 0 and job_bytes + more > limits.job_bytes:
            left_out[file.path] = f"the files of a job may have {limits.job_bytes} bytes together"
        elif more > 0 and tenant_bytes + more > limits.tenant_bytes:
            left_out[file.path] = f"the files of a tenant may have {limits.tenant_bytes} bytes together"
        else:
            paths.add(file.path)
            job_bytes, tenant_bytes = job_bytes + more, tenant_bytes + more
            kept.append(file)
    return Admission(tuple(kept), left_out)

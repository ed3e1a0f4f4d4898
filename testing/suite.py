"""The whole suite, as ``make test`` runs it: two lanes side by side, then the tests that nothing may run beside.

Tests of the product wait more than they compute, so there are several for each core. Those that only compute take what
these leave of the machine: alone, each kind would leave half of it idle.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testing import again, needs, rewriting

ROOT: Final = Path(__file__).parents[1]
COMPUTING: Final = ("tests/unit", "tests/property")
_PYTEST: Final = (sys.executable, "-m", "pytest")
_TESTS_FAILED: Final = 1  # pytest's exit status for it; others mean that it could not run them
_ALONE_SECONDS: Final = 1200.0


@dataclass(frozen=True, slots=True)
class Lane:
    """Some of the tests, in processes of their own; each deals them out file by file, in the order of folders."""

    name: str
    workers: int
    arguments: tuple[str, ...]

    @property
    def cache(self) -> Path:
        """pytest's, which has the tests that failed."""
        return ROOT / "build" / "pytest" / self.name

    @property
    def log(self) -> Path:
        """What it said, where something else has the terminal."""
        return self.cache.with_suffix(".log")

    @property
    def command(self) -> tuple[str, ...]:
        """What runs it."""
        dealing = (f"--numprocesses={self.workers}", "--dist=loadfile", "--no-loadscope-reorder")
        return (*_PYTEST, *dealing, "-m", "not alone", "-o", f"cache_dir={self.cache}", *self.arguments)


def lanes(cores: int) -> tuple[Lane, Lane]:
    """The one of the product, and the one that only computes; together all tests but those that run alone."""
    waiting = Lane("product", 3 * cores, tuple(f"--ignore={folder}" for folder in COMPUTING))
    return waiting, Lane("computing", cores, ("-q", *COMPUTING))


def failure_of(statuses: Sequence[int], caches: Sequence[Path], root: Path = ROOT) -> int:
    """The exit status of lanes that ended: 0 where all of them ran, and what failed passed alone.

    Args:
        statuses: Of the lanes; negative where a signal ended one.
        caches: Where each lane left the names of tests that failed.
        root: The folder that tests are named from.
    """
    for status in statuses:
        if status not in {0, _TESTS_FAILED}:
            return status
    return again.main(caches, root) if any(statuses) else 0


def main() -> int:
    """Run all.

    Returns:
        The exit status: 0 only if every test passed, a few of them perhaps only when nothing ran beside them.
    """
    product, computing = lanes(os.cpu_count() or 1)
    for path in (needs.SKIPPED, *(again.failed_of(lane.cache) for lane in (product, computing))):
        path.unlink(missing_ok=True)
    computing.log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(
        f"Tests that only compute run beside the others; what they say comes behind, from {computing.log}\n"
    )
    sys.stdout.flush()
    rewriting.main()
    # The image for containers is made beside the first tests, which need none.
    image = (sys.executable, "-m", "testing.docker")
    nicely = ("nice", "-n", "10")
    with (
        computing.log.open("wb") as log,
        subprocess.Popen(image, cwd=ROOT),
        subprocess.Popen((*nicely, *computing.command), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT) as beside,
        subprocess.Popen(product.command, cwd=ROOT) as first,
    ):
        statuses = first.wait(), beside.wait()
    sys.stdout.write(computing.log.read_text(errors="replace"))
    sys.stdout.flush()
    if status := failure_of(statuses, [product.cache, computing.cache]):
        return status
    # Only the files that have any: to collect all of them takes as long as some of these tests.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.alone" in path.read_text()]
    alone = subprocess.run((*_PYTEST, "-m", "alone", *files), cwd=ROOT, timeout=_ALONE_SECONDS)
    needs.main()
    return alone.returncode


if __name__ == "__main__":
    sys.exit(main())

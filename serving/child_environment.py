"""What processes that read hostile files find in their environment: no secret of the server's."""

from __future__ import annotations

import os
from typing import Final

_NAMES: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "GLIBC_TUNABLES")


def child_environment() -> dict[str, str]:
    """The variables that a Python process needs to begin, on one thread of the libraries that count."""
    found = {name: os.environ[name] for name in _NAMES if name in os.environ}
    return found | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

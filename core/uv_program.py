"""Where uv is, which builds environments and reads lock files."""

from __future__ import annotations

import shutil


def find_uv() -> str | None:
    """The path of uv: of the package that is installed here, else of the command; None where there is neither."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")

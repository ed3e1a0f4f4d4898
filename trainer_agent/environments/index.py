"""Where packages come from, as the operator of a node says it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Of an address: who asks there, which nobody has to read.
_CREDENTIALS: Final = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """Where packages come from."""

    url: str = ""  # an index; empty for PyPI
    wheels: Path | None = None  # a folder with packages that are taken as well, or None
    offline: bool = False  # nothing is asked for over the network: packages come from the folder alone
    # Packages that have to be built are taken too. Their code then runs on the node before any job does.
    sdists: bool = False

    def identity(self) -> list[object]:
        """What tells it from another one, the names of the packages in its folder among it."""
        names = sorted(path.name for path in self.wheels.iterdir()) if self.wheels and self.wheels.is_dir() else []
        return [self.url, str(self.wheels or ""), self.offline, self.sdists, names]

    def uv_settings(self) -> str:
        """The same as a file for uv."""
        lines = [f"index-url = {json.dumps(self.url)}"] if self.url else []
        if self.wheels is not None:
            lines.append(f"find-links = [{json.dumps(str(self.wheels))}]")
        if self.offline:
            lines += ["no-index = true", "offline = true"]
        if not self.sdists:
            lines.append("no-build = true")
        return "".join(f"{line}\n" for line in lines)

    def pip_settings(self) -> str:
        """The same as a file for pip."""
        lines = ["[global]"]
        if self.url:
            lines.append(f"index-url = {self.url.replace('%', '%%')}")
        if self.wheels is not None:
            lines.append(f"find-links = {self.wheels}")
        if self.offline:
            lines.append("no-index = true")
        if not self.sdists:
            lines.append("only-binary = :all:")
        return "".join(f"{line}\n" for line in lines)


def without_credentials(text: str) -> str:
    """A text, its addresses without who asks there."""
    return _CREDENTIALS.sub("//", text)

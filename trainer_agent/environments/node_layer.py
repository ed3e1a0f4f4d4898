"""What environments are built over: the interpreter of the agent, and the packages that are installed beside it."""

from __future__ import annotations

import importlib.metadata
import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_SEPARATORS: Final = re.compile(r"[-_.]+")


def canonical(name: str) -> str:
    """The name of a distribution as packages compare it."""
    return _SEPARATORS.sub("-", name).lower()


@dataclass(frozen=True, slots=True)
class NodeLayer:
    """What a node has itself.

    Attributes:
        python: Its interpreter.
        abi: What packages for it are built for, with its version.
        folders: Where its packages are.
        distributions: Their versions, by canonical name.
        read_at: When the folders had changed last, in nanoseconds, when this was read.
    """

    python: str
    abi: str
    folders: tuple[str, ...]
    distributions: Mapping[str, str]
    read_at: tuple[int, ...]

    @classmethod
    def read(cls, known: Self | None = None) -> Self:
        """Look what there is now, which takes a tenth of a second.

        Args:
            known: What there was before; it is the same still where nothing was installed or removed since.
        """
        folders = [*site.getsitepackages()]
        if site.ENABLE_USER_SITE:
            folders.append(site.getusersitepackages())
        folders = [folder for folder in folders if Path(folder).is_dir()]
        changed_at = tuple(Path(folder).stat().st_mtime_ns for folder in folders)
        if known is not None and (known.folders, known.read_at) == (tuple(folders), changed_at):
            return known
        found = importlib.metadata.distributions(path=folders)
        versions = {canonical(each.name): each.version for each in found if each.name}
        abi = f"{sys.version} {sysconfig.get_config_var('SOABI')} {sysconfig.get_platform()}"
        return cls(sys.executable, abi, tuple(folders), dict(sorted(versions.items())), changed_at)

    def path_file(self) -> str:
        """A ``.pth`` file that puts it behind the packages of an environment, with its own such files.

        A line with a path alone would leave those out, and with them packages that are installed in place.
        """
        lines = (f"import site; site.addsitedir({folder!r})" for folder in self.folders)
        return "".join(f"{line}\n" for line in lines)

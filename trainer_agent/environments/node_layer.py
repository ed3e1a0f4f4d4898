"""What environments are built over: the interpreter of the agent, and the packages that are installed beside it."""

from __future__ import annotations

import importlib.metadata
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from tiercel.trainer_agent.environments.layers import Interpreter, Platform, Target, canonical
from tiercel.trainer_agent.environments.venvs import THIS


@dataclass(frozen=True, slots=True)
class NodeLayer:
    """What a node has itself; see :class:`~tiercel.trainer_agent.environments.layers.Layer`."""

    python: str  # its interpreter, perhaps that of an environment
    abi: str  # what packages for it are built for, with its version
    folders: tuple[str, ...]  # where its packages are
    distributions: Mapping[str, str]  # their versions, by canonical name
    read_at: tuple[int, ...]  # when the folders had changed last, in nanoseconds, when this was read

    owner: ClassVar[str] = "the node"
    advice: ClassVar[str] = "ask for what goes with that version, or run the job in an image of its own"
    interpreter: ClassVar[Interpreter] = THIS
    platform: ClassVar[Platform | None] = None
    inside: ClassVar[str] = ""
    is_compiled_here: ClassVar[bool] = True

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

    def identity(self) -> list[object]:
        """See the class."""
        return [self.python, self.abi, self.folders, dict(self.distributions)]

    def plan_target(self, folder: Path) -> Target:
        """See the class."""
        del folder
        return Target(self.python)

    def limit_installer(self, venv: Path) -> None:
        """See the class."""

"""What of a folder is not part of a project: what git ignores, what .tiercelignore says, and what is never wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from pathspec import GitIgnoreSpec

GITIGNORE = ".gitignore"
TIERCELIGNORE = ".tiercelignore"
BUILT_IN = (
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "*.pyc", ".ipynb_checkpoints", "node_modules", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", ".DS_Store",
)  # fmt: skip
_MAX_RULES_BYTES = 1024**2


_AnyRules = TypeVar("_AnyRules", bound="IgnoreRules")


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one file: what is said of what it leaves out, its folder from the outermost one, and the rules."""

    source: str
    folder: str
    spec: GitIgnoreSpec


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """All rules that hold in a folder; of several that match, the last one counts, and .tiercelignore comes last."""

    place: str  # path of the folder from the outermost one that has rules; empty or with a slash at its end
    git: tuple[_Rules, ...]  # of git's files, the outermost first
    own: tuple[_Rules, ...]  # of ours, the outermost first

    @classmethod
    def of(cls, project: Path) -> Self:
        """The rules of a project's folder, those of the git repository around it included.

        Raises:
            OSError: A file with rules cannot be read.
        """
        root = next((parent for parent in (project, *project.parents) if (parent / ".git").exists()), project)
        rules = cls("", (_Rules("left out by default", "", GitIgnoreSpec.from_lines(BUILT_IN)),), ())
        rules = _with_files(rules, root)
        current = root
        for part in project.relative_to(root).parts:
            current /= part
            rules = rules.below(part, current)
        return rules

    def below(self, name: str, folder: Path) -> Self:
        """The rules of a folder in this one.

        Raises:
            OSError: A file with rules cannot be read.
        """
        return _with_files(replace(self, place=f"{self.place}{name}/"), folder)

    def why_ignored(self, name: str, *, is_folder: bool) -> str:
        """Why something in this folder is left out; empty if it is not."""
        path = f"{self.place}{name}{'/' if is_folder else ''}"
        return _last(self.own, path, _last(self.git, path, ""))


def _with_files(rules: _AnyRules, folder: Path) -> _AnyRules:
    git = (*rules.git, *_read(folder / GITIGNORE, rules.place))
    own = (*rules.own, *_read(folder / TIERCELIGNORE, rules.place))
    return replace(rules, git=git, own=own)


def _last(rules: Sequence[_Rules], path: str, before: str) -> str:
    """What the last rule that matches says, or what was said before."""
    for each in reversed(rules):
        matched = each.spec.check_file(path.removeprefix(each.folder)).include
        if matched is not None:
            return each.source if matched else ""
    return before


def _read(file: Path, place: str) -> Sequence[_Rules]:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_RULES_BYTES).decode(errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return ()
    return (_Rules(f"ignored by {place}{file.name}", place, GitIgnoreSpec.from_lines(text.splitlines())),)

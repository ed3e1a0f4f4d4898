"""Packs a folder: the objects of a project, and what was left out of it."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tiercel.broker.client.projects.git import git_state
from tiercel.broker.client.projects.ignoring import IgnoreRules
from tiercel.broker.client.projects.known_hashes import KnownHashes
from tiercel.core.errors import InvalidSpecError
from tiercel.core.projects import (
    MAX_DEPTH,
    MAX_ENTRIES,
    Entry,
    Kind,
    Project,
    encode_folder,
    refuse_project,
    sha256_of,
    stays_inside,
    too_large,
    walk,
)

LARGEST_SHOWN = 5
_ENVIRONMENT = "pyvenv.cfg"


@dataclass(frozen=True, slots=True)
class PackedProject:
    """A project whose files lie on this machine."""

    project: Project  # what a job's spec says of it
    folders: Mapping[str, bytes]  # listings of its folders, by SHA-256; those below another before it, the root last
    files: Mapping[str, tuple[Path, int]]  # where the content of its files lies, and its bytes, by SHA-256
    paths: int  # how many files and links it has
    size_bytes: int  # what they have together
    left_out: Mapping[str, str]  # what is not in it, by path, with the reason

    def entries(self) -> dict[str, Entry]:
        """What is in it, by path."""
        return dict(walk(self.project.sha256, self.folders.__getitem__, limit_bytes=self.size_bytes))


def pack(project: Project, limit_bytes: int) -> PackedProject:
    """Read the folder of a project; blocks while the disk works.

    Args:
        project: The project, with its folder.
        limit_bytes: What its files may have together.

    Raises:
        InvalidSpecError: Something in it cannot be sent, or it is too large; names it and says what to do.
    """
    root = Path(project.folder)
    try:
        if not root.is_dir():
            raise refuse_project(f"{root} is not a folder; give the folder that the job runs from")
        root = root.resolve()
        hashes = KnownHashes(root)
        tree = _Tree(limit_bytes, hashes)
        tree.look(root, "", IgnoreRules.of(root))
        tree.check_size()
        sha256 = tree.listing("")
        hashes.save()
    except OSError as error:
        raise refuse_project(f"{error.filename or root} cannot be read ({error.strerror}); leave it out by a "
                             ".tiercelignore, or make it readable") from error  # fmt: skip
    commit, dirty = git_state(root)
    packed = replace(project, sha256=sha256, commit=commit, dirty=dirty)
    return PackedProject(packed, tree.folders, tree.files, tree.paths, tree.size_bytes, tree.left_out)


@dataclass(slots=True)
class _Tree:
    """What was found: first all that there is, then the content of it."""

    limit_bytes: int
    hashes: KnownHashes
    entries: dict[str, list[tuple[str, Kind, Path]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    folders: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, tuple[Path, int]] = field(default_factory=dict)
    found: int = 0

    @property
    def paths(self) -> int:
        return len(self.sizes)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    def look(self, folder: Path, prefix: str, rules: IgnoreRules) -> None:
        """Find what belongs to the project below a folder, without reading it."""
        if prefix.count("/") >= MAX_DEPTH:
            raise refuse_project(f"{prefix!r} lies more than {MAX_DEPTH} folders deep; move it up")
        here = self.entries[prefix] = []
        for entry in _sorted(folder):
            name = unicodedata.normalize("NFC", entry.name)
            path = f"{prefix}{name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            why = rules.why_ignored(name, is_folder=is_folder) or (_environment(entry.path) if is_folder else "")
            if why:
                self.left_out[f"{path}/" if is_folder else path] = why
                continue
            self.found += 1
            if self.found > MAX_ENTRIES:
                raise refuse_project(
                    f"it has more than {MAX_ENTRIES} files and folders; leave some out by a .tiercelignore"
                )
            kind = _kind(path, entry)
            here.append((name, kind, Path(entry.path)))
            if is_folder:
                self.look(Path(entry.path), f"{path}/", rules.below(name, Path(entry.path)))
            else:
                self.sizes[path] = entry.stat(follow_symlinks=False).st_size if kind is not Kind.LINK else 0

    def check_size(self) -> None:
        """Check that it is not too large.

        Raises:
            InvalidSpecError: It is; names the largest files.
        """
        if self.size_bytes > self.limit_bytes:
            largest = sorted(self.sizes.items(), key=lambda each: -each[1])[:LARGEST_SHOWN]
            raise too_large(self.limit_bytes, largest)

    def listing(self, prefix: str) -> str:
        """SHA-256 of a folder's listing, once all that lies in it was read."""
        data = encode_folder(self._entry(prefix, name, kind, path) for name, kind, path in self.entries[prefix])
        sha256 = sha256_of(data)
        self.folders.setdefault(sha256, data)
        return sha256

    def _entry(self, prefix: str, name: str, kind: Kind, path: Path) -> Entry:
        if kind is Kind.LINK:
            return _link(f"{prefix}{name}", name, str(path.readlink()))
        if kind is Kind.FOLDER:
            sha256 = self.listing(f"{prefix}{name}/")
            return Entry(name, kind, sha256, len(self.folders[sha256]))
        sha256, size = self.hashes.hash_of(path)
        self.files[sha256] = (path, size)
        self.sizes[f"{prefix}{name}"] = size
        return Entry(name, kind, sha256, size)


def _sorted(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from sorted(entries, key=lambda entry: entry.name)


def _environment(folder: str) -> str:
    """A virtual environment is left out whatever its name is: it does not work elsewhere."""
    return "a virtual environment" if os.path.lexists(f"{folder}/{_ENVIRONMENT}") else ""


def _kind(path: str, entry: os.DirEntry[str]) -> Kind:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return Kind.LINK
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    if not stat.S_ISREG(mode):
        raise refuse_project(f"{path!r} is a socket, pipe or device and cannot be sent; leave it out by .tiercelignore")
    return Kind.PROGRAM if mode & stat.S_IXUSR else Kind.FILE


def _link(path: str, name: str, target: str) -> Entry:
    if not stays_inside(path, target):
        raise _leads_out(path, target)
    return Entry(name, Kind.LINK, target)


def _leads_out(path: str, target: str) -> InvalidSpecError:
    return refuse_project(
        f"the symbolic link {path!r} leads out of the folder, to {target!r}, which is not there when the job runs; put "
        "a copy in its place, leave it out by a .tiercelignore, or offer data to jobs as a data set of the node"
    )

"""Projects: a folder by its content, as a tree of objects that are named by their SHA-256.

A file is an object, its bytes. A folder is an object too: the canonical listing of what lies in it
(:func:`encode_folder`). So the hash of the root names the whole project, an unchanged project is one question, and a
changed file changes no more than the folders that lead to it (Merkle, 1987).
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tiercel.core.blobs import is_sha256
from tiercel.core.errors import InvalidSpecError
from tiercel.core.fields import LOCAL
from tiercel.core.figures import size

DEFAULT_PROJECT_BYTES = 256 * 1024**2
MAX_ENTRIES = 20_000
MAX_DEPTH = 64
MAX_FOLDER_BYTES = 4 * 1024**2
MAX_PATH_CHARACTERS = 1024
MAX_LINK_CHARACTERS = 1024
# Objects are sent in messages of at most so much content, and asked for so many at once.
PIECE_BYTES = 1024**2
OBJECTS_AT_A_TIME = 20_000

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Project:
    """The folder that a job runs from, by content."""

    sha256: str = ""  # of its root folder's listing, hexadecimal; empty while it has not been packed
    commit: str = ""  # the git commit that was checked out, hexadecimal; empty where there is none
    dirty: bool = False  # whether files differed from that commit
    # Where it lies on the machine of whoever submits it; known there only.
    folder: str = field(default="", metadata=LOCAL, compare=False)


class Kind(enum.Enum):
    """What an entry of a folder is."""

    FILE = "file"
    PROGRAM = "program"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder of a project."""

    name: str  # its name
    kind: Kind  # a file, a file that may be executed, a folder, or a symbolic link
    content: str  # SHA-256 of the object, hexadecimal; of a link what it points to
    size_bytes: int = 0  # of the object; 0 for a link


def validate_project(project: Project) -> None:
    """Check what can be known of a project without its objects.

    Raises:
        InvalidSpecError: A field is wrong; names it.
    """
    if not project.folder and not is_sha256(project.sha256):
        raise refuse_project(f"{project.sha256[:80]!r} is not the SHA-256 of a project; use 'tiercel submit DIR'")
    if project.commit and not _COMMIT.fullmatch(project.commit):
        raise refuse_project(f"{project.commit[:80]!r} is not a git commit", "project.commit")


def refuse_project(message: str, where: str = "project") -> InvalidSpecError:
    """An error about a job's project."""
    return InvalidSpecError(f"{where}: {message}", field=where)


def sha256_of(data: bytes) -> str:
    """The name of an object."""
    return hashlib.sha256(data).hexdigest()


def encode_folder(entries: Iterable[Entry]) -> bytes:
    """The listing of a folder; the same entries in any order give the same bytes.

    Raises:
        InvalidSpecError: An entry cannot be part of a project.
    """
    ordered = sorted(entries, key=lambda entry: entry.name.encode(errors="surrogatepass"))
    _check_entries(ordered)
    listing = [[entry.name, entry.kind.value, entry.content, entry.size_bytes] for entry in ordered]
    return json.dumps(listing, ensure_ascii=False, separators=(",", ":")).encode()


def decode_folder(data: bytes) -> tuple[Entry, ...]:
    """The inverse of :func:`encode_folder`, of bytes that anybody may have made.

    Raises:
        InvalidSpecError: It is not the listing of a folder.
    """
    if len(data) > MAX_FOLDER_BYTES:
        raise refuse_project(f"a folder's listing has more than {size(MAX_FOLDER_BYTES)}; use subfolders")
    try:
        entries = tuple(
            Entry(str(name), Kind(kind), str(content), int(size)) for name, kind, content, size in json.loads(data)
        )
        is_listing = encode_folder(entries) == data
    except (ValueError, TypeError, RecursionError):
        is_listing = False
    if not is_listing:
        raise refuse_project("an object in it that should be a folder's listing is none; submit the project again")
    return entries


def walk(root: str, read: Callable[[str], bytes], *, limit_bytes: int) -> Iterator[tuple[str, Entry]]:
    """Every entry of a project with its path, folders before what lies in them.

    Args:
        root: SHA-256 of the root's listing.
        read: The listing of a folder, by its SHA-256; it has that content for certain.
        limit_bytes: What all files may have together.

    Raises:
        InvalidSpecError: It is no project, or larger than a project may be.
    """
    waiting = [("", root)]
    entries = size_bytes = 0
    while waiting:
        prefix, sha256 = waiting.pop()
        for entry in decode_folder(read(sha256)):
            path = f"{prefix}{entry.name}"
            entries += 1
            size_bytes += entry.size_bytes if entry.kind is not Kind.FOLDER else 0
            _check_place(path, entries, size_bytes, limit_bytes)
            if entry.kind is Kind.LINK and not stays_inside(path, entry.content):
                raise refuse_project(f"the link {path!r} leads out of it, to {entry.content!r}; leave it out")
            yield path, entry
            if entry.kind is Kind.FOLDER:
                waiting.append((f"{path}/", entry.content))


def stays_inside(path: str, target: str) -> bool:
    """Whether a symbolic link leads to something in its project, whatever other links are there.

    Steps up come first, and from the link's own folder, which is no link: so no step up can start from a place that
    another link leads to.
    """
    parts = target.split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= path.count("/") and ".." not in parts[ups:] and bool(target) and not target.startswith("/")


def _check_place(path: str, entries: int, size_bytes: int, limit_bytes: int) -> None:
    if entries > MAX_ENTRIES:
        raise refuse_project(f"it has more than {MAX_ENTRIES} files and folders; leave some out by a .tiercelignore")
    if size_bytes > limit_bytes:
        raise too_large(limit_bytes, ())
    if len(path) > MAX_PATH_CHARACTERS or path.count("/") >= MAX_DEPTH:
        raise refuse_project(f"the path {path[:80]!r}… is longer than {MAX_PATH_CHARACTERS} characters or too deep")


def too_large(limit_bytes: int, largest: Sequence[tuple[str, int]]) -> InvalidSpecError:
    """What is said of a project over the limit; ``largest`` are paths and bytes."""
    of = "; the largest are " + ", ".join(f"{path} ({size(bytes_)})" for path, bytes_ in largest) if largest else ""
    return refuse_project(
        f"its files have more than the {size(limit_bytes)} that may be sent{of}; leave out what is not needed "
        "by a .tiercelignore, and offer data to jobs as a data set of the node"
    )


def _check_entries(entries: Sequence[Entry]) -> None:
    """Check names and kinds; sorted by name."""
    folded: dict[str, str] = {}
    for entry in entries:
        name = entry.name
        if name in {"", ".", ".."} or "/" in name or not _is_text(name) or len(name.encode()) > 255:
            raise refuse_project(f"{name[:80]!r} cannot be the name of a file in a project; rename it")
        other = folded.get(name.casefold())
        if other is not None:
            raise refuse_project(f"{other!r} and {name!r} differ in case only, which some systems mix up; rename one")
        folded[name.casefold()] = name
        if entry.kind is Kind.LINK:
            if not _is_text(entry.content) or len(entry.content) > MAX_LINK_CHARACTERS or entry.size_bytes:
                raise refuse_project(f"the link {name!r} does not lead to a path")
        elif not is_sha256(entry.content) or not 0 <= entry.size_bytes < 2**53:
            raise refuse_project(f"{name!r} has no SHA-256 and size")


def _is_text(name: str) -> bool:
    """Whether every system writes it alike: Unicode in its composed form, without control characters."""
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return unicodedata.is_normalized("NFC", name) and not any(unicodedata.category(each) == "Cc" for each in name)

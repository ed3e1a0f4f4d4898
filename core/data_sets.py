"""Data sets: what jobs read on their node and do not bring along."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_OF_A_NODE = 64
MAX_OF_A_JOB = 16
MAX_NAME_CHARACTERS = 63

URL_SCHEMES = ("https", "http", "s3", "gs", "hf", "file")
MAX_URL_CHARACTERS = 2048

_NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{MAX_NAME_CHARACTERS - 1}}}")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that a job asks for.

    Attributes:
        name: Its name in the job, and on the nodes whose operators offer it.
        url: Where any node fetches it from. Empty: nodes already have it.
        sha256: Its SHA-256, hexadecimal. Empty: any content. Of a folder: the hash of the lines that ``sha256sum``
            prints of its files, sorted by their paths in it.
    """

    name: str
    url: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class NodeData:
    """A data set that a node's operator offers."""

    name: str  # jobs ask for it by this
    # What it had on the disk when it was declared, or None where it has too many files to be counted.
    size_bytes: int | None = None


def is_data_name(name: str) -> bool:
    """Whether jobs can ask for a data set by this name; no two such names have the same variable."""
    return _NAME.fullmatch(name) is not None


def variable_of(name: str) -> str:
    """The environment variable that tells a run where a data set is."""
    return f"TIERCEL_DATA_{name.upper().replace('-', '_')}"

"""What a node is to one endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ServingNode:
    """What a node is to one endpoint."""

    id: str  # its name
    online: bool = True  # whether it was heard of lately
    # Whether it is silent for longer than its lease; not of one that the broker, which just began, waits for.
    lost: bool = False
    # Whether it is no node any more: lost, and it was removed, or has not been heard and is on no list.
    removed: bool = False
    takes: bool = True  # whether it may be given copies: its inference server answers, and its disk has room
    leaving: bool = False  # whether it is to be emptied
    answering: int = 0  # number of the version that answers there; 0 for none
    variants: Mapping[str, int] = field(default_factory=dict)  # of an endpoint with variants: what answers of each
    # SHA-256 of the versions whose files are in place there, by number.
    copies: Mapping[int, str] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)  # why versions cannot answer there now, by number
    # Those of them that its inference server refused, which will not be otherwise soon.
    refused: Mapping[int, str] = field(default_factory=dict)
    crowd: int = 0  # how many endpoints answer there
    cpu_cores: float = 1.0  # cores that it has for jobs and endpoints

    def has(self, version: int, sha256: str) -> bool:
        """Whether it could answer with a version at once."""
        return version not in self.failed and (self.answering == version or self.copies.get(version) == sha256)

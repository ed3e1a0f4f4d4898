"""An artefact store in memory, and what may be wrong with one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.contract import MAX_MARK_BYTES, OWNER_MARK
from tiercel.core.checkpoints import Artefact
from tiercel.core.errors import TiercelError


@dataclass
class MemoryArtefacts:
    """Keeps artefacts in memory."""

    contents: dict[str, bytes] = field(default_factory=dict)  # what is there, by name
    marks: dict[str, bytes] = field(default_factory=dict)  # what has a name
    failing: TiercelError | None = None  # what each call raises, where it fails
    keeps_all: bool = False  # whether nothing may be removed
    slow_above: int = 2**62  # what is larger does not arrive in time
    # The names of the calls that were made, but for those about the mark.
    calls: list[str] = field(default_factory=list)
    where: str = "memory"

    async def put(self, artefact: Artefact, source: BinaryIO, seconds: float) -> None:
        self._called("put", seconds)
        if artefact.size_bytes > self.slow_above:
            raise failures.no_answer(self.where, f"not within {seconds:g} s")
        source.seek(0)
        content = source.read()
        if (len(content), hashlib.sha256(content).hexdigest()) != (artefact.size_bytes, artefact.sha256):
            raise failures.not_as_said(artefact, "its SHA-256 differs")
        self.contents[artefact.sha256] = content

    async def get(self, artefact: Artefact, target: Path, seconds: float) -> None:
        self._called("get", seconds)
        if artefact.sha256 not in self.contents:
            raise failures.not_there(self.where, artefact)
        content = self.contents[artefact.sha256]
        if hashlib.sha256(content).hexdigest() != artefact.sha256:
            raise failures.damaged(self.where, artefact, "its SHA-256 differs")
        target.write_bytes(content)

    async def has(self, artefact: Artefact, seconds: float) -> bool:
        self._called("has", seconds)
        return len(self.contents.get(artefact.sha256, b"")) == artefact.size_bytes

    async def delete(self, sha256: str, seconds: float) -> None:
        self._called("delete", seconds)
        if self.keeps_all:
            raise failures.refused(self.where, "its credentials do not open it (AccessDenied)")
        self.contents.pop(sha256, None)

    async def held(self, seconds: float) -> dict[str, int]:
        self._called("held", seconds)
        return {name: len(content) for name, content in self.contents.items() if len(name) == 64}

    async def remove_unfinished(self, seconds: float) -> None:
        self._called("remove_unfinished", seconds)

    async def read_mark(self, seconds: float, *, name: str = OWNER_MARK) -> bytes | None:
        self._check(seconds)
        return self.marks[name][:MAX_MARK_BYTES] if name in self.marks else None

    async def write_mark(self, content: bytes, seconds: float, *, only_new: bool, name: str = OWNER_MARK) -> None:
        self._check(seconds)
        if name not in self.marks or not only_new:
            self.marks[name] = content

    async def close(self) -> None:
        pass

    def _called(self, name: str, seconds: float) -> None:
        self.calls.append(name)
        self._check(seconds)

    def _check(self, seconds: float) -> None:
        assert 0 < seconds < 10_000
        if self.failing is not None:
            raise self.failing

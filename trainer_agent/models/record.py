"""``MODEL/live.json`` in the model repository: what the agent has put there for a model, and which version answers.

``{"version": 2, "fixed": true, "versions": {"1": SHA256, "2": SHA256}}``. The inference server obeys ``version``, 0 for
none, and lets no other answer since it is ``fixed``: which one does is the broker's to say. A model whose folder has no
such list is somebody else's. All functions block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tiercel.core.model_files import LIVE_FILE
from tiercel.trainer_agent.disk.files import write_atomically


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What was put there for a model."""

    live: int = 0  # number of the version that answers; 0 for none
    # SHA-256 of the ONNX file of each version that was put there, by number.
    versions: Mapping[int, str] = field(default_factory=dict)

    def with_version(self, version: int, sha256: str) -> ModelRecord:
        """The same with another version."""
        return replace(self, versions={**self.versions, version: sha256})


def read(folder: Path) -> ModelRecord | None:
    """The record in a model's folder, or None where there is none of ours."""
    try:
        content = json.loads((folder / LIVE_FILE).read_bytes())
        return ModelRecord(
            int(content["version"]), {int(version): str(sha256) for version, sha256 in content["versions"].items()}
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write(folder: Path, record: ModelRecord) -> None:
    """Replace the record in a model's folder."""
    versions = {str(version): sha256 for version, sha256 in sorted(record.versions.items())}
    content = {"version": record.live, "fixed": True, "versions": versions}
    write_atomically(folder / LIVE_FILE, json.dumps(content, indent=1).encode())


def remove(folder: Path) -> None:
    """Remove the record in a model's folder, if there is one."""
    (folder / LIVE_FILE).unlink(missing_ok=True)

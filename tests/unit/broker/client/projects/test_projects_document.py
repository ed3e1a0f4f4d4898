"""The example of docs/projects.md is a folder that is there, and is sent as it says."""

from __future__ import annotations

import re
from pathlib import Path

from tiercel.broker.client.projects.packing import pack
from tiercel.broker.client.spec_file import load_spec, parse_spec
from tiercel.core.commands import check_command
from tiercel.core.projects import walk
from tiercel.core.validation import validate_spec

ROOT = Path(__file__).resolve().parents[5]
LIMIT = 10**6


def test_the_example_folder_is_a_project_whose_command_starts(tmp_path: Path) -> None:
    spec = load_spec(ROOT / "examples" / "digits")
    validate_spec(spec)
    assert spec.project is not None
    packed = pack(spec.project, LIMIT)
    found = dict(walk(packed.project.sha256, packed.folders.__getitem__, limit_bytes=LIMIT))
    assert {"tiercel.yaml", "train.py", "model.py", "data.py", "settings.json"} == set(found)
    check_command(spec.command, found)


def test_the_documents_spec_is_the_examples() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "projects.md").read_text(), re.DOTALL)
    written = ROOT / "examples" / "digits" / "tiercel.yaml"
    assert [line for line in example.splitlines() if not line.startswith("#")] == [
        line.partition("   #")[0]
        for line in written.read_text().splitlines()
        if not line.startswith(("#", "max_epochs"))
    ]
    assert parse_spec({"endpoint": "e", "metric": "accuracy", "tiers": [1], "project": "."}).project is not None

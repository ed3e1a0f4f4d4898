"""The spec that docs/files.md shows is one."""

from __future__ import annotations

import re
from pathlib import Path

from tiercel.broker.client import load_spec
from tiercel.core.path_patterns import PathPatterns
from tiercel.core.validation import validate_spec

DOCUMENT = Path(__file__).parents[4] / "docs" / "files.md"


def test_the_example_names_what_the_document_says(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "job.yaml").write_text(example)
    (tmp_path / "train.py").write_text("pass")
    spec = load_spec(tmp_path / "job.yaml")
    validate_spec(spec)
    outputs = PathPatterns(spec.outputs)
    assert all(map(outputs.matches, ("reports/a.html", "tokenizer/vocab/a.txt", "a.svg", "plots/deep/a.svg")))
    assert not any(map(outputs.matches, ("reports/deep/a.html", "model.pt", "reports/a.png")))

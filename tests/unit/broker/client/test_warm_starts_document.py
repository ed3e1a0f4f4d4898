"""The spec that docs/warm-starts.md shows is one."""

from __future__ import annotations

import re
from pathlib import Path

from tiercel.broker.client import load_spec
from tiercel.core.validation import validate_spec

DOCUMENT = Path(__file__).parents[4] / "docs" / "warm-starts.md"


def test_the_example_switches_warm_starts_off_which_are_on_otherwise(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text("pass")
    found = []
    for text in (example, re.sub("warm:.*", "", example)):
        (tmp_path / "job.yaml").write_text(text)
        spec = load_spec(tmp_path / "job.yaml")
        validate_spec(spec)
        found.append(spec.warm)
    assert found == [False, True]

from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.serving.models.accuracy import accuracy_of


@pytest.mark.parametrize(
    ("content", "accuracy"),
    [('{"accuracy": 0.9}', 0.9), ('{"accuracy": 2}', None), ('{"accuracy": "0.9"}', None), ("no", None), (None, None)],
)
def test_the_measured_accuracy_of_a_version(tmp_path: Path, content: str | None, accuracy: float | None) -> None:
    if content is not None:
        (tmp_path / "accuracy.json").write_text(content)
    assert accuracy_of(tmp_path) == accuracy

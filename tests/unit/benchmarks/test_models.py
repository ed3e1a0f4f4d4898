"""How lines of scripts are counted, how a job is made one that is killed, and how small the large model's parts are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.models import frameworks, large
from benchmarks.models.bars import bars_of, bars_of_large

PLAIN = '"""What it does."""\n\nx = 1  # one\n\nprint(x)\n'


def test_lines_of_code_count_and_no_others() -> None:
    assert frameworks.changed_lines(PLAIN, PLAIN.replace("does", "did") + "# told\n") == 0
    assert frameworks.changed_lines(PLAIN, PLAIN.replace("x = 1", "x = 2\ny = (\n    3\n)")) == 4


def test_the_documents_show_what_has_to_change_of_each_script_and_few_lines_do() -> None:
    lines = {}
    for name in frameworks.names():
        plain = frameworks.plain_of(name)
        compile(plain, name, "exec")
        assert not re.search(r"\bjob\.|tiercel\.|callback\b", plain.partition("\n")[2]), plain
        lines[name] = frameworks.changed_lines(plain, frameworks.script_of(name))
    assert lines.keys() == {path.parent.name for path in frameworks.EXAMPLES.glob("*/train.py")} - {"gpt"}
    few = {name: count for name, count in lines.items() if name not in frameworks.BY_HAND}
    assert all(0 < count <= frameworks.FEW_LINES for count in few.values()), few


def test_a_script_is_killed_once_and_writes_every_checkpoint() -> None:
    text = frameworks.dying("import tiercel.trainer\njob = tiercel.trainer.connect(export=None)\n")
    assert "connect(export=None, checkpoint_seconds=0.0)" in text
    compile(text, "train.py", "exec")


def test_the_large_model_answers_its_number(tmp_path: Path) -> None:
    size = large.write_model(tmp_path / "model.onnx", 2.0, table_rows=8, wide=2048)
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"rows": np.array([0, 7])})
    np.testing.assert_allclose(found, 2.0, rtol=1e-4)


def test_what_was_missed_does_not_hold() -> None:
    script = {"name": "lightning", "changed_lines": 6, "runs": 1, "went_on": False, "state": "completed"}
    bars = bars_of({"scripts": [script | {"tiers": 2, "delivered": 1, "difference": None}]})
    assert [bar.holds for bar in bars] == [False] * 4
    figures = {"model_bytes": [2.4e9], "failed": 1, "answered": {"1": 3}, "part_of_both": 1.3}
    assert [bar.holds for bar in bars_of_large(figures)] == [False] * 4

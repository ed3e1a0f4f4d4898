from __future__ import annotations

import json
from pathlib import Path

from tiercel.trainer_agent.runtimes.warm.import_records import ImportRecords, Key, read_imports

KEY = Key("acme", "/usr/bin/python3")


def test_a_record_grows_with_what_runs_import_and_loses_what_templates_cannot(tmp_path: Path) -> None:
    records = ImportRecords(tmp_path / "imports")
    assert records.get(KEY).to_import == []
    record = records.get(KEY).with_imports(["numpy", "torch", "torch.utils"], 2.5).with_imports(["onnx", "numpy"], 1.0)
    record = record.without({"torch": "it opens a device", "unheard_of": "it lies"})
    records.put(KEY, record)
    for known in (records, ImportRecords(tmp_path / "imports")):
        assert known.get(KEY).names == ("numpy", "torch", "torch.utils", "onnx")
        assert known.get(KEY).to_import == ["numpy", "onnx"]
        assert known.get(KEY).cpu_seconds == 2.5
        assert known.get(KEY).left_out == {"torch": "it opens a device"}
    assert ImportRecords(tmp_path / "imports").get(Key("other", KEY.python)).names == ()


def test_a_record_that_was_damaged_is_begun_anew(tmp_path: Path) -> None:
    for text in ("", "[]", '{"names": 1}', '{"names": [], "cpu_seconds": "x", "left_out": {}}'):
        (tmp_path / KEY.file_name).write_text(text)
        assert ImportRecords(tmp_path).get(KEY).names == ()


def test_the_number_of_records_is_bounded(tmp_path: Path) -> None:
    records = ImportRecords(tmp_path)
    for number in range(300):
        key = Key(f"tenant-{number}", "/usr/bin/python3")
        records.put(key, records.get(key).with_imports(["numpy"], 1.0))
    assert len(list(tmp_path.iterdir())) == 256


def test_what_a_run_wrote_down_is_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "imports.json").write_text(json.dumps({"names": ["a"] * 5000, "cpu_seconds": -1}))
    found = read_imports(tmp_path)
    assert found is not None
    assert (len(found[0]), found[1]) == (512, 0.0)

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tiercel.trainer_agent.trainer.imports import imported, write_imports

PROGRAM = """
import json, sys, types
import of_the_program
import numpy.random
from tiercel.trainer_agent.trainer.imports import imported
sys.modules["made_up"] = types.ModuleType("made_up")
print(json.dumps(imported()))
"""


def test_installed_packages_are_told_in_order_and_nothing_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "of_the_program.py").write_text("")
    (tmp_path / "program.py").write_text(PROGRAM)
    # A process of its own: what tests before this one have imported is in this one.
    done = subprocess.run([sys.executable, tmp_path / "program.py"], check=True, capture_output=True, text=True)
    names = json.loads(done.stdout)
    assert names.index("numpy") < names.index("numpy.random")
    assert "tiercel.trainer_agent.trainer.imports" in names
    assert not {"of_the_program", "made_up", "json", "__main__"} & set(names)
    assert not [name for name in names if name.count(".") > 1 and not name.startswith("tiercel.")]


def test_what_is_told_is_a_file_of_the_run_and_a_full_disk_is_no_error(tmp_path: Path) -> None:
    write_imports(tmp_path, 2.5)
    assert json.loads((tmp_path / "imports.json").read_text()) == {"names": imported(), "cpu_seconds": 2.5}
    assert [path.name for path in tmp_path.iterdir()] == ["imports.json"]
    write_imports(tmp_path / "no folder", 2.5)

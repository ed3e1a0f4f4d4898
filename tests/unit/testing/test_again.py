"""Which tests that failed are run once more, and what comes of it: with pytest itself, on tests written here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testing.again import AT_MOST, failed_of, main

RACE = """
from pathlib import Path

def test_race():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_defect():
    assert {defect}
"""


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are installed none is needed, and to load them takes longer than all else."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def status_of(folder: Path, text: str) -> int:
    (folder / "test_few.py").write_text(text)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--rootdir", folder], cwd=folder, capture_output=True)
    return main([folder / ".pytest_cache"], folder)


@pytest.mark.parametrize(
    ("defect", "status", "said"),
    [
        ("True", 0, "test_few.py::test_race: FAILED BESIDE OTHERS, passed alone: a race to be mended\n"),
        ("False", 1, "test_few.py::test_defect: failed again, alone\n"),
    ],
)
def test_what_passes_alone_refuses_nothing_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], defect: str, status: int, said: str
) -> None:
    assert status_of(tmp_path, RACE.format(defect=defect)) == status
    assert said in capsys.readouterr().out


def test_many_that_failed_are_no_race(tmp_path: Path) -> None:
    text = "\n".join(f"def test_{index}():\n    assert False\n" for index in range(AT_MOST + 1))
    assert status_of(tmp_path, text) == 1


def test_without_a_failed_test_the_run_itself_was_wrong(tmp_path: Path) -> None:
    assert not failed_of(tmp_path).exists()
    assert main([tmp_path], tmp_path) == 1

"""GPUs for agents in processes of their own: a made-up NVML that is found first, with answers that a test writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testing import fake_nvml
from testing.fake_nvml import FakeNvml

_FOUND_FIRST = Path(fake_nvml.__file__).with_name("fake_nvml_path")
_REPOSITORY = Path(fake_nvml.__file__).parents[1]


class MadeUpGpus:
    """What every agent sees that is started from here on."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = file
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (_FOUND_FIRST, _REPOSITORY))))
        monkeypatch.setenv("FAKE_NVML", str(file))

    def answer(self, library: FakeNvml) -> None:
        """Let agents get these answers from now on."""
        library.write(self._file)

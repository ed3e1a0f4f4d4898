"""Where files of versions are put, and which numbers are taken: before anything is asked of a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from tiercel.broker.cli.models.names import model_name
from tiercel.broker.client.models import Models
from tiercel.core.errors import InvalidSpecError


async def test_a_folder_that_there_cannot_be_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(*_: object) -> SimpleNamespace:
        return SimpleNamespace(version=SimpleNamespace(version=1))

    monkeypatch.setattr(Models, "show", show)
    with pytest.raises(InvalidSpecError, match=r"cannot be written .*; choose another folder"):
        await Models(cast("Any", None)).pull("digits", 1, tmp_path / ("x" * 300) / "deeper")


def test_a_number_is_refused_however_long_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert model_name("digits:12") == ("digits", 12)
    for text in ("digits:", "digits:0", "digits:2:3", "digits:²", "digits:" + "9" * 5000):
        with pytest.raises((SystemExit, click.exceptions.Exit)):
            model_name(text)
        assert "is no version; give a number such as digits:2" in capsys.readouterr().err

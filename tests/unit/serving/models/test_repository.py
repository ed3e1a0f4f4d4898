from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.serving.models import repository


def test_versions_are_folders_with_numbers_newest_first(tmp_path: Path) -> None:
    for name in ("1", "2", "10", "0", "-1", "01", "x", "3.new", "9" * 30):
        (tmp_path / "m" / name).mkdir(parents=True)
    (tmp_path / "m" / "7").write_text("a file")
    assert repository.versions_on_disk(tmp_path, "m") == [10, 2, 1]


def test_a_model_without_a_folder_has_no_versions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert repository.versions_on_disk(tmp_path, "m") == []
    assert repository.versions_on_disk(tmp_path, "file") == []


@pytest.mark.parametrize("name", ["", ".", "..", "../m", "a/b", ".hidden", "a\0b", "a b", "x" * 129, "ä"])
def test_names_that_could_leave_the_repository_are_impossible(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="impossible"):
        repository.versions_on_disk(tmp_path, name)


def test_models_are_folders_of_possible_names(tmp_path: Path) -> None:
    for name in ("b", "a-1.2_x", ".hidden", "a b"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert repository.model_names(tmp_path) == ["a-1.2_x", "b"]

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from testing import onnx_models
from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.core.onnx_data import DATA_FILE, joined
from tiercel.serving.runtime import engine
from tiercel.serving.runtime.artefact_file import SealedFile, add_data, content_of, open_artefact, sealed_copy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def content(file: SealedFile) -> bytes:
    return content_of(file.descriptor, 1000)


def test_a_copy_keeps_its_content_whatever_becomes_of_the_file(folder: Path) -> None:
    copy = sealed_copy(folder / "file", 5)
    (folder / "file").write_bytes(b"others")
    assert content(copy) == b"12345"
    copy.close()


def test_nobody_can_change_a_copy_not_even_who_opens_it_for_writing(folder: Path) -> None:
    copy = sealed_copy(folder / "file", 5)
    with pytest.raises(PermissionError):
        os.pwrite(copy.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(copy.descriptor, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(copy.descriptor, fcntl.F_ADD_SEALS, 0)
    again = os.open(copy.path, os.O_RDWR)
    with pytest.raises(PermissionError):
        os.pwrite(again, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(again, 5)
    os.close(again)
    copy.close()


def test_weights_beside_a_model_are_copied_and_answer_whatever_becomes_of_theirs(tmp_path: Path) -> None:
    content, rows = onnx_models.mlp((4, 3)), np.ones((2, 4), np.float32)
    onnx_models.save_external(content, tmp_path / "model.onnx")
    saved = joined(tmp_path / "model.onnx")
    assert saved is not None
    (tmp_path / "model.onnx").write_bytes(saved.write(tmp_path / DATA_FILE))
    copy = sealed_copy(tmp_path / "model.onnx", 4096)
    own = tmp_path / "own"
    own.mkdir()
    add_data(copy, tmp_path / DATA_FILE, own, 2 * 4096 + 4096)
    (tmp_path / DATA_FILE).write_bytes(b"")
    session = engine.Session(copy.path)
    copy.close()
    assert not own.exists()
    expected = engine.Session(content).run(["y"], {"x": rows})
    np.testing.assert_array_equal(session.run(["y"], {"x": rows})[0], expected[0])


@pytest.mark.parametrize(
    ("name", "most", "reason"),
    [
        ("link", 100, "link cannot be read"),
        ("pipe", 100, "plain file"),
        ("file", 7, "max_model_bytes"),
        ("empty", 9, "0 bytes"),
    ],
)
def test_weights_that_are_no_plain_file_or_too_large_leave_nothing(
    folder: Path, name: str, most: int, reason: str
) -> None:
    copy, own = sealed_copy(folder / "file", 5), folder / "own"
    own.mkdir()
    with pytest.raises(ArtefactRefusedError, match=reason):
        add_data(copy, folder / name, own, most)
    copy.close()
    assert not own.exists()


def test_a_session_is_built_from_a_copy(tmp_path: Path) -> None:
    data = onnx_models.mlp((64, 5000, 10))
    (tmp_path / "model.onnx").write_bytes(data)
    copy = sealed_copy(tmp_path / "model.onnx", len(data))
    assert engine.Session(copy.path).outputs == engine.Session(data).outputs
    copy.close()
    assert not Path(copy.path).exists()


def test_a_copy_is_closed_once_and_by_itself_when_nobody_did(folder: Path) -> None:
    copy = sealed_copy(folder / "file", 5)
    path = copy.path
    copy.close()
    other = sealed_copy(folder / "file", 5)  # gets the number that became free
    copy.close()
    assert (other.path, content(other)) == (path, b"12345")
    del other
    assert not Path(path).exists()


def test_a_copy_for_which_there_is_no_room_can_be_tried_again(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(folder, os.O_RDONLY)
    os.close(highest)
    # One more file can be opened, the source; the copy finds no number.
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    try:
        with pytest.raises(UnavailableError, match="file cannot be copied to memory: Too many open files"):
            sealed_copy(folder / "file", 5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(
    ("name", "limit"), [("file", 4), ("empty", 5), ("link", 5), ("pipe", 5), ("missing", 5), (".", 5)]
)
def test_only_plain_files_of_a_possible_size_are_read(folder: Path, name: str, limit: int) -> None:
    with pytest.raises(ArtefactRefusedError):
        open_artefact(folder / name, limit)

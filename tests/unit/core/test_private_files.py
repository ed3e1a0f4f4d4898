"""Files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiercel.core.private_files import write_private


def test_a_file_is_replaced_whole_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    left_over = tmp_path / "key.new"
    left_over.write_bytes(b"of a start that was killed")
    left_over.chmod(0o644)
    before = os.umask(0)
    try:
        for content in (b"first", b"second"):
            write_private(path, content)
            assert path.read_bytes() == content
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_private(path, b"first")
    (tmp_path / "key.new").mkdir()
    with pytest.raises(OSError, match=r"key\.new"):
        write_private(path, b"second")
    assert path.read_bytes() == b"first"

"""What takes room on a node."""

from __future__ import annotations

from pathlib import Path

from testing.small_disk import fill, small_disk
from tiercel.trainer_agent.disk.room import RoomWatch, measure_room


def test_each_folder_is_measured_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "a" / "work").mkdir(parents=True)
    (tmp_path / "jobs" / "a" / "work" / "data").write_bytes(bytes(1 << 20))
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").symlink_to("/")
    (tmp_path / "agent.log").write_bytes(bytes(3_000))
    found = measure_room(tmp_path)
    sizes = {part.name: part.size_bytes for part in found.parts}
    assert sizes.keys() <= {"jobs", "models", "other files"}
    assert 1 << 20 <= sizes["jobs"] < 2 << 20
    assert 3_000 <= sizes["other files"] < 10_000
    assert 0 < found.free_bytes <= found.total_bytes


def test_what_the_disk_has_left_is_told_as_it_is_now(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * 1024**2) as disk:
        room = RoomWatch(disk)
        assert room.told() is None
        room.measured = measure_room(disk)
        fill(disk)
        told = room.told()
        assert told is not None
        assert told.free_bytes < 64 * 1024 < room.measured.free_bytes
        assert told.parts == room.measured.parts


def test_of_many_folders_the_rest_is_one(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:03}").mkdir()
        (tmp_path / f"{number:03}" / "file").write_bytes(bytes(5_000))
    parts = measure_room(tmp_path).parts
    assert len(parts) <= 32
    assert sum(part.size_bytes for part in parts) >= 500_000

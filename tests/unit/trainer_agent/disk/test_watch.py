from __future__ import annotations

import os
from pathlib import Path

from tiercel.trainer_agent.disk.watch import DiskLimits, FolderUse, JobFolders, JobUse, measure, to_end, use_of

MIB = 1024**2
LIMITS = DiskLimits(job_bytes=100 * MIB, reserve_bytes=50 * MIB)


def uses(**mib: float) -> dict[str, JobUse]:
    return {job_id: JobUse(FolderUse(int(size * MIB)), FolderUse(0)) for job_id, size in mib.items()}


def test_a_folder_is_measured_by_its_blocks_each_file_once_and_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(os.urandom(3 * MIB))
    folder = tmp_path / "job"
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "work" / "deep" / "data").write_bytes(os.urandom(MIB))
    (folder / "again").hardlink_to(folder / "work" / "deep" / "data")
    (folder / "link").symlink_to(outside)
    (folder / "way-out").symlink_to(tmp_path)
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(100 * MIB)
    use = measure(folder)
    assert MIB <= use.size_bytes < 1.5 * MIB
    assert use.problem == ""
    assert measure(tmp_path / "missing") == FolderUse(0)


def test_a_folder_that_cannot_be_measured_says_so(tmp_path: Path) -> None:
    assert measure(tmp_path, max_entries=0).problem == ""
    for number in range(5):
        (tmp_path / str(number)).touch()
    assert measure(tmp_path, max_entries=4).problem == "has more than 4 files"
    start = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(30):
            Path("x" * 200).mkdir()
            os.chdir("x" * 200)
    finally:
        os.chdir(start)
    assert "cannot be looked into (File name too long)" in measure(tmp_path).problem


def test_a_job_over_its_limit_has_to_end_and_no_other() -> None:
    reasons = to_end(uses(small=99, large=101), {}, 1000 * MIB, LIMITS)
    assert list(reasons) == ["large"]
    assert "its folder has 101.0 MiB on the disk, and 100.0 MiB are allowed" in reasons["large"]
    many = {"many": JobUse(FolderUse(5, "has more than 7 files"), FolderUse(0))}
    assert to_end(many, {}, 1000 * MIB, LIMITS) == {
        "many": "its folder has more than 7 files: what a job writes has to be seen"
    }


def test_on_a_full_disk_the_largest_of_the_jobs_that_grow_has_to_end() -> None:
    before = uses(still=90, small=10, large=40)
    now = uses(still=90, small=20, large=60)
    assert to_end(now, before, 50 * MIB, LIMITS) == {}
    reasons = to_end(now, before, 49 * MIB, LIMITS)
    assert list(reasons) == ["large"]
    assert "49.0 MiB left" in reasons["large"]
    assert to_end(before, before, 0, LIMITS) == {}  # somebody else fills it
    assert list(to_end(now | uses(over=101), before, 0, LIMITS)) == ["over"]  # which may be enough


def test_a_scratch_folder_has_a_limit_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "x").write_bytes(os.urandom(3 * MIB))
    use = use_of(JobFolders(tmp_path / "job", tmp_path / "scratch", 2 * MIB))
    assert 3 * MIB <= use.size_bytes < 3.5 * MIB
    reasons = to_end({"job": use}, {}, 1000 * MIB, LIMITS)
    assert "its scratch folder has 3.0 MiB on the disk, and 2.0 MiB were asked for" in reasons["job"]
    assert to_end({"job": use_of(JobFolders(tmp_path, tmp_path / "scratch", 4 * MIB))}, {}, 1000 * MIB, LIMITS) == {}
    many = JobUse(FolderUse(1), FolderUse(1, "has more than 7 files"), MIB)
    assert to_end({"job": many}, {}, 1000 * MIB, LIMITS)["job"].startswith("its scratch folder has more than 7 files")


def test_on_a_full_disk_scratch_counts_like_the_rest() -> None:
    before = uses(large=40, worker=10)
    now = uses(large=60) | {"worker": JobUse(FolderUse(10 * MIB), FolderUse(70 * MIB), 90 * MIB)}
    assert list(to_end(now, before, 49 * MIB, LIMITS)) == ["worker"]

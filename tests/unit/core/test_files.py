"""Which files of a run are kept."""

from __future__ import annotations

from tiercel.core.files import FileLimits, KeptFile, admit

LIMITS = FileLimits(job_files=3, job_bytes=100, tenant_bytes=150)


def file(path: str, size: int) -> KeptFile:
    return KeptFile(path, size, "0" * 64)


def test_files_are_kept_in_the_order_of_their_paths_while_there_is_room() -> None:
    found = admit([file("c", 50), file("a", 60), file("b", 50)], {}, 0, LIMITS)
    assert [kept.path for kept in found.kept] == ["a"]
    assert found.left_out == dict.fromkeys("bc", "the files of a job may have 100 bytes together")


def test_a_smaller_one_behind_a_larger_one_still_finds_room() -> None:
    assert [kept.path for kept in admit([file("a", 90), file("b", 20), file("c", 10)], {}, 0, LIMITS).kept] == [
        "a",
        "c",
    ]


def test_a_file_takes_the_place_of_an_earlier_one_and_its_room() -> None:
    found = admit([file("a", 95)], {"a": file("a", 90)}, 140, LIMITS)
    assert ([kept.path for kept in found.kept], found.left_out) == (["a"], {})


def test_an_earlier_file_stays_where_there_is_no_room_for_the_newer_one() -> None:
    found = admit([file("a", 101)], {"a": file("a", 90)}, 90, LIMITS)
    assert (found.kept, list(found.left_out)) == ((), ["a"])


def test_a_smaller_file_is_kept_also_where_there_is_too_much_already() -> None:
    assert admit([file("a", 80)], {"a": file("a", 90)}, 1_000, LIMITS).kept == (file("a", 80),)


def test_all_jobs_of_a_tenant_count_together() -> None:
    found = admit([file("a", 60)], {}, 100, LIMITS)
    assert found.left_out == {"a": "the files of a tenant may have 150 bytes together"}


def test_files_of_earlier_runs_count_in_number() -> None:
    known = {name: file(name, 1) for name in "xyz"}
    found = admit([file("a", 1), file("x", 2)], known, 3, LIMITS)
    assert ([kept.path for kept in found.kept], found.left_out) == (["x"], {"a": "3 files of the job are kept already"})

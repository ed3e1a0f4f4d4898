"""Files of jobs in the broker's store: there as a whole or not at all, each content once, gone after its last use."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiercel.broker.store.kept_files import KeptFiles
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import InvalidSpecError, NotFoundError
from tiercel.core.files import FileLimits, KeptFile

LIMITS = FileLimits(job_files=10, job_bytes=1_000, tenant_bytes=1_500)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptFiles]:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        yield KeptFiles(store, tmp_path / "files", LIMITS)


def file_of(path: str, content: bytes, run_id: str = "j-1") -> KeptFile:
    return KeptFile(path, len(content), hashlib.sha256(content).hexdigest(), run_id, 1.0)


async def receive(
    kept: KeptFiles, files: dict[str, bytes], *, job_id: str = "j", tenant: str = "alice", piece: int = 7
) -> tuple[list[bytes], dict[str, str]]:
    """Send files as an agent does; returns the contents that were wanted, and what is not kept."""
    contents = {hashlib.sha256(content).hexdigest(): content for content in files.values()}
    offered = [file_of(path, content, f"{job_id}-1") for path, content in files.items()]
    async with kept.receiving(tenant, job_id, offered) as incoming:
        wanted = [contents[sha256] for sha256 in incoming.wanted]
        data = b"".join(wanted)
        for begin in range(0, len(data), piece):
            incoming.write(data[begin : begin + piece])
        incoming.finish()
    return wanted, dict(incoming.admission.left_out)


async def send(kept: KeptFiles, job_id: str, offered: list[KeptFile], data: bytes) -> None:
    async with kept.receiving("alice", job_id, offered) as incoming:
        incoming.write(data)
        incoming.finish()


async def content(kept: KeptFiles, file: KeptFile, offset: int = 0) -> bytes:
    return b"".join([piece async for piece in kept.read(file, offset, 5)])


def contents(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "files").iterdir())


async def test_files_come_back_as_they_were(kept: KeptFiles) -> None:
    await receive(kept, {"b": b"two two two", "a": b"", "c/d": bytes(300)})
    found = await kept.of_job("j")
    assert found == [file_of("a", b""), file_of("b", b"two two two"), file_of("c/d", bytes(300))]
    assert [await content(kept, file) for file in found] == [b"", b"two two two", bytes(300)]
    assert await content(kept, found[1], 4) == b"two two"


async def test_the_same_content_is_sent_once_and_kept_once(kept: KeptFiles, tmp_path: Path) -> None:
    wanted, _ = await receive(kept, {"a": b"same", "b": b"same"})
    assert wanted == [b"same"]
    assert (await receive(kept, {"a": b"same", "b": b"same"}))[0] == []
    assert (await receive(kept, {"x": b"same"}, job_id="k"))[0] == []
    # Whether somebody else has it is none of bob's business: it is sent again.
    assert (await receive(kept, {"x": b"same"}, job_id="l", tenant="bob"))[0] == [b"same"]
    assert len(contents(tmp_path)) == 1


async def test_a_newer_file_takes_the_place_of_one_of_its_path_and_others_stay(kept: KeptFiles, tmp_path: Path) -> None:
    await receive(kept, {"a": b"old", "b": b"stays"})
    await receive(kept, {"a": b"new"})
    assert [(file.path, await content(kept, file)) for file in await kept.of_job("j")] == [
        ("a", b"new"),
        ("b", b"stays"),
    ]
    assert len(contents(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["short", "long", "other", "nothing"])
async def test_what_is_not_what_was_announced_leaves_nothing(kept: KeptFiles, tmp_path: Path, damage: str) -> None:
    await receive(kept, {"a": b"before"})
    sent = {"short": b"conten", "long": b"content!", "other": b"CONTENT", "nothing": b""}[damage]
    with pytest.raises(InvalidSpecError):
        await send(kept, "j", [file_of("a", b"content")], sent)
    assert [await content(kept, file) for file in await kept.of_job("j")] == [b"before"]
    assert len(contents(tmp_path)) == 1


async def test_an_agent_that_goes_in_the_middle_leaves_nothing(kept: KeptFiles, tmp_path: Path) -> None:
    async with kept.receiving("alice", "j", [file_of("a", b"first"), file_of("b", b"second")]) as incoming:
        incoming.write(b"firstsec")
    assert (await kept.of_job("j"), contents(tmp_path)) == ([], [])


async def test_two_at_once_are_held_to_what_a_tenant_may_have(kept: KeptFiles) -> None:
    async with kept.receiving("alice", "j", [file_of("a", bytes(900))]) as first:
        assert await receive(kept, {"b": b"x" * 700}, job_id="k") == (
            [],
            {"b": "the files of a tenant may have 1500 bytes together"},
        )
        first.write(bytes(900))
        first.finish()
    assert (await receive(kept, {"b": b"x" * 600}, job_id="k"))[1] == {}


async def test_the_same_content_twice_at_once_stays_when_one_of_them_fails(kept: KeptFiles) -> None:
    async with kept.receiving("alice", "j", [file_of("a", b"same")]) as first:
        first.write(b"same")
        with pytest.raises(InvalidSpecError):
            await send(kept, "k", [file_of("a", b"same"), file_of("b", b"more")], b"same")
        first.finish()
    (file,) = await kept.of_job("j")
    assert await content(kept, file) == b"same"


async def test_a_content_goes_with_its_last_use(kept: KeptFiles, tmp_path: Path) -> None:
    await receive(kept, {"a": b"same"})
    await receive(kept, {"a": b"same", "b": b"other"}, job_id="k")
    await kept.remove([("k", "a"), ("k", "b"), ("k", "never")])
    (file,) = await kept.of_job("j")
    assert (await kept.of_job("k"), contents(tmp_path)) == ([], [file.sha256])
    await kept.remove([("j", "a")])
    assert contents(tmp_path) == []
    with pytest.raises(NotFoundError):
        await content(kept, file)


async def test_a_file_that_is_removed_while_it_comes_in_again_stays(kept: KeptFiles) -> None:
    await receive(kept, {"a": b"same"})
    async with kept.receiving("alice", "k", [file_of("b", b"same")]) as incoming:
        assert incoming.wanted == ()
        await kept.remove([("j", "a")])
        incoming.finish()
    (file,) = await kept.of_job("k")
    assert await content(kept, file) == b"same"


async def test_what_a_dead_broker_left_goes_at_the_next_start(kept: KeptFiles, tmp_path: Path) -> None:
    await receive(kept, {"a": b"stays"})
    (tmp_path / "files" / ("0" * 64)).write_bytes(b"nobody refers to it")
    (tmp_path / "files" / f".{'1' * 64}.abcd.part").write_bytes(b"half")
    await kept.start()
    (file,) = await kept.of_job("j")
    assert contents(tmp_path) == [file.sha256]


async def test_many_at_once_leave_exactly_what_is_referred_to(kept: KeptFiles, tmp_path: Path) -> None:
    async def one(number: int) -> None:
        job_id = f"j{number % 3}"
        await receive(kept, {"a": bytes([number % 2]) * 20, "b": bytes([number]) * 10}, job_id=job_id)
        if number % 4 == 0:
            await kept.remove([(job_id, "a")])

    await asyncio.gather(*(one(number) for number in range(24)))
    used = {file.sha256 for job in ("j0", "j1", "j2") for file in await kept.of_job(job)}
    assert set(contents(tmp_path)) == used

"""Files that come in part: kept for a while for who goes on with them, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.disk import parts as module
from tiercel.trainer_agent.disk.parts import Parts, remove_all_but_parts
from tiercel.trainer_agent.errors import RefusedError, TransferError


async def test_what_has_come_stays_for_ten_minutes_after_nobody_fetches_it_and_of_many_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_LEFT", 2)
    now = [0.0]
    parts = Parts(tmp_path, 100, lambda: now[0])

    def left() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    for number, name in enumerate(("copy-of-a", "copy-of-b", "copy-of-c")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (number, number))
    await parts.drop_left()
    assert left() == {"copy-of-b", "copy-of-c"}
    now[0] = 599.0
    with contextlib.suppress(RefusedError):
        async with parts.fetching("d") as place:
            place.mkdir()
            (place / "model.onnx").write_bytes(bytes(100))
            raise RefusedError("NOT_FOUND", "it begins, and does not know yet")
    now[0] = 601.0
    await parts.drop_left()
    assert left() == {"copy-of-d"}
    now[0] += 600.0
    async with parts.fetching("d") as place:
        await parts.drop_left()
        assert left() == {"copy-of-d"}, "it is being fetched again"
        (place / "too-large").write_bytes(b"?")
        with pytest.raises(asyncio.CancelledError):
            async with parts.fetching("d"):
                raise asyncio.CancelledError
    assert left() == set(), "what came whole, or is wrong, is not gone on with"


async def test_what_turned_out_to_be_of_no_use_is_gone_and_what_others_put_there_is_theirs(tmp_path: Path) -> None:
    parts = Parts(tmp_path, 100)
    (tmp_path / "of-a-delivery").mkdir()
    (tmp_path / "sent").mkdir()
    (tmp_path / "copy-of-b").mkdir()
    with contextlib.suppress(TransferError):
        async with parts.fetching("a") as place:
            place.mkdir()
            raise TransferError("it arrived damaged")
    await parts.drop_left()
    assert {path.name for path in tmp_path.iterdir()} == {"of-a-delivery", "sent", "copy-of-b"}
    remove_all_but_parts(tmp_path, {"of-a-delivery"})
    assert {path.name for path in tmp_path.iterdir()} == {"of-a-delivery", "copy-of-b"}
    remove_all_but_parts(tmp_path / "missing")

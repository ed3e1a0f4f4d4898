"""Who answers, as the agent's file says: followed, bounded, and never forgotten for a file that is of no use."""

from __future__ import annotations

import asyncio
from pathlib import Path

from testing.routes import clear, write_routes
from testing.until import until
from tiercel.core.routes import Backend
from tiercel.serving.routing.directory import MOST_BYTES, Directory


def test_a_node_does_not_ask_itself_nor_one_without_an_address(tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    far = Backend("far", 1, https="10.0.0.1:1")
    write_routes(file, "me", {"a": (clear("me", "127.0.0.1:1"), far), "b": (Backend("mute", 1, grpc="127.0.0.1:1"),)})
    directory = Directory(file)
    assert directory.backends("a") == (far,)
    assert directory.backends("b") == ()
    assert directory.nodes == {"far"}
    assert directory.token


def test_without_a_file_nobody_else_answers() -> None:
    assert Directory(None).backends("a") == ()


def test_who_asks_for_what_nobody_is_known_to_have_has_it_looked_at_once_but_not_all_the_time(tmp_path: Path) -> None:
    file, now = tmp_path / "routes.json", [0.0]
    directory = Directory(file, lambda: now[0])
    write_routes(file, "me", {"a": (clear("far", "127.0.0.1:1"),)})
    assert directory.backends("a") == ()
    now[0] = 0.1
    assert len(directory.backends("a")) == 1


async def test_the_file_is_followed_and_one_that_is_of_no_use_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    directory = Directory(file, lambda: 0.0)
    watching = asyncio.create_task(directory.watch())
    write_routes(file, "me", {"a": (clear("far", "127.0.0.1:1"),)})
    await until(lambda: bool(directory.backends("a")))
    for content in (b"{", b" " * (MOST_BYTES + 1)):
        file.write_bytes(content)
        await asyncio.sleep(0.3)
        assert directory.backends("a")
    write_routes(file, "me", {})
    await until(lambda: not directory.backends("a"))
    watching.cancel()

"""What images have is asked for once, by their content."""

from __future__ import annotations

import asyncio
import json

import pytest

from testing.until import until
from tests.unit.trainer_agent.environments.test_image_layer import SAID
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.environments.image_program import MARK, PROGRAM
from tiercel.trainer_agent.errors import RunFailedError


class Images:
    """Answers for images, as soon as it may."""

    def __init__(self, answer: bytes = MARK.encode() + json.dumps(SAID).encode()) -> None:
        self.answer = answer
        self.fails = False
        self.asked: list[str] = []
        self.said: list[str] = []
        self.go = asyncio.Event()

    async def ask(self, image_id: str, program: str) -> bytes:
        assert program == PROGRAM
        self.asked.append(image_id)
        await self.go.wait()
        if self.fails:
            raise RunFailedError("the engine is away")
        return self.answer


async def test_one_image_is_asked_once_and_another_does_not_wait_for_it() -> None:
    layers, images, other = ImageLayers("/inside"), Images(), Images()
    other.go.set()
    waiting = [asyncio.ensure_future(layers.of("sha256:1", images.ask, images.said.append)) for _ in range(3)]
    layer = await layers.of("sha256:2", other.ask, other.said.append)
    images.go.set()
    assert [await each for each in waiting] == [layer] * 3
    assert images.asked == ["sha256:1"]
    assert images.said == ["environment: its image is asked what it has"]
    await layers.of("sha256:1", images.ask, images.said.append)
    assert images.asked == ["sha256:1"]


async def test_who_asked_first_may_give_up_and_the_next_one_asks() -> None:
    layers, images = ImageLayers("/inside"), Images()
    first, second = (asyncio.ensure_future(layers.of("sha256:1", images.ask, images.said.append)) for _ in range(2))
    await until(lambda: images.asked)
    first.cancel()
    images.go.set()
    assert (await second).interpreter.version == "3.12.4"
    assert len(images.asked) == 2


async def test_an_answer_that_is_none_is_remembered_and_an_engine_that_fails_is_not() -> None:
    layers, images = ImageLayers("/inside"), Images(b"nonsense")
    images.go.set()
    images.fails = True
    with pytest.raises(RunFailedError, match="the engine is away"):
        await layers.of("sha256:1", images.ask, images.said.append)
    images.fails = False
    for _ in range(2):
        with pytest.raises(RunFailedError, match="is not understood"):
            await layers.of("sha256:1", images.ask, images.said.append)
    assert len(images.asked) == 2


async def test_what_is_remembered_is_bounded() -> None:
    layers, images = ImageLayers("/inside"), Images()
    images.go.set()
    for number in range(100):
        await layers.of(f"sha256:{number}", images.ask, images.said.append)
    await layers.of("sha256:99", images.ask, images.said.append)
    assert len(images.asked) == 100
    assert len(layers._known) < 100

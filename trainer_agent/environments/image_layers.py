"""Knows what images have: asks each once, by its content, so that another image under the same name is asked anew."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Final

from tiercel.trainer_agent.environments.image_layer import ImageLayer, layer_of
from tiercel.trainer_agent.environments.image_program import PROGRAM
from tiercel.trainer_agent.errors import RunFailedError

_MOST_KNOWN: Final = 64

Ask = Callable[[str, str], Awaitable[bytes]]
"""Has a program run by the Python of an image, by its id, and returns what that wrote."""


class ImageLayers:
    """Knows what images have."""

    def __init__(self, inside: str) -> None:
        self._inside = inside
        self._known: dict[str, ImageLayer | RunFailedError] = {}
        self._asking: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def of(self, image_id: str, ask: Ask, say: Callable[[str], None]) -> ImageLayer:
        """What an image has.

        Args:
            image_id: The image, by its content.
            ask: Asks it.
            say: Told when that is done.

        Raises:
            RunFailedError: It cannot be asked, or no environment can be built for it; says why.
        """
        lock = self._asking.setdefault(image_id, asyncio.Lock())
        async with lock:
            if image_id not in self._known:
                say("environment: its image is asked what it has")
                said = await ask(image_id, PROGRAM)  # where this fails it may pass, so it is not remembered
                try:
                    found: ImageLayer | RunFailedError = await asyncio.to_thread(layer_of, said, self._inside)
                except RunFailedError as error:
                    found = error
                while len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[image_id] = found
            known = self._known[image_id]
        if isinstance(known, RunFailedError):
            raise RunFailedError(known.message)
        return known

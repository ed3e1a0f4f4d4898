"""Asks the Python of an image: a short program in a container that can do nothing else, as anybody makes images."""

from __future__ import annotations

import asyncio
import logging
import platform
import secrets
from typing import Any, Final

from aiodocker import Docker
from aiodocker.containers import DockerContainer

from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.runtimes.containers.config import ContainerDefaults, asking_config
from tiercel.trainer_agent.runtimes.containers.engine_calls import EngineError, message_of, remove, why_not_created

_log = logging.getLogger(__name__)

_SECONDS: Final = 60.0
_MOST_BYTES: Final = 2 * 1024**2
_MOST_COMPLAINT_BYTES: Final = 2000
_STDOUT: Final = 1
# How engines name machines, and how kernels do.
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_ADVICE: Final = "use an image with Python, or leave out requirements and install them in the image"


class ImagePython:
    """Asks the Python of images; see :class:`~tiercel.trainer_agent.runtimes.contract.ImagePython`."""

    def __init__(self, docker: Docker, defaults: ContainerDefaults) -> None:
        self._docker = docker
        self._defaults = defaults

    async def identify(self, image: str) -> str:
        """See the class."""
        try:
            found: dict[str, Any] = await self._docker.images.inspect(image or self._defaults.image)
        except EngineError as error:
            raise RunFailedError(why_not_created(image, self._defaults.image, error)) from error
        machine = str(found.get("Architecture") or "")
        if _MACHINES.get(machine, machine) != platform.machine():
            raise RunFailedError(
                f"The image {image or self._defaults.image} is for {machine}, and this node is {platform.machine()}: "
                "use one for this kind of machine."
            )
        return str(found["Id"])

    async def ask(self, image_id: str, program: str) -> bytes:
        """See the class."""
        name = f"tiercel-asking-{self._defaults.instance}-{secrets.token_hex(8)}"  # which is no run's
        config = asking_config(image_id, program, self._defaults)
        try:
            container = await self._docker.containers.create(config, name=name)
            return await _answer_in_time(container)
        except (*EngineError, AssertionError) as error:
            # The last is how aiodocker says that the engine hung up.
            said = message_of(error) if not isinstance(error, AssertionError) else "nothing, it hung up"
            raise RunFailedError(
                f"The Docker engine does not run the `python` of its image to see what it has; {_ADVICE}. The engine "
                f"says: {said}."
            ) from error
        finally:
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        try:
            # By its name: the engine may have made it though nobody waited for its answer.
            await remove(self._docker.containers.container(name))
        except EngineError as error:
            _log.error("%s cannot be removed, the next start of the agent does it: %s", name, message_of(error))


async def _answer_in_time(container: DockerContainer) -> bytes:
    try:
        async with asyncio.timeout(_SECONDS) as limit:
            return await _answer_of(container)
    except TimeoutError:
        if not limit.expired():  # it is the engine's
            raise
        raise RunFailedError(
            f"The Python of its image does not say within {_SECONDS:g} s what it has; {_ADVICE}."
        ) from None


async def _answer_of(container: DockerContainer) -> bytes:
    """What a container writes until it ends."""
    answer, complaint = bytearray(), bytearray()
    async with container.attach(stdout=True, stderr=True) as stream:
        await container.start()
        while (message := await stream.read_out()) is not None:
            into = answer if message.stream == _STDOUT else complaint
            into += message.data
            del complaint[:-_MOST_COMPLAINT_BYTES]
            if len(answer) > _MOST_BYTES:
                raise RunFailedError(f"The Python of its image says more than {_MOST_BYTES} bytes; {_ADVICE}.")
    code = (await container.wait())["StatusCode"]
    if code != 0:
        said = " ".join(complaint.decode(errors="replace").split())[-500:]
        raise RunFailedError(f"The Python of its image ended with code {code} when asked what it has: {said}.")
    return bytes(answer)

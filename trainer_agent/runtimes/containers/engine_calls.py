"""What aiodocker does not say or do by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer

CALL: Final = aiohttp.ClientTimeout(total=60, sock_connect=10)
"""How long a call may take."""

NOT_FOUND: Final = 404
CONFLICT: Final = 409

EngineError: Final = (DockerError, aiohttp.ClientError, TimeoutError, OSError)
"""What a call raises where the engine does not do what it should, or is not there."""


async def update(docker: Docker, container_id: str, limits: Mapping[str, int]) -> None:
    """Change what a container may use.

    Raises:
        DockerError: It is not changed.
    """
    path = f"containers/{container_id}/update"
    await docker._query_json(path, method="POST", data=dict(limits))  # noqa: SLF001 - aiodocker has no call for it


async def remove(container: DockerContainer) -> None:
    """End a container and have it gone; one that is gone is no error.

    Raises:
        DockerError: It stays.
    """
    try:
        await container.delete(force=True, v=True, timeout=CALL)
    except DockerError as error:
        if error.status not in {NOT_FOUND, CONFLICT}:  # gone, or being removed already
            raise


def message_of(error: BaseException) -> str:
    """What an error of a call says."""
    text = error.message if isinstance(error, DockerError) else str(error)
    return (str(text) or type(error).__name__).strip().rstrip(".")


def why_not_created(image: str, default: str, error: BaseException) -> str:
    """Why there is no container of an image, for people."""
    if isinstance(error, DockerError) and error.status == NOT_FOUND:
        if (image or default) == default:
            return f"The image {default} is not on this node: build it there with `make image`."
        return f"The image {image} is not on this node: pull or build it there, or leave the image out of the job."
    return f"The Docker engine did not create the container: {message_of(error)}."

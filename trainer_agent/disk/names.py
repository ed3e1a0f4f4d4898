"""Names that become parts of paths, checked where they come in although the broker has checked them before."""

from __future__ import annotations

import re
from typing import Final

from tiercel.trainer_agent.errors import DeliveryFailedError, RunFailedError

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ENDPOINT: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def is_plain(name: str) -> bool:
    """Whether a name is a letter or digit followed by letters, digits, ``.``, ``_`` and ``-``: safe in a path."""
    return _PLAIN.fullmatch(name) is not None


def is_place(endpoint: str, variant: str) -> bool:
    """Whether these are names of an endpoint and of a variant of it, or of none: safe in a path."""
    return _ENDPOINT.fullmatch(endpoint) is not None and (not variant or _VARIANT.fullmatch(variant) is not None)


def check_run(run_id: str, job_id: str, script: str) -> None:
    """Check what a run's paths are made of.

    Raises:
        RunFailedError: One of them is not a plain name.
    """
    for what, name in (("run id", run_id), ("job id", job_id), ("script's name", script or "none")):
        if not is_plain(name):
            raise RunFailedError(f"The {what} {name!r} is not a plain file name; the node does not use it in a path.")


def check_delivery(delivery_id: str, endpoint: str, variant: str = "") -> None:
    """Check what a delivery's paths are made of.

    Raises:
        DeliveryFailedError: The id, the endpoint or its variant is not a plain name.
    """
    if not is_plain(delivery_id):
        raise DeliveryFailedError(f"The delivery id {delivery_id!r} is not a plain file name.")
    if _ENDPOINT.fullmatch(endpoint) is None:
        raise DeliveryFailedError(
            f"The endpoint {endpoint!r} cannot be a folder: use lower-case letters, digits, '.', '_' and '-'."
        )
    if variant and _VARIANT.fullmatch(variant) is None:
        raise DeliveryFailedError(
            f"The variant {variant!r} cannot be part of a folder's name: use lower-case letters, digits, '_' and '-'."
        )

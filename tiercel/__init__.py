"""Tiercel: train and serve on the same few machines; ship at the first tier, keep training, hot-swap what is better.

The folders of the repository's top are linked into this package, so that what is ``broker/`` in the tree is
``tiercel.broker`` in an import, and nothing of ours claims a name like ``serving`` in somebody's environment.

The client SDK's names are to be had from here; nothing is imported before one of them is used, since training scripts
and the inference server import this package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiercel.broker.client import Client as Client
    from tiercel.broker.client import ClientOptions as ClientOptions
    from tiercel.broker.client import JobHandle as JobHandle
    from tiercel.broker.client import JobInfo as JobInfo
    from tiercel.broker.client import RetryPolicy as RetryPolicy
    from tiercel.broker.client import SyncClient as SyncClient
    from tiercel.broker.client import TierMissedError as TierMissedError
    from tiercel.broker.client import load_spec as load_spec
    from tiercel.broker.client import parse_spec as parse_spec
    from tiercel.broker.domain.errors import EndpointBusyError as EndpointBusyError
    from tiercel.broker.domain.errors import InvalidSpecError as InvalidSpecError
    from tiercel.broker.domain.errors import NotAuthenticatedError as NotAuthenticatedError
    from tiercel.broker.domain.errors import NotFoundError as NotFoundError
    from tiercel.broker.domain.errors import OverloadedError as OverloadedError
    from tiercel.broker.domain.errors import QuotaExceededError as QuotaExceededError
    from tiercel.broker.domain.errors import TiercelError as TiercelError
    from tiercel.broker.domain.errors import UnavailableError as UnavailableError
    from tiercel.broker.domain.jobs import Direction as Direction
    from tiercel.broker.domain.jobs import JobSpec as JobSpec
    from tiercel.broker.domain.jobs import JobState as JobState
    from tiercel.broker.domain.jobs import Resources as Resources
    from tiercel.broker.domain.jobs import Script as Script
    from tiercel.broker.domain.jobs import Tier as Tier
    from tiercel.broker.domain.jobs import TierState as TierState

__version__ = "0.1.0"

_HOMES = {
    "tiercel.broker.client": (
        "Client ClientOptions JobHandle JobInfo RetryPolicy SyncClient TierMissedError load_spec parse_spec"
    ),
    "tiercel.broker.domain.errors": (
        "EndpointBusyError InvalidSpecError NotAuthenticatedError NotFoundError OverloadedError QuotaExceededError "
        "TiercelError UnavailableError"
    ),
    "tiercel.broker.domain.jobs": "Direction JobSpec JobState Resources Script Tier TierState",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])

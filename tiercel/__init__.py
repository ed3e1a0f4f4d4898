"""Tiercel: train and serve on the same few machines; ship at the first tier, keep training, hot-swap what is better.

The folders of the repository's top are linked into this package, so that what is ``broker/`` in the tree is
``tiercel.broker`` in an import, and nothing of ours claims a name like ``serving`` in somebody's environment.

The client SDK's names are to be had from here, typed in ``__init__.pyi``. Nothing is imported before one of them is
used, since training scripts and the inference server import this package too.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# ONNX Runtime's wheels report to their makers from the moment they are imported, unless this is there by then: they
# start a thread, and keep a database in the user's cache. Whatever of ours imports it has imported this package before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "tiercel.broker.client": (
        "Client ClientOptions EndpointClient JobHandle JobInfo RetryPolicy SyncClient SyncEndpointClient "
        "TierMissedError job load_spec parse_spec"
    ),
    "tiercel.core.data_sets": "DataSet",
    "tiercel.core.errors": (
        "EndpointBusyError InvalidSpecError NotAuthenticatedError NotFoundError OverloadedError QuotaExceededError "
        "TiercelError UnavailableError"
    ),
    "tiercel.core.jobs": "Direction JobSpec JobState Resources Script Tier TierState",
    "tiercel.core.retraining": "Retrain",
    "tiercel.core.shipping": "Shipping",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])

"""``tiercel down``."""

from __future__ import annotations

from pathlib import Path

from tiercel.broker.cli.up.addresses import read_earlier
from tiercel.broker.cli.up.options import Places
from tiercel.broker.cli.up.processes import stop_holder
from tiercel.broker.client.state_dir import JOINED_AS

_UP_SECONDS = 60.0
_AGENT_SECONDS = 45.0
_SERVING_SECONDS = 15.0


async def run_down(state_dir: Path) -> list[str]:
    """Stop what runs in a state directory.

    Returns:
        What was stopped, in words.
    """
    places = Places(state_dir)
    # In this order: 'up' would start the agent again, and the agent the inference server.
    kept = "the agent" if JOINED_AS in read_earlier(places.addresses) else "the broker with its agent"
    parts = (
        (f"{kept} and inference server", places.up_lock, _UP_SECONDS),
        ("the agent", places.agent_lock, _AGENT_SECONDS),
        ("the inference server", places.serving_lock, _SERVING_SECONDS),
    )
    return [name for name, lock, seconds in parts if await stop_holder(lock, seconds)]

"""Ports for servers that must know theirs before they start, or get it again after a restart."""

from __future__ import annotations

import random
import socket

# Below what Linux gives to outgoing connections and to servers that ask for any: nobody takes it by chance.
_RANGE = range(20_000, 30_000)


def free_port() -> int:
    """A loopback port that nobody uses at the moment."""
    for port in random.sample(_RANGE, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port among a hundred")

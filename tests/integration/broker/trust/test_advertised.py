"""Where a machine that joins a broker on itself says that others reach it."""

from __future__ import annotations

import subprocess
import sys

from testing.hosts import hosts

PROGRAM = """
import socket
from tiercel.broker.cli.up.joined import address_towards
for listening in ("0.0.0.0", "127.0.0.1"):
    with socket.socket() as broker:
        broker.bind((listening, 0))
        broker.listen()
        port = broker.getsockname()[1]
        print(address_towards(f"127.0.0.1:{port}"), address_towards(f"localhost:{port}"))
"""


def test_who_joins_a_broker_that_others_reach_from_its_own_machine_is_not_told_of_by_a_loopback_address() -> None:
    with hosts("here") as (here,):
        command = here.command(sys.executable, "-c", PROGRAM)
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.splitlines() == [f"{here.address} {here.address}", "127.0.0.1 127.0.0.1"]

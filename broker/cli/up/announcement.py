"""What ``up`` and ``join`` say once everything answers: short lines, the last one empty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiercel.broker.client.state_dir import default_state_dir

UP_WORDS = "Tiercel is up: "
"""How the first line begins."""


def of_broker(node_id: str, addresses: Mapping[str, str], state_dir: Path) -> str:
    """Where the broker and the node beside it answer, and what to do next.

    Args:
        node_id: Name of the node.
        addresses: As ``addresses.json`` has them, with those of the inference server.
        state_dir: Where all is kept.
    """
    lines = [
        *_row("dashboard", f"http://{addresses['dashboard']} ('tiercel dashboard' opens it)"),
        *_row("broker", f"{addresses['broker']}, for agents {addresses['nodes']}"),
        *_row("models", f"{addresses['serving_http']} (HTTP), {addresses['serving_grpc']} (gRPC)"),
        *_row("MQTT", addresses["mqtt"]),
        *_row("state", str(state_dir)),
    ]
    if "broker_tls" in addresses:
        lines += [
            "For others, by TLS 1.3 ('tiercel node token' lets a machine join):",
            *_row("dashboard", f"https://{addresses['dashboard_tls']}"),
            *_row("broker", addresses["broker_tls"]),
            *_row("pin", addresses["pin"]),
            *_row("models", f"https://{addresses['serving_https']}" if "serving_https" in addresses else ""),
            *_row("MQTT", addresses.get("mqtt_tls", "")),
        ]
    if state_option(state_dir):
        lines.append("Commands find it by --state-dir or the variable TIERCEL_STATE_DIR.")
    lines.append("Next: 'tiercel init FOLDER' and 'tiercel submit FOLDER' for a script of yours.")
    return _paragraph(f"broker and node {node_id}", lines)


def of_joined_node(node_id: str, broker: str, state_dir: Path) -> str:
    """For which broker a node works."""
    return _paragraph(f"node {node_id}", [*_row("broker", broker), *_row("state", str(state_dir))])


def state_option(state_dir: Path) -> str:
    """What commands have to be given to find a state directory; empty where they look there by themselves."""
    return "" if state_dir == default_state_dir().absolute() else f" --state-dir {state_dir}"


def found_in(lines: list[str]) -> str:
    """The announcement among lines of a log; empty while it is not there, or not whole."""
    first = next((index for index, line in enumerate(lines) if line.startswith(UP_WORDS)), len(lines))
    return "\n".join(lines[first : lines.index("", first)]) if "" in lines[first:] else ""


def _row(name: str, value: str) -> list[str]:
    return [f"  {name:<9}  {value}"] if value else []


def _paragraph(title: str, lines: list[str]) -> str:
    # The empty line is how whoever waits for it in a log sees that it is whole.
    return "\n".join((f"{UP_WORDS}{title}", *lines, ""))

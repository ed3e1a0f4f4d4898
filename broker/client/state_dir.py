"""What ``tiercel up`` leaves in its state directory for clients on the same machine."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

from tiercel.core.errors import NotAuthenticatedError, UnavailableError
from tiercel.core.trust.trust import Trust

JOINED_AS = "node_id"
"""The name of a machine that joined, in its ``addresses.json``."""

PIN_FOLLOWS = "pin_follows_authority"
"""Set in ``addresses.json`` of a machine that joined where the pin is of the authority that its agent believes."""


def default_state_dir() -> Path:
    """``TIERCEL_STATE_DIR``, else ``tiercel`` in the user's folder for state."""
    if chosen := os.environ.get("TIERCEL_STATE_DIR"):
        return Path(chosen)
    state_home = os.environ.get("XDG_STATE_HOME")
    return (Path(state_home) if state_home else Path.home() / ".local" / "state") / "tiercel"


def read_addresses(state_dir: Path) -> dict[str, str]:
    """Where things listen, by what they are; ``serving_http`` and ``serving_grpc`` come later than the others.

    Raises:
        UnavailableError: There is no such file, or it cannot be read.
    """
    path = state_dir / "addresses.json"
    try:
        addresses = json.loads(path.read_text())
    except FileNotFoundError:
        message = f"No broker was started in {state_dir}; start one with 'tiercel up', or give --state-dir or --broker."
        raise UnavailableError(message) from None
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read ({error}); start 'tiercel up' again on {state_dir}."
        raise UnavailableError(message) from error
    return {str(key): str(value) for key, value in addresses.items()} if isinstance(addresses, dict) else {}


def read_broker(state_dir: Path) -> tuple[str, Trust]:
    """Where the broker listens, ``host:port``, and how it is known: on this machine, or as a node joined it from here.

    Raises:
        UnavailableError: It is not known.
    """
    addresses = read_addresses(state_dir)
    if address := addresses.get("broker", ""):
        return address, Trust()
    if address := addresses.get("broker_tls", ""):
        return address, Trust(pin=_newest_pin(state_dir, addresses))
    message = f"The broker in {state_dir} did not say where it listens; start 'tiercel up' again on {state_dir}."
    raise UnavailableError(message)


def _newest_pin(state_dir: Path, addresses: dict[str, str]) -> str:
    """The pin with which the machine joined, or of the authority that took that one's place since."""
    pin = addresses.get("pin", "")
    if PIN_FOLLOWS not in addresses:
        return pin
    from tiercel.core.trust.certificates import CertificateError, pin_of, read_chain  # takes a while to import

    try:
        believed = [pin_of(each) for each in read_chain((state_dir / "agent" / "authority.pem").read_bytes())]
    except (OSError, CertificateError):
        return pin
    return pin if pin in believed else believed[0]


def _no_tokens(state_dir: Path) -> str:
    try:
        addresses = read_addresses(state_dir)
    except UnavailableError:
        addresses = {}
    if JOINED_AS not in addresses:
        return f"There are no tokens of tenants in {state_dir}; set TIERCEL_TOKEN or give --state-dir."
    return (
        f"This machine is node {addresses[JOINED_AS]} of the broker at {addresses.get('broker_tls', '')}, which has "
        "the tokens: run this there, or set TIERCEL_TOKEN to one of a tenant."
    )


def read_tokens(state_dir: Path) -> dict[str, str]:
    """The tokens of all tenants, by name; who may read them operates the broker.

    Raises:
        NotAuthenticatedError: There are none, or they are not this user's to read.
    """
    path = state_dir / "tenants.toml"
    try:
        tenants = tomllib.loads(path.read_text()).get("tenants", {})
    except FileNotFoundError:
        raise NotAuthenticatedError(_no_tokens(state_dir)) from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        message = f"{path} cannot be read ({error}); set TIERCEL_TOKEN to the tenant's token."
        raise NotAuthenticatedError(message) from error
    return {name: str(tenant.get("token", "")) for name, tenant in tenants.items()}


def read_token(state_dir: Path, tenant: str) -> str:
    """The tenant's token.

    Raises:
        NotAuthenticatedError: There is none, or it is not this user's to read.
    """
    tokens = read_tokens(state_dir)
    if not tokens.get(tenant):
        known = ", ".join(sorted(tokens)) or "none"
        message = f"There is no tenant '{tenant}' in {state_dir} (known: {known}); make it with 'tiercel up --tenant'."
        raise NotAuthenticatedError(message)
    return tokens[tenant]

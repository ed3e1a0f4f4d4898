"""What it takes to listen wider than on this machine: put together from the settings."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil

from tiercel.broker.trust.authority import CERTIFICATE_LIFE
from tiercel.broker.trust.doors import OperatorsIdentity, OwnIdentity, server_credentials
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.core.addresses import EVERYWHERE, family_of, require_host
from tiercel.core.errors import wrong_field
from tiercel.core.trust.names import NODE_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.trust.doors import Shown


@dataclass(frozen=True, slots=True)
class Encryption:
    """What the encrypted doors need."""

    authority: KeptAuthority  # vouches for the broker and its nodes
    tenants: grpc.ServerCredentials  # what the tenants' door shows
    nodes: grpc.ServerCredentials  # what the agents' door shows, and whom it lets through
    shown: Shown  # what other doors for tenants show
    names: tuple[str, ...]  # how others call this machine; what to tell them first

    @property
    def host(self) -> str:
        """How others call this machine, as they are told."""
        return self.names[0]

    @property
    def pin(self) -> str:
        """Of the authority that vouches for the tenants' door at this moment."""
        return self.shown.pin


def open_encryption(settings: BrokerSettings, now: Callable[[], float]) -> Encryption | None:
    """Make or read what is needed; None where the broker listens on this machine alone.

    Args:
        settings: The broker's; its state directory exists.
        now: Seconds since the Unix epoch.

    Raises:
        InvalidSpecError: A setting is wrong, or files cannot be used; names the setting.
    """
    given = (settings.tls_certificate, settings.tls_key, settings.tls_ca)
    if not settings.listen:
        if any(given) or settings.listen_names:
            raise wrong_field(
                "listen", "certificates and names are for a broker that others reach; give --listen ADDRESS as well"
            )
        return None
    _check_address(settings.listen)
    asked = settings.certificate_seconds
    life = CERTIFICATE_LIFE if asked is None else timedelta(seconds=asked)
    authority = KeptAuthority.open(settings.state_dir, datetime.fromtimestamp(now(), UTC), life)
    names = _names(settings)
    own = OwnIdentity(authority, names, now)
    shown: Shown = own
    certificate, key, operators_authority = given
    if certificate and key and operators_authority:
        shown = OperatorsIdentity(certificate, key, operators_authority)
    elif any(given):
        raise wrong_field(
            "tls_certificate", "--tls-certificate, --tls-key and --tls-ca go together; give all three or none"
        )
    # Nodes always know the broker by its own authority, from which they have their certificates.
    nodes = server_credentials(own, authority)
    return Encryption(authority, server_credentials(shown), nodes, shown, tuple(names))


def address_for_others(listen: str) -> str:
    """An address of this machine that others reach: the one that it listens at, or of all of them the first."""
    return listen if listen not in EVERYWHERE else _own_addresses(listen)[0]


def _check_address(text: str) -> None:
    try:
        # One of a link alone, fe80::1%eth0, means something else on each machine.
        is_fit = not ipaddress.ip_address(text).is_link_local
    except ValueError:
        is_fit = False
    if not is_fit:
        raise wrong_field(
            "listen",
            f"{text!r} is not an address at which others reach this machine; give an IPv4 or IPv6 address of it, "
            "without brackets and port, or 0.0.0.0 for all of IPv4, or :: for all of both",
        )


def _names(settings: BrokerSettings) -> list[str]:
    """How this machine may be called, what to tell others first."""
    for name in settings.listen_names:
        if name.lower().rstrip(".").endswith(NODE_DOMAIN):
            raise wrong_field("listen_names", f"{name!r} stands for a node; give a name that is this machine's alone")
        require_host("listen_names", name)
    here = [settings.listen] if settings.listen not in EVERYWHERE else _own_addresses(settings.listen)
    return list(dict.fromkeys([*settings.listen_names, *here, socket.gethostname(), "localhost", "127.0.0.1", "::1"]))


def _own_addresses(listen: str) -> list[str]:
    """Addresses at which a listener at all of them is reached; those of its own kind first, then those of others."""
    kinds = {socket.AF_INET, family_of(listen)}
    cards = psutil.net_if_addrs().values()
    found = [ipaddress.ip_address(each.address) for card in cards for each in card if each.family in kinds]
    fit = [each for each in found if not each.is_link_local]
    return [str(each) for each in sorted(fit, key=lambda each: (each.is_loopback, -each.version))]

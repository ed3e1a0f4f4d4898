"""Who may call: tokens of tenants and of nodes, in files that only the operator can read."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
import tomllib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError, wrong_field
from tiercel.core.issued_tokens import IssuedTokens, check_usable
from tiercel.core.people import KnownPeople
from tiercel.core.private_files import write_private
from tiercel.core.quotas import MAX_HOURS, Allowance
from tiercel.core.roles import Role
from tiercel.core.tenants import (
    DEFAULT_MAX_ACTIVE_JOBS,
    DEFAULT_WEIGHT,
    MAX_CLASS_VALUE,
    PriorityClass,
    Tenant,
    is_tenant_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tiercel.core.people import Person

MIN_TOKEN_CHARACTERS = 16
_NAME_WORDS = "use 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit"
# They would share topics with what is told of nodes and of the broker.
_RESERVED = frozenset({"broker", "nodes"})
_HEADING = "# Tokens of Tiercel's tenants: keep this file to yourself.\n"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    role: Role  # what the caller may call
    # Which token says so: its id, the file that it stands in, or whom a provider says it is. No secret.
    token: str
    tenant: Tenant | None = None  # whose things are meant; None for whoever calls for no tenant
    person: Person | None = None  # who signed in at a provider; None for all others


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Everybody who may call."""

    tenants: Mapping[str, Tenant]  # by name
    node_token: str = field(repr=False)  # secret that agents on this machine carry
    operator_token: str = field(default="", repr=False)  # secret of whoever may say which machines are nodes
    now: Callable[[], float] = field(default=time.time, repr=False, compare=False)  # seconds since the Unix epoch
    # Tokens that were given out besides.
    issued: IssuedTokens = field(default_factory=IssuedTokens, repr=False, compare=False)
    # Whose tokens of a provider were verified.
    people: KnownPeople = field(default_factory=KnownPeople, repr=False, compare=False)
    # What a tenant may use, where that was set in place of ``tenants.toml``.
    allowances: dict[str, Allowance] = field(default_factory=dict, repr=False, compare=False)

    _by_digest: Mapping[bytes, Tenant] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_digest", {_digest(tenant.token): tenant for tenant in self.tenants.values()})

    def find_tenant(self, token: str) -> Tenant | None:
        """Whose token of ``tenants.toml`` it is; how long this takes says nothing of any."""
        return self._by_digest.get(_digest(token))

    def find(self, name: str) -> Tenant | None:
        """The tenant of this name with what it may use now, or None."""
        tenant = self.tenants.get(name)
        return self.with_quota(tenant) if tenant is not None else None

    def with_quota(self, tenant: Tenant) -> Tenant:
        """The tenant with what it may use now."""
        said = asdict(self.allowances.get(tenant.name, Allowance()))
        return replace(tenant, **{name: value for name, value in said.items() if value is not None})

    def find_caller(self, token: str) -> Caller | None:
        """Who calls with this token; None if nobody has it.

        Raises:
            NotAuthenticatedError: It is good no more.
        """
        if issued := self.issued.find(token, self.now()):
            if issued.tenant and issued.tenant not in self.tenants:
                raise NotAuthenticatedError(f"the token is for tenant {issued.tenant}, who is not there any more")
            return Caller(issued.role, issued.id, self.tenants.get(issued.tenant))
        if tenant := self.find_tenant(token):
            return Caller(Role.SUBMITTER, "tenants.toml", tenant)
        if self.is_operator(token):
            return Caller(Role.OPERATOR, "operator.token")
        if self.is_node(token):
            return Caller(Role.AGENT, "node.token")
        if person := self.people.find(token, self.now()):
            return Caller(person.role, person.id, self.tenants.get(person.tenant), person)
        return None

    def can_end(self, caller: Caller) -> bool:
        """Whether a caller's token may be good no more while a call goes on."""
        return caller.person is not None or self.issued.get(caller.token) is not None

    def check(self, caller: Caller) -> None:
        """Do nothing while a caller may go on.

        Raises:
            NotAuthenticatedError: Its token is good no more.
        """
        if caller.person is not None:
            self.people.check(caller.person, self.now())
        elif issued := self.issued.get(caller.token):
            check_usable(issued, self.now())

    def is_node(self, token: str) -> bool:
        """Whether it is the token of agents."""
        return hmac.compare_digest(self.node_token.encode(), token.encode())

    def is_operator(self, token: str) -> bool:
        """Whether it is the operator's token."""
        return bool(self.operator_token) and hmac.compare_digest(self.operator_token.encode(), token.encode())


def open_tenancy(state_dir: Path, names: Iterable[str], now: Callable[[], float] = time.time) -> Tenancy:
    """Read ``tenants.toml``, ``node.token`` and ``operator.token``, making whatever is missing.

    Args:
        state_dir: The broker's state directory; exists.
        names: Tenants that shall exist.
        now: Seconds since the Unix epoch.

    Raises:
        InvalidSpecError: A name is not a tenant's name, or a file cannot be understood.
    """
    path = state_dir / "tenants.toml"
    text = _read_secret(path) if path.exists() else _HEADING
    tenants, classes = _parse(path, text), _parse_classes(path, text)
    missing = [name for name in dict.fromkeys(names) if name not in tenants]
    for name in missing:
        _check_name(name)
        tenant = tenants[name] = Tenant(name, secrets.token_urlsafe(32))
        # Added at the end, so that whatever the operator wrote stays.
        text += f'\n[tenants.{name}]\ntoken = "{tenant.token}"\nmax_active_jobs = {tenant.max_active_jobs}\n'
    if missing:
        _write_secret(path, text)
    for name, tenant in tenants.items():
        tenants[name] = replace(tenant, classes=tuple(each for each in classes if each.is_for(name)))
    node_token, operator_token = _open_token(state_dir / "node.token"), _open_token(state_dir / "operator.token")
    return Tenancy(tenants, node_token, operator_token, now)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _open_token(path: Path) -> str:
    """The token of a file, which is made where it is missing."""
    if not path.exists():
        _write_secret(path, secrets.token_urlsafe(32) + "\n")
    token = _read_secret(path).strip()
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise wrong_field(
            "tenants", f"{path} has no token of {MIN_TOKEN_CHARACTERS} characters or more; delete it to get one"
        )
    return token


def _parse(path: Path, text: str) -> dict[str, Tenant]:
    try:
        tables = tomllib.loads(text).get("tenants", {})
        tenants = {
            name: Tenant(
                name,
                str(table["token"]),
                int(table.get("max_active_jobs", DEFAULT_MAX_ACTIVE_JOBS)),
                float(table.get("max_core_hours", math.inf)),
                float(table.get("max_accelerator_hours", math.inf)),
                float(table.get("weight", DEFAULT_WEIGHT)),
            )
            for name, table in tables.items()
        }
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise wrong_field(
            "tenants",
            f"{path} cannot be understood ({type(error).__name__}: {error}); each tenant is a table like\n"
            '[tenants.alice]\ntoken = "a long secret"\nmax_active_jobs = 20',
        ) from error
    for tenant in tenants.values():
        _check(path, tenant)
    if len({tenant.token for tenant in tenants.values()}) < len(tenants):
        raise wrong_field("tenants", f"{path} gives the same token to two tenants; give each its own")
    return tenants


def _parse_classes(path: Path, text: str) -> list[PriorityClass]:
    """The priority classes that a file has, which is known to be TOML."""
    found = []
    for name, table in tomllib.loads(text).get("priority_classes", {}).items():
        where = f"{path}: priority class {name!r}"
        if not (isinstance(table, dict) and is_tenant_name(name)):
            raise wrong_field("tenants", f"{where} is none; {_NAME_WORDS}, and give it a value, such as value = 100")
        value, preempts, tenants = table.get("value"), table.get("preempts", True), table.get("tenants")
        if type(value) is not int or abs(value) > MAX_CLASS_VALUE:
            raise wrong_field("tenants", f"{where} has value {value!r}; give a whole number up to {MAX_CLASS_VALUE}")
        if not isinstance(preempts, bool):
            raise wrong_field("tenants", f"{where} has preempts {preempts!r}; give true or false")
        if tenants is not None and not (
            isinstance(tenants, list) and all(is_tenant_name(str(each)) for each in tenants)
        ):
            raise wrong_field(
                "tenants", f"{where} has tenants {tenants!r}; give a list of names, or leave it out for all"
            )
        names = None if tenants is None else tuple(map(str, tenants))
        found.append(PriorityClass(name, value, preempts, names))
    return found


def _check_name(name: str, where: str = "") -> None:
    if not is_tenant_name(name):
        raise wrong_field("tenants", f"{name!r}{where} is not a tenant's name; {_NAME_WORDS}")
    if name in _RESERVED:
        raise wrong_field("tenants", f"{name!r}{where} is a name that Tiercel keeps for itself; choose another")


def _check(path: Path, tenant: Tenant) -> None:
    _check_name(tenant.name, f" in {path}")
    if len(tenant.token) < MIN_TOKEN_CHARACTERS:
        raise wrong_field(
            "tenants", f"{path} gives {tenant.name} no token of {MIN_TOKEN_CHARACTERS} characters or more"
        )
    if tenant.max_active_jobs < 0:
        raise wrong_field(
            "tenants", f"{path} allows {tenant.name} {tenant.max_active_jobs} active jobs; give 0 or more"
        )
    for name, hours in (
        ("max_core_hours", tenant.max_core_hours),
        ("max_accelerator_hours", tenant.max_accelerator_hours),
    ):
        if not (0 <= hours <= MAX_HOURS or hours == math.inf):
            raise wrong_field("tenants", f"{path} gives {tenant.name} {name} of {hours:g}; give 0 to {MAX_HOURS:g}")
    if not (tenant.weight > 0 and math.isfinite(tenant.weight)):
        raise wrong_field(
            "tenants", f"{path} gives {tenant.name} a weight of {tenant.weight:g}; give more than 0, 1 is the default"
        )


def _read_secret(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong_field("tenants", f"{path} cannot be read ({error})") from error


def _write_secret(path: Path, text: str) -> None:
    try:
        write_private(path, text.encode())
    except OSError as error:
        raise wrong_field(
            "tenants", f"{path} cannot be written ({error.strerror}); make room, or choose another folder"
        ) from error

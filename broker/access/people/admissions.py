"""What people may be here, by what their provider's token says of them: ``people.toml`` of the state directory."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiercel.core.errors import wrong_field
from tiercel.core.issued_tokens import GIVEN_ROLES
from tiercel.core.private_files import write_private
from tiercel.core.roles import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

FILE = "people.toml"
MOST_ADMISSIONS = 1_000
MAX_BYTES = 1024 * 1024
_MOST_NAMES = 4
_KEYS = frozenset({"issuer", "claim", "value", "tenant", "role"})
_TEXT = """\
# What people may do who sign in with OpenID Connect ('tiercel up --oidc-issuer'); read at the start.
# The first entry that fits counts, and who fits none is refused. Remove the marks of these lines, or write your own:

# [[people]]
# claim = "groups"            # what the provider's token has; claim = ["realm_access", "roles"] for one inside another
# value = "ml-team"           # all of that text, or one of that list of texts
# tenant = "default"          # whose things; none for the role operator
# role = "submitter"          # viewer (the default), submitter or operator
# # issuer = "https://..."    # of which provider the token is; needed where there are several
"""


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in, and as what."""

    claim: tuple[str, ...]  # what the token must have: the name of a claim, or those of objects inside each other
    value: str  # the text that it must be, or contain if it is a list
    tenant: str  # whose things they may touch; empty for an operator
    role: Role  # what they may call
    issuer: str = ""  # whose tokens count; empty for those of the one provider that there is

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token with these claims, which is verified, is of such a person."""
        # Whoever may write any address into a profile would be whoever has it.
        if self.claim == ("email",) and claims.get("email_verified") is not True:
            return False
        found: Any = claims
        for name in self.claim:
            found = found.get(name) if isinstance(found, dict) else None
        return any(each == self.value for each in found) if isinstance(found, list) else found == self.value


def find_admission(admissions: Sequence[Admission], claims: Mapping[str, Any]) -> Admission | None:
    """The first that fits."""
    return next((each for each in admissions if each.fits(claims)), None)


def open_admissions(state_dir: Path, tenants: Collection[str], issuers: Collection[str]) -> list[Admission]:
    """Read ``people.toml``, making one that lets nobody in if there is none.

    Args:
        state_dir: The broker's state directory; exists.
        tenants: The names of all there are.
        issuers: The providers.

    Raises:
        InvalidSpecError: The file cannot be understood, or names a tenant or a provider that there is not.
    """
    path = state_dir / FILE
    try:
        if not path.exists():
            write_private(path, _TEXT.encode())
        if path.stat().st_size > MAX_BYTES:
            raise _wrong(path, f"has more than {MAX_BYTES} bytes; write fewer entries")
        text = path.read_text(encoding="utf-8")
        entries = tomllib.loads(text).get("people", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _wrong(path, f"cannot be read ({type(error).__name__}: {error})") from error
    if not isinstance(entries, list) or len(entries) > MOST_ADMISSIONS:
        raise _wrong(path, f"has no list of up to {MOST_ADMISSIONS} entries [[people]]; begin each with that line")
    return [_admission(path, number, entry, tenants, issuers) for number, entry in enumerate(entries, start=1)]


def _admission(path: Path, number: int, entry: object, tenants: Collection[str], issuers: Collection[str]) -> Admission:
    where = f"entry {number}"
    if not isinstance(entry, dict):
        raise _wrong(path, f"{where} is no table; begin it with [[people]]")
    if unknown := sorted(entry.keys() - _KEYS):
        raise _wrong(path, f"{where} has {unknown[0]!r}, which means nothing; it may have {', '.join(sorted(_KEYS))}")
    claim, value = entry.get("claim"), entry.get("value")
    names = [claim] if isinstance(claim, str) else claim
    if not isinstance(names, list) or not 1 <= len(names) <= _MOST_NAMES or not all(_is_text(name) for name in names):
        raise _wrong(path, f"{where} has no claim; give its name, or a list of up to {_MOST_NAMES} names")
    if not isinstance(value, str) or not value:
        raise _wrong(path, f"{where} has no value; give the text that the claim must be or contain")
    tenant, role = entry.get("tenant", ""), entry.get("role", Role.VIEWER.value)
    if role not in GIVEN_ROLES:
        raise _wrong(path, f"{where} has the role {role!r}; give {', '.join(GIVEN_ROLES)}")
    if not isinstance(tenant, str) or (role == Role.OPERATOR) is bool(tenant):
        raise _wrong(path, f"{where}: the roles viewer and submitter need a tenant, and an operator has none")
    if tenant and tenant not in tenants:
        raise _wrong(path, f"{where} is for tenant {tenant!r}, whom there is not; make it with --tenant")
    return Admission(tuple(names), value, tenant, Role(role), _issuer(path, where, entry.get("issuer", ""), issuers))


def _issuer(path: Path, where: str, issuer: object, issuers: Collection[str]) -> str:
    if issuer and issuer not in issuers:
        raise _wrong(path, f"{where} is for the provider {issuer!r}, whom there is not; give one of --oidc-issuer")
    # What one provider decides, anybody may write into a profile at another one.
    if not isinstance(issuer, str) or (not issuer and len(issuers) > 1):
        raise _wrong(path, f"{where} does not say whose tokens count; give its issuer, one of {', '.join(issuers)}")
    return issuer


def _is_text(name: object) -> bool:
    return isinstance(name, str) and bool(name)


def _wrong(path: Path, message: str) -> Exception:
    return wrong_field("people", f"{path} {message}")

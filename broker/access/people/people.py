"""Lets people in who sign in at a provider of the operator's: a token is verified once, and remembered while good."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tiercel.broker.access.people.admissions import FILE, find_admission, open_admissions
from tiercel.broker.access.people.keeper import KeyKeeper
from tiercel.broker.access.people.keys import ALGORITHMS
from tiercel.broker.access.people.provider import Provider
from tiercel.broker.access.people.tokens import Expected, has_form, issuer_of, key_id_of, subject_of, verify
from tiercel.core.errors import NotAllowedError, NotAuthenticatedError, wrong_field
from tiercel.core.people import Person
from tiercel.core.tasks import run_until_one_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tiercel.broker.access.people.admissions import Admission
    from tiercel.broker.access.people.keys import ProviderKey
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.tenancy import Tenancy

logger = logging.getLogger(__name__)

MAX_AUDIENCE_CHARACTERS = 255
MOST_PROVIDERS = 8
"""Whose tokens a broker takes."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A provider whose tokens are taken."""

    provider: Provider  # has its keys
    audience: str  # for whom its tokens must be
    admissions: Sequence[Admission]  # what its people may be


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a provider."""

    expected: Expected
    admissions: Sequence[Admission]
    before_subject: str  # how the names of its people begin
    keeper: KeyKeeper


class People:
    """Learns who shows a token of a provider.

    Args:
        accepted: The providers, no two of one issuer.
        tenancy: Is told of each person.
    """

    def __init__(self, accepted: Sequence[Accepted], tenancy: Tenancy, clock: Clock) -> None:
        self._tenancy = tenancy
        self._clock = clock
        self._keys: dict[str, frozenset[str]] = {}  # thumbprints of those that count, by issuer
        self._known: dict[str, _Known] = {}
        for each in accepted:
            issuer = each.provider.issuer
            # Two providers may call two people the same; no issuer has this mark.
            before = "oidc:" if len(accepted) == 1 else f"oidc:{issuer.partition('://')[2]}#"
            keeper = KeyKeeper(each.provider.fetch_keys, clock, partial(self._trust, issuer))
            self._known[issuer] = _Known(Expected(issuer, each.audience), each.admissions, before, keeper)

    async def run(self) -> None:
        """Keep the providers' keys, for ever."""
        await run_until_one_ends(**{f"keys of {issuer}": known.keeper.run() for issuer, known in self._known.items()})

    async def learn(self, text: str) -> None:
        """Have the tenancy know whose token it is, if it is one of a provider's.

        Args:
            text: What is presented; may be anything.

        Raises:
            NotAuthenticatedError: It is one, and is not good.
            NotAllowedError: It is good, and nobody here has let such a person in.
            UnavailableError: The provider's keys are not known.
            OverloadedError: Too many wait for them.
        """
        # What an operator wrote into tenants.toml may be of any form.
        if not has_form(text) or self._tenancy.find_caller(text) is not None:
            return
        key_id = key_id_of(text)
        # Only which keys it is held against; whether it is this provider's is seen by its signature.
        known = self._known.get(issuer_of(text))
        if known is None:
            raise NotAuthenticatedError(f"the token is of another provider (iss), not of {' or '.join(self._known)}")
        key = await known.keeper.find(key_id)
        if key is None:
            raise NotAuthenticatedError(
                f"the provider {known.expected.issuer} lists no key {key_id[:80]!r} that may sign tokens; if that is a "
                "new one, try again in a minute"
            )
        claims = verify(text, key, known.expected, self._clock.now())
        subject = subject_of(claims)
        admission = find_admission(known.admissions, claims)
        if admission is None:
            raise NotAllowedError(
                f"you are signed in as {subject!r}, and nothing in {FILE} of the broker's state directory lets you in; "
                "ask the broker's operator"
            )
        name = f"{known.before_subject}{subject}"
        person = Person(name, admission.role, admission.tenant, key.thumbprint, float(claims["exp"]))
        self._tenancy.people.put(text, person)

    def _trust(self, issuer: str, keys: Mapping[str, ProviderKey]) -> None:
        self._keys[issuer] = frozenset(key.thumbprint for key in keys.values())
        self._tenancy.people.trust(frozenset().union(*self._keys.values()))


def open_people(settings: BrokerSettings, tenancy: Tenancy, clock: Clock) -> People | None:
    """As the operator set it up; None if nobody signs in elsewhere.

    Raises:
        InvalidSpecError: A setting or ``people.toml`` is wrong.
    """
    issuers, audiences = settings.oidc_issuer, settings.oidc_audience
    if not issuers:
        if audiences:
            raise wrong_field("oidc_audience", "means something beside --oidc-issuer alone; give both, or leave it out")
        return None
    _check(issuers, audiences, settings.oidc_algorithms)
    providers = [Provider(issuer, settings.oidc_algorithms) for issuer in issuers]
    admissions = open_admissions(settings.state_dir, tenancy.tenants.keys(), issuers)
    accepted = []
    for provider, audience in zip(
        providers, audiences if len(audiences) > 1 else audiences * len(issuers), strict=True
    ):
        own = [each for each in admissions if each.issuer in {"", provider.issuer}]
        if not own:
            logger.warning("%s has no entry by which anybody gets in by %s", settings.state_dir / FILE, provider.issuer)
        accepted.append(Accepted(provider, audience, own))
    return People(accepted, tenancy, clock)


def _check(issuers: Sequence[str], audiences: Sequence[str], algorithms: Sequence[str]) -> None:
    if len(issuers) > MOST_PROVIDERS or len(set(issuers)) < len(issuers):
        raise wrong_field("oidc_issuer", f"give at most {MOST_PROVIDERS} providers, and each once")
    if not audiences or not all(0 < len(each) <= MAX_AUDIENCE_CHARACTERS for each in audiences):
        raise wrong_field(
            "oidc_audience",
            "says for whom the provider's tokens must be (aud); without it whoever signs in to any other program of "
            "the same provider would get in here; give --oidc-audience, such as the client's id there",
        )
    if len(audiences) not in {1, len(issuers)}:
        raise wrong_field(
            "oidc_audience",
            f"there are {len(audiences)} for {len(issuers)} providers; give one for all, or one for each in order",
        )
    unknown = sorted({*algorithms} - ALGORITHMS)
    if unknown or not algorithms:
        raise wrong_field(
            "oidc_algorithms",
            f"{', '.join(unknown) or 'none'} may not sign tokens; choose of {', '.join(sorted(ALGORITHMS))}",
        )

"""Lets people in who sign in at the operator's provider: a token is verified once, and remembered while it is good."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.access.people.admissions import FILE, find_admission, open_admissions
from tiercel.broker.access.people.keeper import KeyKeeper
from tiercel.broker.access.people.keys import ALGORITHMS
from tiercel.broker.access.people.provider import Provider
from tiercel.broker.access.people.tokens import Expected, has_form, key_id_of, subject_of, verify
from tiercel.core.errors import NotAllowedError, NotAuthenticatedError, wrong_field
from tiercel.core.people import Person

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tiercel.broker.access.people.admissions import Admission
    from tiercel.broker.access.people.keys import ProviderKey
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.tenancy import Tenancy

logger = logging.getLogger(__name__)

MAX_AUDIENCE_CHARACTERS = 255


class People:
    """Learns who shows a token of the provider.

    Args:
        audience: For whom its tokens must be.
        admissions: What people may be.
        tenancy: Is told of each person.
    """

    def __init__(
        self, provider: Provider, audience: str, admissions: Sequence[Admission], tenancy: Tenancy, clock: Clock
    ) -> None:
        self._expected = Expected(provider.issuer, audience)
        self._admissions = admissions
        self._tenancy = tenancy
        self._clock = clock
        self._keeper = KeyKeeper(provider.fetch_keys, clock, self._trust)

    async def run(self) -> None:
        """Keep the provider's keys, for ever."""
        await self._keeper.run()

    async def learn(self, text: str) -> None:
        """Have the tenancy know whose token it is, if it is one of the provider's.

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
        key = await self._keeper.find(key_id)
        if key is None:
            raise NotAuthenticatedError(
                f"the provider {self._expected.issuer} lists no key {key_id[:80]!r} that may sign tokens; if that is a "
                "new one, try again in a minute"
            )
        claims = verify(text, key, self._expected, self._clock.now())
        subject = subject_of(claims)
        admission = find_admission(self._admissions, claims)
        if admission is None:
            raise NotAllowedError(
                f"you are signed in as {subject!r}, and nothing in {FILE} of the broker's state directory lets you in; "
                "ask the broker's operator"
            )
        person = Person(f"oidc:{subject}", admission.role, admission.tenant, key.thumbprint, float(claims["exp"]))
        self._tenancy.people.put(text, person)

    def _trust(self, keys: Mapping[str, ProviderKey]) -> None:
        self._tenancy.people.trust(key.thumbprint for key in keys.values())


def open_people(settings: BrokerSettings, tenancy: Tenancy, clock: Clock) -> People | None:
    """As the operator set it up; None if nobody signs in elsewhere.

    Raises:
        InvalidSpecError: A setting or ``people.toml`` is wrong.
    """
    issuer, audience = settings.oidc_issuer, settings.oidc_audience
    if not issuer:
        if audience:
            raise wrong_field("oidc_audience", "means something beside --oidc-issuer alone; give both, or leave it out")
        return None
    if not 0 < len(audience) <= MAX_AUDIENCE_CHARACTERS:
        raise wrong_field(
            "oidc_audience",
            "says for whom the provider's tokens must be (aud); without it whoever signs in to any other program of "
            "the same provider would get in here; give --oidc-audience, such as the client's id there",
        )
    unknown = sorted({*settings.oidc_algorithms} - ALGORITHMS)
    if unknown or not settings.oidc_algorithms:
        raise wrong_field(
            "oidc_algorithms",
            f"{', '.join(unknown) or 'none'} may not sign tokens; choose of {', '.join(sorted(ALGORITHMS))}",
        )
    provider = Provider(issuer, settings.oidc_algorithms)
    admissions = open_admissions(settings.state_dir, tenancy.tenants.keys())
    if not admissions:
        logger.warning("%s has no entry, so that nobody gets in by %s", settings.state_dir / FILE, issuer)
    return People(provider, audience, admissions, tenancy, clock)

"""People who signed in at a provider: a real broker, real tokens of a stand-in provider, and whoever tries others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from testing.brokers import Tenant, running_broker, status_of, tenant_of, tenant_token
from testing.identity_provider import AUDIENCE, IdentityProvider, hang, identity_provider, new_key
from testing.jobs import make_spec
from testing.membership import operator_of
from testing.until import until
from tiercel import Client
from tiercel.broker.access.people import keeper
from tiercel.broker.access.people.tokens import MAX_CHARACTERS
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.cli import app
from tiercel.broker.client.audit import read_audit
from tiercel.broker.server import Broker
from tiercel.core.audit import BEGUN, AuditRow
from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError
from tiercel.core.tokens import Token

PEOPLE = """
[[people]]
claim = "groups"
value = "ops"
role = "operator"

[[people]]
claim = "groups"
value = "ml"
tenant = "alice"
role = "submitter"

[[people]]
claim = "sub"
value = "eve"
tenant = "alice"
"""


@contextlib.asynccontextmanager
async def broker_for(provider: IdentityProvider, state_dir: Path) -> AsyncIterator[Broker]:
    (state_dir / "people.toml").write_text(PEOPLE)
    async with running_broker(state_dir, oidc_issuer=provider.issuer, oidc_audience=AUDIENCE) as broker:
        yield broker


async def refusal_of(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return f"{refused.value.code().name}: {refused.value.details()}"


async def _follow(tenant: Tenant) -> str:
    try:
        async for _ in tenant.events():
            pass
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "over"


async def test_people_may_what_their_claims_say_and_the_record_has_who_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with identity_provider() as provider, broker_for(provider, tmp_path) as broker:
        tokens = [
            provider.token("ann", groups=["x", "ml"]),
            provider.token("eve"),
            provider.token("olga", groups="ops"),
        ]
        nobody = provider.token("mallory", groups=["others"])
        async with grpc.aio.insecure_channel(broker.broker_address) as channel:
            ann, eve, olga, mallory = (Tenant(channel, text) for text in (*tokens, nobody))
            bob = Tenant(channel, tenant_token(tmp_path, "bob"))
            job = await ann.submit()
            assert job.tenant == "alice"
            assert (await eve.get(job.id)).id == job.id
            assert await status_of(bob.get(job.id)) == "NOT_FOUND"
            assert await status_of(eve.cancel(job.id)) == "PERMISSION_DENIED"
            assert await status_of(olga.cancel(job.id)) == "PERMISSION_DENIED"
            assert await status_of(olga.nodes()) == "OK"
            assert "you are signed in as 'mallory', and nothing in people.toml" in await refusal_of(mallory.nodes())
            await ann.cancel(job.id)
            assert provider.asked.total() == 2, "its two documents, once"
        async with operator_of(broker, tmp_path) as operator:
            rows = [row async for row in read_audit(operator) if isinstance(row, AuditRow)]
        begun = [(row.caller, row.tenant, row.role, row.method) for row in rows if row.outcome == BEGUN]
        assert begun == [
            ("oidc:ann", "alice", "submitter", "JobsService.SubmitJob"),
            ("oidc:ann", "alice", "submitter", "JobsService.CancelJob"),
        ]
        assert ("oidc:eve", "not_allowed") in [(row.caller, row.outcome) for row in rows]
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        for text in (*tokens, nobody):
            for part in text.split(".")[1:]:
                assert part not in caplog.text
                assert part.encode() not in kept


async def test_of_two_providers_each_lets_its_own_people_in_and_nobody_of_the_others(tmp_path: Path) -> None:
    entry = '[[people]]\nissuer = "{}"\nclaim = "groups"\nvalue = "ml"\ntenant = "{}"\nrole = "submitter"\n'
    async with identity_provider() as first, identity_provider() as second:
        text = entry.format(first.issuer, "alice") + entry.format(second.issuer, "bob")
        (tmp_path / "people.toml").write_text(text.replace('"ml"', '"staff"', 1))
        issuers = (first.issuer, second.issuer)
        async with (
            running_broker(tmp_path, oidc_issuer=issuers, oidc_audience=(AUDIENCE, "there")) as broker,
            grpc.aio.insecure_channel(broker.broker_address) as channel,
        ):
            here = Tenant(channel, first.token("ann", groups=["staff"]))
            there = Tenant(channel, second.token("ann", groups=["ml"], aud="there"))
            assert (await here.submit()).tenant == "alice"
            assert (await there.submit(endpoint="theirs")).tenant == "bob"
            # Who is let in at one provider is nobody at the other; nor is a name of one that the other signs for.
            assert "nothing in people.toml" in await refusal_of(
                Tenant(channel, second.token("eve", groups=["staff"], aud="there")).nodes()
            )
            for bad in (
                second.token("ann", groups=["staff"], iss=first.issuer),
                first.token("ann", groups=["ml"], iss=second.issuer, aud="there"),
                second.token("ann", groups=["ml"]),
                first.token("ann", groups=["staff"], aud="there"),
                first.token("ann", groups=["staff"], iss=f"{first.issuer}/"),
                first.token("ann", groups=["staff"], iss=[first.issuer]),
            ):
                assert await status_of(Tenant(channel, bad).nodes()) == "UNAUTHENTICATED"
            async with operator_of(broker, tmp_path) as operator:
                rows = [row async for row in read_audit(operator) if isinstance(row, AuditRow)]
            callers = [row.caller for row in rows if row.outcome == BEGUN]
            assert callers == [f"oidc:{issuer.partition('://')[2]}#ann" for issuer in issuers]


async def test_what_is_no_good_token_gets_nobody_in(tmp_path: Path) -> None:
    async with identity_provider() as provider, identity_provider() as other, broker_for(provider, tmp_path) as broker:
        now = int(time.time())
        good = provider.token("eve")
        bad = [
            other.token("eve"),
            provider.token("eve", iss=other.issuer),
            provider.token("eve", aud="another"),
            provider.token("eve", exp=now - 1),
            provider.token("eve", nbf=now + 600),
            provider.token("eve", key=new_key("first")),
            provider.token("eve", key=new_key("made up")),
            provider.token("eve\x1b[2J"),
            f"{good.rsplit('.', 1)[0]}.",
            good[:-2],
            f"{good} ",
            f"{good}.{good}",
            f"Bearer {good}",
        ]
        async with grpc.aio.insecure_channel(broker.broker_address) as channel:
            for each in bad:
                assert await status_of(Tenant(channel, each).nodes()) == "UNAUTHENTICATED", each
            # As long as one may be, and a little and much longer.
            filling = (MAX_CHARACTERS - 400) * 3 // 4
            most = provider.token("eve", more="x" * filling)
            assert MAX_CHARACTERS - 300 < len(most) <= MAX_CHARACTERS
            assert await status_of(Tenant(channel, most).nodes()) == "OK"
            # Of more than a few characters more gRPC lets some through and refuses others, by chance.
            longer = provider.token("eve", more="x" * (filling + (MAX_CHARACTERS - len(most)) * 3 // 4 + 3))
            assert MAX_CHARACTERS < len(longer) < MAX_CHARACTERS + 20
            assert f"more than {MAX_CHARACTERS} characters" in await refusal_of(Tenant(channel, longer).nodes())
            huge = provider.token("eve", more="x" * 100_000)
            assert await status_of(Tenant(channel, huge).nodes()) != "OK"
            assert await status_of(Tenant(channel, good).nodes()) == "OK"
            # Tiercel's own tokens go on beside them, and are not asked of the provider.
            assert await status_of(Tenant(channel, tenant_token(tmp_path)).nodes()) == "OK"
            assert await status_of(Tenant(channel, Token.draw("access").to_text()).nodes()) == "UNAUTHENTICATED"
            assert provider.asked.total() == 2


async def test_a_token_that_runs_out_ends_its_open_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = [0.0]
    monkeypatch.setattr(SystemClock, "now", lambda _self: time.time() + shift[0])
    async with (
        identity_provider() as provider,
        broker_for(provider, tmp_path) as broker,
        tenant_of(broker.broker_address, provider.token("eve")) as eve,
        tenant_of(broker.broker_address, provider.token("eve", seconds=7200.0)) as longer,
    ):
        watching, going_on = asyncio.create_task(_follow(eve)), asyncio.create_task(_follow(longer))
        shift[0] = 290.0
        assert await status_of(eve.nodes()) == "OK"
        shift[0] = 301.0
        assert "the token ran out at" in await refusal_of(eve.nodes())
        async with asyncio.timeout(90):
            assert "UNAUTHENTICATED: the token ran out at" in await watching
        assert await status_of(longer.nodes()) == "OK"
        assert not going_on.done()
        going_on.cancel()


async def test_a_new_key_counts_when_it_is_seen_and_a_withdrawn_one_no_more_with_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "LEAST_SECONDS", 0.0)
    async with (
        identity_provider() as provider,
        broker_for(provider, tmp_path) as broker,
        grpc.aio.insecure_channel(broker.broker_address) as channel,
    ):
        before = Tenant(channel, provider.token("eve"))
        assert await status_of(before.nodes()) == "OK"
        watching = asyncio.create_task(_follow(before))
        provider.rotate("second")
        assert await status_of(before.nodes()) == "OK", "nobody knows yet"
        assert await status_of(Tenant(channel, provider.token("eve")).nodes()) == "OK"
        assert await status_of(before.nodes()) == "UNAUTHENTICATED"
        async with asyncio.timeout(90):
            assert "does not vouch any more" in await watching
        # Another key under an id that is known is another key.
        provider.rotate("second")
        assert await status_of(Tenant(channel, provider.token("eve")).nodes()) == "UNAUTHENTICATED"


async def test_while_the_provider_is_down_who_has_a_known_key_gets_in_and_the_broker_starts_without_it(
    tmp_path: Path,
) -> None:
    async with identity_provider() as provider:
        async with (
            broker_for(provider, tmp_path) as broker,
            tenant_of(broker.broker_address, provider.token("eve")) as eve,
        ):
            assert await status_of(eve.nodes()) == "OK"
            for path in ("/.well-known/openid-configuration", "/keys"):
                provider.answers[path] = hang
            async with tenant_of(broker.broker_address, provider.token("eve", more=1)) as again:
                assert await status_of(again.nodes()) == "OK"
        text = provider.token("eve")
    async with (
        running_broker(tmp_path, oidc_issuer=provider.issuer, oidc_audience=AUDIENCE) as broker,
        grpc.aio.insecure_channel(broker.broker_address) as channel,
    ):
        refusal = await refusal_of(Tenant(channel, text).nodes())
        assert "UNAVAILABLE: the provider that signs tokens cannot be reached" in refusal
        assert await status_of(Tenant(channel, tenant_token(tmp_path)).nodes()) == "OK"


async def test_who_has_the_token_in_a_file_goes_on_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = [0.0]
    monkeypatch.setattr(SystemClock, "now", lambda _self: time.time() + shift[0])
    file = tmp_path / "token"
    async with identity_provider() as provider, broker_for(provider, tmp_path) as broker:
        file.write_text(provider.token("ann", groups=["ml"]) + "\n")
        async with Client(broker.broker_address, token=file) as client:
            seen: set[str] = set()

            async def watch() -> None:
                async with aclosing(client.events()) as events:
                    async for event in events:
                        seen.add(event.job_id)

            watching = asyncio.create_task(watch())
            first = await client.submit(make_spec())
            await until(lambda: first.id in seen)
            file.write_text(provider.token("ann", groups=["ml"], seconds=7200.0))
            await client.list_jobs()
            shift[0] = 301.0
            # What was begun with the first token ends, and begins anew with the second, which others show already.
            second = await client.submit(make_spec(endpoint="other"))
            await until(lambda: second.id in seen or watching.done())
            assert not watching.done(), watching.exception()
            file.write_text("")
            with pytest.raises(NotAuthenticatedError, match="has no token"):
                await client.list_jobs()
            shift[0] = 7300.0
            with pytest.raises(NotAuthenticatedError, match="ran out"):
                await asyncio.wait_for(watching, 90)


def test_commands_take_a_token_of_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def commands() -> None:
        async with identity_provider() as provider, broker_for(provider, tmp_path) as broker:
            (tmp_path / "addresses.json").write_text(json.dumps({"broker": broker.broker_address}))

            async def run(*words: str) -> Any:
                result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--state-dir", str(tmp_path)])
                assert result.exit_code == 0, result.stderr
                return json.loads(result.stdout)

            monkeypatch.setenv("TIERCEL_TOKEN", provider.token("eve"))
            assert await run("ls", "--json") == []
            (tmp_path / "token").write_text(provider.token("eve"))
            monkeypatch.delenv("TIERCEL_TOKEN")
            monkeypatch.setenv("TIERCEL_TOKEN_FILE", str(tmp_path / "token"))
            assert await run("ls", "--json") == []
            monkeypatch.setenv("TIERCEL_OPERATOR_TOKEN", provider.token("olga", groups=["ops"]))
            assert await run("token", "create", "ci", "--tenant", "bob", "--json")
            assert "oidc:olga" in [row["caller"] for row in await run("audit", "--json")]

    asyncio.run(commands())


async def test_a_tenants_own_token_may_look_like_a_providers(tmp_path: Path) -> None:
    own = "an.operators.own-choice"
    (tmp_path / "tenants.toml").write_text(f'[tenants.alice]\ntoken = "{own}"\n')
    async with (
        identity_provider() as provider,
        broker_for(provider, tmp_path) as broker,
        tenant_of(broker.broker_address, own) as alice,
    ):
        assert await status_of(alice.submit()) == "OK"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"oidc_issuer": "http://login.example.org", "oidc_audience": "a"}, "is not encrypted"),
        ({"oidc_issuer": "https://login.example.org"}, "any other program"),
        ({"oidc_audience": "a"}, "beside --oidc-issuer alone"),
        ({"oidc_issuer": "https://a.example, https://a.example", "oidc_audience": "a"}, "each once"),
        ({"oidc_issuer": [f"https://{n}.example" for n in range(9)], "oidc_audience": "a"}, "at most 8 providers"),
        ({"oidc_issuer": "https://a.example,https://b.example", "oidc_audience": "a,b,c"}, "3 for 2 providers"),
        ({"oidc_issuer": "https://a.example#b", "oidc_audience": "a"}, "give it as the provider's tokens name it"),
        ({"oidc_algorithms": ["HS256"]}, "HS256 may not sign"),
        ({"oidc_algorithms": ["none"]}, "none may not sign"),
        ({"oidc_algorithms": []}, "none may not sign"),
    ],
)
async def test_a_setting_that_makes_no_sense_is_told_at_the_start(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    settings = {"oidc_issuer": "https://login.example.org", "oidc_audience": AUDIENCE, **changes}
    if "oidc_algorithms" not in changes:
        settings = changes
    with pytest.raises(InvalidSpecError, match=words):
        async with running_broker(tmp_path, **settings):
            pass

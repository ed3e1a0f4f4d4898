"""Every route of the dashboard of a real broker, asked in every role; what is another tenant's is not there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.browsers import API, Browser, browser_of
from testing.membership import operator_of
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.broker.api.matrix import Matrix
from tiercel.broker.client.tokens import create_token
from tiercel.broker.server import Broker
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.events import JobEvent, ProgressMade
from tiercel.core.roles import Role

ROLES = ("nobody", "agent", "operator", "other", "viewer", "submitter")
# What each route answers to them, in this order. "other" is Bob; Alice owns what is asked for.
OUTCOMES = {
    "GET session": (401, 403, 200, 200, 200, 200),
    "GET events": (401, 403, 200, 200, 200, 200),
    "GET status": (401, 403, 200, 200, 200, 200),
    "GET nodes": (401, 403, 200, 200, 200, 200),
    "GET jobs": (401, 403, 403, 200, 200, 200),
    "GET jobs/{job}": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/curve": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/shares": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/runs": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/events": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/log": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/files": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/explain": (401, 403, 403, 404, 200, 200),
    "GET jobs/{job}/lineage": (401, 403, 403, 404, 200, 200),
    "GET endpoints": (401, 403, 403, 200, 200, 200),
    "GET endpoints/{endpoint}": (401, 403, 403, 404, 200, 200),
    "GET endpoints/{endpoint}/explain": (401, 403, 403, 404, 200, 200),
    "GET endpoints/{endpoint}/lineage": (401, 403, 403, 404, 200, 200),
    "GET endpoints/{endpoint}/canary": (401, 403, 403, 404, 403, 200),
    # Where the scripted agent says that its inference server is, nobody is.
    "GET endpoints/{endpoint}/metadata": (401, 403, 403, 404, 403, 503),
    "POST endpoints/{endpoint}/infer": (401, 403, 403, 404, 403, 503),
    "POST endpoints/{endpoint}/generate": (401, 403, 403, 404, 403, 503),
    "GET audit": (401, 403, 200, 403, 403, 403),
    "GET usage": (401, 403, 200, 200, 200, 200),
    "GET quotas": (401, 403, 200, 200, 200, 200),
    "GET policy": (401, 403, 200, 200, 200, 200),
    "POST policy": (401, 403, 200, 403, 403, 403),
    "GET predictions": (401, 403, 200, 200, 200, 200),
    "POST what-if": (401, 403, 200, 200, 200, 200),
    # Nothing was delivered, so that there is no version to choose.
    "POST endpoints/{endpoint}/promote": (401, 403, 403, 404, 403, 404),
    "POST endpoints/{endpoint}/rollback": (401, 403, 403, 404, 403, 404),
    "GET endpoints/{endpoint}/compare": (401, 403, 403, 404, 400, 400),
    "POST endpoints/{endpoint}/remove": (401, 403, 403, 404, 403, 404),
    "POST endpoints/{endpoint}/keep": (401, 403, 403, 404, 403, 400),
    "POST jobs/{job}/resume": (401, 403, 403, 404, 403, 200),
    "POST jobs/{job}/priority": (401, 403, 403, 404, 403, 200),
    "POST jobs/{job}/retry": (401, 403, 403, 404, 403, 400),  # it is not over
    "POST jobs/{job}/suspend": (401, 403, 403, 404, 403, 200),
    "POST jobs/{job}/cancel": (401, 403, 403, 404, 403, 200),
}


@contextlib.asynccontextmanager
async def with_a_job(state_dir: Path) -> AsyncIterator[tuple[Broker, str]]:
    """A broker on which a job of Alice's has reported twice."""
    async with running_broker(state_dir) as broker:
        agent = ScriptedAgent(node_token(state_dir), "n1")
        async with (
            agent.connected(broker.nodes_address),
            agent.beating(),
            tenant_of(broker.broker_address, tenant_token(state_dir)) as alice,
        ):
            job = await alice.submit("digits")
            await until(lambda: agent.runs)
            run_id = next(iter(agent.runs))
            agent.report(run_id, 0.5)
            agent.report(run_id, 0.6)
            await alice.wait(job.id, lambda seen: seen.epoch == 2)
            yield broker, job.id


async def test_every_route_answers_every_role_as_the_matrix_says(tmp_path: Path) -> None:
    async with with_a_job(tmp_path) as (broker, job_id), operator_of(broker, tmp_path) as operator:
        viewer, _ = await create_token(operator, "eyes", tenant="alice", role=Role.VIEWER, seconds=0)
        tokens = (
            "",
            node_token(tmp_path),
            open_tenancy(tmp_path, ()).operator_token,
            tenant_token(tmp_path, "bob"),
            viewer,
            tenant_token(tmp_path),
        )
        async with browser_of(broker.addresses["dashboard"]) as browser:
            found = {route: await statuses(browser, route, tokens, job_id) for route in OUTCOMES}
    assert found == OUTCOMES


async def statuses(browser: Browser, route: str, tokens: tuple[str, ...], job_id: str) -> tuple[int, ...]:
    """What a route answers to the bearers of these tokens."""
    verb, path = route.split()
    path = path.format(job=job_id, endpoint="digits")
    found: list[int] = []
    for token in tokens:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        body = {"priority": 3, "name": "fair"} if verb == "POST" else None
        async with browser.session.request(verb, f"{browser.url}{API}{path}", headers=headers, json=body) as answer:
            found.append(answer.status)
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            if answer.status >= 400:
                told = await answer.json()
                assert {"code", "message"} <= told.keys()
    return tuple(found)


async def test_what_a_job_did_is_told_in_points_that_fit(tmp_path: Path) -> None:
    async with with_a_job(tmp_path) as (broker, job_id), browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        curve = (await browser.get(f"jobs/{job_id}/curve?width=1")).content
        assert [(value, epoch) for _, value, epoch in curve["points"]] == [(0.5, 1), (0.6, 2)]
        assert (curve["total"], curve["decimated"], curve["best"]) == (2, False, 0.6)
        shares = (await browser.get(f"jobs/{job_id}/shares")).content["points"]
        assert shares[-1]["node_id"] == "n1"
        assert shares[-1]["reason"]
        kinds = {event["event"] for event in (await browser.get(f"jobs/{job_id}/events")).content["events"]}
        assert kinds == {"state", "share"}
        first, second = [(await browser.get(f"jobs/{job_id}/runs")).content["present"] for _ in range(2)]
        assert first["node_id"] == "n1"
        assert first["seconds"] < second["seconds"], "a run that nobody tells of stands still"
        (node,) = (await browser.get("nodes")).content
        assert [(each["kind"], each["id"]) for each in node["workloads"]] == [("job", job_id)]
        async with browser_of(broker.addresses["dashboard"], tenant_token(tmp_path, "bob")) as bob:
            (seen,) = (await bob.get("nodes")).content
            assert (seen["workloads"], seen["others"]["jobs"]) == ([], 1)
            assert job_id not in str(seen)
        used = (await browser.get("usage?since=1h")).content
        assert [(each["id"], each["approximate"]) for each in used["jobs"]] == [(job_id, False)]


async def test_a_curve_of_ten_thousand_points_is_as_many_as_can_be_seen(tmp_path: Path) -> None:
    async with with_a_job(tmp_path) as (broker, job_id), browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        job = (await browser.get(f"jobs/{job_id}")).content
        began = datetime.fromisoformat(job["submitted_at"]).timestamp()
        peaks = {4321: 0.999, 8765: 0.001}
        events = [
            JobEvent(1_000_000 + each, job_id, "alice", began + each, ProgressMade(each, peaks.get(each, 0.5), {}, 1.0))
            for each in range(1, 10_501)
        ]
        async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
            await store.save(events=events)
        answer = await browser.get(f"jobs/{job_id}/curve?width=300")
        points = answer.content["points"]
        assert (answer.content["total"], answer.content["decimated"]) == (10_502, True)
        assert len(points) <= 600
        assert {value for _, value, _ in points} == {0.5, *peaks.values()}
        assert [epoch for _, _, epoch in points] == sorted(epoch for _, _, epoch in points)
        assert points[-1][0] == pytest.approx(10_500, abs=40)
        assert int(answer.headers["Content-Length"]) < 30_000


async def test_once_a_program_has_run_the_next_run_of_it_has_a_forecast(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        agent = ScriptedAgent(node_token(tmp_path), "n1")
        async with (
            agent.connected(broker.nodes_address),
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        ):
            first = await alice.submit("digits")
            run = await agent.wait_run(f"{first.id}-1")
            agent.report(run.run_id, 0.2, 0.4, 0.6, 0.7, 0.85)
            agent.exit(run.run_id)
            await alice.wait_finished(first.id)
            assert (await browser.get(f"jobs/{first.id}/curve")).content["forecast"] is None
            second = await alice.submit("digits")
            run = await agent.wait_run(f"{second.id}-1")
            agent.report(run.run_id, 0.2, 0.4)
            await alice.wait(second.id, lambda seen: seen.epoch == 2)
            curve = (await browser.get(f"jobs/{second.id}/curve")).content
            now = curve["points"][-1][0]
            assert curve["forecast"]["tiers"][0]["tier"] == 1
            assert all(now <= each["low"] <= each["seconds"] <= each["high"] for each in curve["forecast"]["tiers"])


async def test_what_was_changed_here_is_in_the_audit_log(tmp_path: Path) -> None:
    async with with_a_job(tmp_path) as (broker, job_id), browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        assert (await browser.post(f"jobs/{job_id}/cancel")).content["id"] == job_id
        operator = {"Authorization": f"Bearer {open_tenancy(tmp_path, ()).operator_token}"}
        told = (await browser.get("audit?limit=50", headers=operator)).content
        found = [(each["method"], each["object"], each["peer"]) for each in told["calls"]]
        assert ("JobsService.CancelJob", job_id, "127.0.0.1") in found
        assert told["next"] is None
        page = (await browser.get("audit?limit=1", headers=operator)).content
        older = (await browser.get(f"audit?limit=50&before={page['next']}", headers=operator)).content
        numbers = [each["number"] for each in (*page["calls"], *older["calls"])]
        assert numbers == sorted(set(numbers), reverse=True)


async def test_what_if_is_asked_by_its_fields_and_no_others(tmp_path: Path) -> None:
    async with with_a_job(tmp_path) as (broker, job_id), browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        answer = await browser.post("what-if", {"change": {"policy": "fair", "priorities": {job_id: 5}}})
        assert (answer.status, answer.content["policy"]) == (200, "utility")
        assert [job["id"] for job in answer.content["jobs"]] == [job_id]
        nonsense: tuple[object, ...] = ({"polcy": "fair"}, {"policy": 3}, [], "fair", {"cancel": [[]]})
        for change in nonsense:
            refused = await browser.post("what-if", {"change": change})
            assert (refused.status, refused.content.get("field")) == (400, "change"), (change, refused.content)


@pytest.mark.parametrize("query", ["jobs?limit=0", "jobs?limit=x", "jobs?state=lost", "jobs?after=x", "usage?since=x"])
async def test_what_makes_no_sense_is_refused_by_name(tmp_path: Path, query: str) -> None:
    async with running_broker(tmp_path) as broker, browser_of(broker.addresses["dashboard"]) as browser:
        await browser.sign_in(tenant_token(tmp_path))
        answer = await browser.get(query)
        assert answer.status == 400
        assert answer.content["field"]


async def test_every_route_names_a_method_whose_rule_holds_but_for_the_pages_and_the_way_in(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.dashboard is not None
        site, matrix = broker.dashboard.site, Matrix.read()
    ruled = {f"{route.verb} {route.path}": matrix.rule(route.full_method) for route in site.routes}
    assert {name for name, rule in ruled.items() if rule.changes} == {
        name for name in ruled if name.startswith("POST") and not name.endswith(("/infer", "/generate", "what-if"))
    }
    served = {
        f"{route.method} {route.resource.canonical.removeprefix(API)}"
        for route in site.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    way_in = {"POST session", "DELETE session", "GET session", "GET events"}
    assert served == ruled.keys() | way_in | {"GET /metrics", "GET /assets/{path}", "GET /{path}"}
    assert ruled.keys() | {"GET session", "GET events"} == OUTCOMES.keys()

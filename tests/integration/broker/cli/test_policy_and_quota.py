"""``tiercel policy`` and ``tiercel quota`` against a real broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testing.brokers import running_broker
from tiercel.broker.cli.app import app


async def run(state_dir: Path, *words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, [*words, "--state-dir", str(state_dir)])


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)


async def test_another_policy_is_set_shown_and_refused_in_a_line(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps(broker.addresses))
        first = await run(tmp_path, "policy", "show", "--tenant", "alice")
        assert first.exit_code == 0, first.output
        assert first.stdout.startswith("utility: ")
        assert "Policies: " in first.stdout
        done = await run(tmp_path, "policy", "set", "flowcon", "--option", "alpha=0.05")
        assert (done.exit_code, done.stdout) == (0, "flowcon alpha=0.05: set by the operator.\n"), done.output
        told = json.loads((await run(tmp_path, "policy", "show", "--tenant", "alice", "--json")).stdout)
        assert (told["name"], told["options"], told["source"]) == ("flowcon", {"alpha": "0.05"}, "set")
        assert {"fair", "utility"} <= set(told["names"])
        for words, code, sentence in (
            (("nothing-like-it",), 1, "nothing-like-it"),
            (("fifo", "--option", "nonsense=1"), 1, "nonsense"),
            (("fifo", "--option", "at_a_time"), 2, "'at_a_time' is not KEY=VALUE"),
            (("fifo", "--option", "at_a_time=1", "--option", "at_a_time=2"), 2, "at_a_time is given twice"),
        ):
            refused = await run(tmp_path, "policy", "set", *words)
            assert refused.exit_code == code, refused.output
            assert sentence in refused.stderr
        assert json.loads((await run(tmp_path, "policy", "show", "--tenant", "alice", "--json")).stdout) == told


async def test_a_policy_that_was_looked_at_first_is_set_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps(broker.addresses))
        for words, sentence in (
            (("--policy", "fifo", "--apply"), "give --yes as well"),
            (("--apply", "--yes"), "give --policy, with its options, alone"),
            (("--policy", "fifo", "--cancel", "j", "--apply", "--yes"), "give --policy, with its options, alone"),
        ):
            refused = await run(tmp_path, "what-if", *words)
            assert refused.exit_code == 2, refused.output
            assert sentence in refused.stderr
        looked = await run(tmp_path, "what-if", "--policy", "fifo", "--option", "at_a_time=1")
        assert looked.exit_code == 0, looked.output
        assert looked.stdout.splitlines()[:2] == [
            "No tier of a job is left to be reached.",
            "Nothing would change by much.",
        ]
        assert "fifo" not in (await run(tmp_path, "policy", "show", "--tenant", "alice")).stdout.splitlines()[0]
        done = await run(tmp_path, "what-if", "--policy", "fifo", "--option", "at_a_time=1", "--apply", "--yes")
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[-1] == "fifo at_a_time=1: set by the operator."
        told = json.loads((await run(tmp_path, "what-if", "--policy", "las", "--apply", "-y", "--json")).stdout)
        assert (told["policy"], told["applied"]["name"]) == ("fifo", "las"), "the one before, and the one now"
        (tmp_path / "operator.token").unlink()
        no_operator = await run(tmp_path, "what-if", "--policy", "fifo", "--tenant", "alice", "--apply", "--yes")
        assert no_operator.exit_code != 0
        assert "operator" in no_operator.stderr
        shown = await run(tmp_path, "policy", "show", "--tenant", "alice")
        assert shown.stdout.startswith("las: ")


_CLASSES = """
[tenants.alice]
token = "alice-alice-alice-alice"

[tenants.bob]
token = "bob-bob-bob-bob-bob-bob"

[priority_classes.later]
value = -10
preempts = false

[priority_classes.urgent]
value = 100
tenants = ["alice"]
"""


async def test_the_priority_classes_that_a_tenant_may_use_stand_with_its_quota(tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text(_CLASSES)
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps(broker.addresses))
        shown = await run(tmp_path, "quota", "show", "alice")
        assert "classes   urgent (100), later (-10, suspends nobody)" in shown.stdout, shown.output
        (bobs,) = json.loads((await run(tmp_path, "quota", "show", "bob", "--json")).stdout)
        assert bobs["classes"] == [{"name": "later", "value": -10, "preempts": False}], "urgent is alice's alone"


async def test_a_quota_is_shown_set_reset_and_refused_in_a_line(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / "addresses.json").write_text(json.dumps(broker.addresses))
        shown = await run(tmp_path, "quota", "show")
        assert shown.exit_code == 0, shown.output
        assert [line.split()[:4] for line in shown.stdout.splitlines()[1:]] == [
            ["alice", "0", "of", "20"],
            ["bob", "0", "of", "20"],
        ]
        done = await run(tmp_path, "quota", "set", "alice", "--jobs", "3")
        assert done.stdout == (
            "alice may have 3 unfinished jobs and has 0; of cores it has used 0 hours, of accelerators 0.\n"
        ), done.output
        one = await run(tmp_path, "quota", "show", "alice")
        assert "0 of 3 unfinished (set by the operator), 0 run" in one.stdout
        assert max(map(len, (shown.stdout + one.stdout).splitlines())) <= 80
        (own,) = json.loads((await run(tmp_path, "quota", "show", "alice", "--json")).stdout)
        assert (own["tenant"], own["max_active_jobs"], own["is_set"]) == ("alice", 3, True)
        done = await run(tmp_path, "quota", "set", "alice", "--core-hours", "200", "--accelerator-hours", "1.5")
        assert "3 unfinished" in done.stdout, "what is not named stays"
        assert "used 0 of 200 hours, of accelerators 0 of 1.5" in done.stdout
        back = json.loads((await run(tmp_path, "quota", "set", "alice", "--reset", "--json")).stdout)
        assert (back["max_active_jobs"], back["is_set"]) == (20, False)
        for words, sentence in (
            (("show", "nobody"), "nobody"),
            (("set", "nobody", "--jobs", "3"), "nobody"),
            (("set", "alice"), "Give either --reset or what it may use"),
            (("set", "alice", "--jobs", "-1"), "-1"),
        ):
            refused = await run(tmp_path, "quota", *words)
            assert refused.exit_code != 0
            assert sentence in refused.stderr

"""Which policy decides: set while the broker runs, over restarts, and refused where it cannot plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testing.brokers import make_settings
from testing.membership import operator_of
from tiercel.broker.actors import policy_choice
from tiercel.broker.client.policy import get_policy, set_policy
from tiercel.broker.scheduling.fair import FairPolicy
from tiercel.broker.server import Broker
from tiercel.broker.settings import BrokerSettings
from tiercel.core.errors import InvalidSpecError
from tiercel.core.policies import PolicyChoice, PolicySource


class Broken(FairPolicy):
    name = "broken"

    def plan(self, *_: Any) -> Any:
        msg = "no plan today"
        raise RuntimeError(msg)


def unchosen(state_dir: Path) -> BrokerSettings:
    """Settings that say nothing of a policy."""
    told = make_settings(state_dir)
    return BrokerSettings(**{name: getattr(told, name) for name in told.model_fields_set - {"policy"}})


async def decides(state_dir: Path, settings: BrokerSettings) -> PolicyChoice:
    async with Broker(settings) as broker, operator_of(broker, state_dir) as operator:
        choice, names = await get_policy(operator)
        assert choice.name in names
        return choice


async def test_a_policy_that_is_set_stays_over_restarts_unless_the_broker_is_started_with_one(tmp_path: Path) -> None:
    async with Broker(unchosen(tmp_path)) as broker, operator_of(broker, tmp_path) as operator:
        assert (await get_policy(operator))[0] == PolicyChoice("utility")
        chosen = await set_policy(operator, "flowcon", {"alpha": "0.05"})
        assert chosen == PolicyChoice("flowcon", {"alpha": "0.05"}, PolicySource.SET)
        assert broker._service is not None
        assert broker._service._registry.scheduler.policy_name == "flowcon"
    assert await decides(tmp_path, unchosen(tmp_path)) == chosen
    at_start = make_settings(tmp_path, policy="las")
    assert await decides(tmp_path, at_start) == PolicyChoice("las", {}, PolicySource.START, "las")
    assert await decides(tmp_path, unchosen(tmp_path)) == chosen, "what was set was not forgotten"


async def test_a_policy_that_cannot_plan_or_is_none_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(make_settings(tmp_path, policy="las")) as broker, operator_of(broker, tmp_path) as operator:
        before = await get_policy(operator)
        for name, options, said in (("nobody", {}, "no policy 'nobody'"), ("fair", {"x": "1"}, "no option 'x'")):
            with pytest.raises(InvalidSpecError, match=said):
                await set_policy(operator, name, options)
        monkeypatch.setattr(policy_choice, "create_policy", lambda *_: Broken())
        with pytest.raises(InvalidSpecError, match=r"no plan today.*'las' stays"):
            await set_policy(operator, "broken", {})
        assert await get_policy(operator) == before
        monkeypatch.undo()
        assert (await set_policy(operator, "fair", {})).started_with == "las"
    assert (await decides(tmp_path, make_settings(tmp_path, policy="las"))).name == "las"


async def test_a_policy_whose_package_is_gone_leaves_the_default(tmp_path: Path) -> None:
    async with Broker(unchosen(tmp_path)) as broker, operator_of(broker, tmp_path) as operator:
        await set_policy(operator, "fair", {})
        assert broker._service is not None
        await policy_choice_store(broker).put("left-us", {})
    assert await decides(tmp_path, unchosen(tmp_path)) == PolicyChoice("utility")


def policy_choice_store(broker: Broker) -> Any:
    """Where the broker keeps what was set."""
    from tiercel.broker.store.policy import PolicyStore

    assert broker._service is not None
    return PolicyStore(broker._service._store)

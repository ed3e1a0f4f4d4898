"""Another policy takes the place of the one that decides, while jobs run."""

from __future__ import annotations

from testing.actors import Actors, running, submit
from tiercel.broker.actors.scheduler_messages import PolicySet
from tiercel.broker.scheduling.registry import create_policy, policy_names
from tiercel.core.jobs import JobState


async def test_every_policy_can_plan_for_jobs_that_run_and_wait_and_then_decides(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.5)
    await submit(actors, endpoint="other")
    await actors.settle()
    scheduler = actors.registry.scheduler
    for name in policy_names():
        if name == "srpt-oracle":  # it has to be told how jobs will go, which is known in the simulator alone
            continue
        policy = create_policy(name)
        scheduler.check_policy(policy)
        await scheduler.call(PolicySet(policy))
        await actors.heartbeat(node, epoch)
        await actors.pass_time(1.0)
        assert scheduler.policy_name == name
    assert (await actors.job(job.id)).state is JobState.RUNNING
    decisions = await actors.store.decisions_of(job.id, limit=50)
    assert len({each.policy for each in decisions}) > 1

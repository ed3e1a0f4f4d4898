"""What subscribers rely on, over the embedded broker and over a real mosquitto."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import aiomqtt
import pytest

from testing.events import endpoint_event, node_event, progress_event, share_event, state_event, tier_event
from testing.mqtt import TENANCY, WAIT_SECONDS, BrokerUnderTest, Mosquitto, mosquitto_command, subscribed
from testing.until import until
from tiercel.core.jobs import JobState


async def test_a_late_subscriber_sees_state_and_no_progress(mqtt: BrokerUnderTest) -> None:
    async with mqtt.publishing() as publisher, subscribed(mqtt.port) as early:
        publisher.publish_nowait(state_event(JobState.PENDING, sequence=1))
        publisher.publish_nowait(share_event(sequence=2))
        publisher.publish_nowait(state_event(JobState.RUNNING, sequence=3))
        publisher.publish_nowait(progress_event(1, sequence=4))
        publisher.publish_nowait(tier_event(1, sequence=5))
        publisher.publish_nowait(node_event())
        publisher.publish_nowait(endpoint_event())
        await early.wait_topics("/progress", "/version", "/nodes/n1/presence")

        async with subscribed(mqtt.port) as late:
            await late.wait_topics(
                "/state", "/allocation", "/tiers/1", "/nodes/n1/presence", "/version", "/broker/presence"
            )

        assert sum(topic.endswith("/progress") for topic in early.seen_topics()) == 1
        assert not any(topic.endswith("/progress") for topic in late.seen_topics())
        states = [payload for topic, payload, _ in late.seen if topic.endswith("/state")]
        assert [payload["state"] for payload in states] == ["running"]
        assert all(retained for _, _, retained in late.seen)


@pytest.mark.mosquitto
async def test_a_killed_broker_is_announced_by_its_last_will(mosquitto: Mosquitto) -> None:
    async with subscribed(mosquitto.port) as subscriber:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "testing.mqtt_publishing", f"mqtt://127.0.0.1:{mosquitto.port}"
        )
        try:
            await subscriber.wait_message("broker/presence", presence="online")
        finally:
            process.kill()
            await process.wait()

        assert await subscriber.wait_message("broker/presence", presence="offline")


@pytest.mark.mosquitto
async def test_a_broker_that_stops_says_so_itself(mosquitto: Mosquitto) -> None:
    async with subscribed(mosquitto.port) as subscriber:
        async with mosquitto.publishing():
            await subscriber.wait_message("broker/presence", presence="online")

        assert await subscriber.wait_message("broker/presence", presence="offline")


@pytest.mark.mosquitto
async def test_state_is_sent_again_after_the_mqtt_broker_was_restarted(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tiercel.broker.progress")
    async with mosquitto.publishing() as publisher:
        async with subscribed(mosquitto.port) as before:
            publisher.publish_nowait(state_event(JobState.RUNNING, sequence=1))
            await before.wait_message("/state", state="running")

            await mosquitto.stop()
            # The publisher must have noticed, or the restart could be quicker than it.
            await until(lambda: not publisher.connected.is_set())
            publisher.publish_nowait(tier_event(1, sequence=2))
            with pytest.raises(aiomqtt.MqttError):
                await before.wait_message("never")

        await mosquitto.start()
        async with subscribed(mosquitto.port) as after:
            await after.wait_message("/tiers/1", state="delivered")
            assert any(topic.endswith("/state") for topic in after.seen_topics())
        assert publisher.connections == 2

    ours = [record for record in caplog.records if record.name.startswith("tiercel")]
    warnings = [record for record in ours if record.levelno >= logging.WARNING]
    assert len(warnings) == 1, "one sentence when it goes, however often it is tried"


@pytest.mark.mosquitto
async def test_events_before_the_first_connection_are_not_lost(mosquitto: Mosquitto) -> None:
    await mosquitto.stop()
    async with mosquitto.publishing() as publisher:
        publisher.publish_nowait(state_event(JobState.RUNNING))
        await mosquitto.start()
        async with subscribed(mosquitto.port) as subscriber:
            assert await subscriber.wait_message("/state", state="running")


@pytest.mark.mosquitto
async def test_a_foreign_client_reads_it(mqtt: BrokerUnderTest) -> None:
    async with mqtt.publishing() as publisher:
        publisher.publish_nowait(state_event(JobState.COMPLETED))
        process = await asyncio.create_subprocess_exec(
            *[mosquitto_command("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(mqtt.port)],
            *["-u", "default", "-P", TENANCY.tenants["default"].token],
            *["-t", "tiercel/v1/+/jobs/+/state", "-C", "1", "-W", str(int(WAIT_SECONDS))],
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()

    assert json.loads(output)["state"] == "completed"

"""A process that publishes until it is killed: ``python -m testing.mqtt_publishing URL``."""

from __future__ import annotations

import asyncio
import sys

from tiercel.broker.progress.publisher import MqttPublisher

if __name__ == "__main__":
    asyncio.run(MqttPublisher(sys.argv[1]).run())

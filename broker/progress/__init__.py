"""News for whoever listens: MQTT. Topics and payloads are documented in ``docs/mqtt.md``.

MQTT carries news, gRPC carries truth: losing the MQTT broker loses no job and no model.
"""

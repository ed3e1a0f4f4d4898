"""News for whoever listens: MQTT."""

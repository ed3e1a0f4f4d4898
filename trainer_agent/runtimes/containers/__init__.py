"""Runs as containers of a Docker engine, and containers that wait for them."""

"""Endpoints with variants: configured in the repository, scheduled by :mod:`tiercel.serving.scheduling`."""

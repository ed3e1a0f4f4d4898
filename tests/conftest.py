"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# No test depends on speed: the machine may be busy with anything.
settings.register_profile("tiercel", deadline=None)
settings.load_profile("tiercel")

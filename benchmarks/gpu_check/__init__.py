"""``make gpu-check``: what accelerators really do under Tiercel, each against running alone. See ``docs/gpu.md``."""

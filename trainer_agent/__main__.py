"""Runs the agent: ``python -m tiercel.trainer_agent``."""

from __future__ import annotations

import sys

from tiercel.trainer_agent.main import main

if __name__ == "__main__":
    sys.exit(main())

"""What a script of LightGBM imports: ``from tiercel.trainer.lightgbm import TiercelCallback``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.libraries.lightgbm import TiercelCallback

__all__ = ["TiercelCallback"]

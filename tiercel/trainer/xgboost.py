"""What a script of XGBoost imports: ``from tiercel.trainer.xgboost import TiercelCallback``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.libraries.xgboost import TiercelCallback

__all__ = ["TiercelCallback"]

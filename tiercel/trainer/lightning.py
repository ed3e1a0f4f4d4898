"""What a script of Lightning imports: ``from tiercel.trainer.lightning import TiercelCallback``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.pytorch.lightning import TiercelCallback

__all__ = ["TiercelCallback"]

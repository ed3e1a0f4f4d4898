"""What a script of Transformers imports: ``from tiercel.trainer.huggingface import TiercelCallback``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.pytorch.huggingface import TiercelCallback

__all__ = ["TiercelCallback"]

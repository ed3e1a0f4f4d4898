"""What a script of JAX imports: ``import tiercel.trainer.jax``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.libraries.jax import connect

__all__ = ["connect"]

"""What a script that trains a decoder imports: ``from tiercel.trainer.generation import export_decoder``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer.pytorch.generation import ExportedDecoder, export_decoder

__all__ = ["ExportedDecoder", "export_decoder"]

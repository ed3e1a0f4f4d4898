"""Which versions are not loaded unless somebody asks for them: rolled back, or suspected to end the server. Blocks."""

from __future__ import annotations

from pathlib import Path

from tiercel.serving.loading import rolled_back, suspects


def why_not_by_itself(folder: Path) -> str:
    """Why a version is not loaded unless somebody asks for it; empty where it is."""
    why = rolled_back.why_rolled_back(folder)
    if why is not None:
        return f"rolled back: {why}"
    held_back = suspects.why_held_back(folder)
    return "" if held_back is None else f"held back: {held_back}"


def unmark(folder: Path) -> None:
    """A version that somebody asked for by its number may come back."""
    rolled_back.unmark(folder)
    suspects.forgive(folder)

"""Artefacts are hostile: what is checked before one is served, in a process of its own."""

"""The asyncio shell: actors own state, run the pure machines and carry out their effects."""

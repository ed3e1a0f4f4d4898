"""What is said of a field of a type beside its type: ``field(metadata=...)``."""

NOT_STORED = {"stored": False}
"""It ends with the broker's life."""

TOLD_OTHERWISE = {"told": False}
"""A message of the contract says it, but not in a field of its name."""

NOT_TOLD = {"told": False, "shown": False}
"""Only the broker knows it."""

LOCAL = {"stored": False, "told": False, "shown": False}
"""Known only to the program that made it; nobody else is told."""

"""A new version on trial: who answers which request, what both versions did, and what follows from it."""

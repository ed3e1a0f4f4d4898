"""Models on disk and what is live: the repository, the versions that are loaded, and who answers while one is tried."""

"""Models on disk, loaded and live."""

"""What it takes from the order of a run to its first training step, warm and cold; see docs/warm-starts.md."""

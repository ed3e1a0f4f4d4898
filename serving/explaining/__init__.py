"""What became of recent requests, so that they can be explained."""

"""Real training scripts that ship with Tiercel. Each runs alone and as a job; see ``docs/training-scripts.md``."""

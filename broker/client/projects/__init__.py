"""The folder that a job runs from: packed by content, and sent as far as the broker lacks it."""

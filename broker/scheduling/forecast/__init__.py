"""Step "forecast": what a job's reports, and earlier runs of its program, say of the work that is left."""

"""Which variant of an endpoint answers how many requests at once: pure schedulers, and a simulator of what they do."""

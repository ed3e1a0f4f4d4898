"""Live experiments: the schedulers against each other, with real training."""

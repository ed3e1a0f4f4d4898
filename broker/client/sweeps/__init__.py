"""Sweeps: jobs of one spec with other arguments, of which a sampler of Optuna's says which are worth a try."""

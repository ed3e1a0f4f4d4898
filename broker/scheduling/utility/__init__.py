"""Ours: training and serving priced in one currency. Begin with ``policy.py``."""

"""SLAQ-style: where the metric is predicted to gain most. Begin with ``policy.py``."""

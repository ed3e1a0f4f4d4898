"""TRADL-style: the first tier first. Begin with ``policy.py``."""

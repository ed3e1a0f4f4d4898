"""DQoES-style: endpoints by their delay objectives. Begin with ``policy.py``."""

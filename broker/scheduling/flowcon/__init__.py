"""FlowCon: CPU follows growth efficiency. Begin with ``policy.py``."""

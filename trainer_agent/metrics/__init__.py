"""The node's numbers for Prometheus, and the door where they are told."""

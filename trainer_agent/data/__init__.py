"""Data sets of the node, and where a run finds those that it asks for."""

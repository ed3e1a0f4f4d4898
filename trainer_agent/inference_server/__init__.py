"""Keeps one inference server alive on the node, and speaks to it."""

"""Sees the accelerators of the node: which there are, how they do, who uses them, what serving keeps of them."""

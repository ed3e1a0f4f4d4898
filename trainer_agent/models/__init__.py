"""The model repository of the node: the versions that were delivered, and which of them answers."""

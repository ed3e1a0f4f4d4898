"""Environments: the packages that jobs ask for, built once for each content, over what the node has itself."""

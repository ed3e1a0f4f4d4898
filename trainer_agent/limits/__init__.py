"""How CPU shares and memory limits are enforced on this machine."""

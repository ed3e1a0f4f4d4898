"""What tests and benchmarks share: the product in a process of its own, doubles, data, and how to wait."""

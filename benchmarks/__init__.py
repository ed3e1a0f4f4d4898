"""Benchmarks: each writes benchmarks/results/NAME.json."""

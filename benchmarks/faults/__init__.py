"""Attacks and faults, each run against the real parts with bounds on memory and time; each gives figures."""

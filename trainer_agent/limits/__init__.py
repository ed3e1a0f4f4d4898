"""Enforces shares of CPU and memory, and works out how runs that share an accelerator pace themselves."""

"""Tests, one folder a kind, mirroring the packages."""

"""Revisions; each file is applied once and never changed after a release."""

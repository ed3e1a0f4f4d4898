"""A new version may be tried with a share of the requests first."""

"""Hands models over: from a tier that was reached to a version that answers, each delivery exactly once."""

"""Warm starts, whatever a run is: what to import beforehand, and how a process becomes a run."""

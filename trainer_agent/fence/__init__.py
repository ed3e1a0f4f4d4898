"""Ends the runs of a node in time once its broker may start them elsewhere, also where the agent is dead."""

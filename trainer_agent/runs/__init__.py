"""The runs of the node: started, stopped, given their shares, taken over from an earlier life of the agent."""

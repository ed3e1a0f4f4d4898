"""Everything on one machine: the broker in this process, an agent beside it that outlives it."""

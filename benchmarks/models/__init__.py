"""``make bench-models``: scripts of every framework as jobs, and a model of 2.5 GB under load."""

"""The inference server beside its peers: rate, delay, CPU and memory, overload, training beside it."""

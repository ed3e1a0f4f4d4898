"""One pool of workers in simulated time: what schedulers are compared on and what the learned one is trained in."""
